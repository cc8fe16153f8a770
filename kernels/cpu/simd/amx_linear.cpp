// SPDX-License-Identifier: Apache-2.0
// Matrix products with bf16 weights in the matrix unit (AMX).
//
// The input is rounded to bf16 and laid out in operands of 16 rows times 32 inputs. A panel of 32 outputs is walked once over all inputs,
// with up to 2 x 2 operands at a time: every element of the result is the same chain of tile operations over ascending k, whatever the
// number of rows and their places in operands, so that a row has the same bits alone and in company.
//
// What the operations compute, and that they flush subnormals: Intel Architecture Instruction Set Extensions Programming Reference, chapter
// on AMX.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/amx_linear.cpp"
// clang-format off: the targets come first
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstdint>

#include "cpu/simd/epilogue-inl.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if !defined(VLBATCH_HAVE_AMX) && defined(__x86_64__) && defined(__linux__)
#define VLBATCH_HAVE_AMX 1
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(VLBATCH_HAVE_AMX) && HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace {

// In addition to what the target allows; in clang the attribute replaces that of the target.
#if defined(__clang__)
#define VLBATCH_AMX __attribute__((target(HWY_TARGET_STR ",amx-tile,amx-bf16")))
#else
#define VLBATCH_AMX __attribute__((target("amx-tile,amx-bf16")))
#endif

/// Rows of an operand of the input, and of a register tile of two.
constexpr std::int32_t operand_rows = 16;
/// Bytes of input operands that stay in the second-level cache while panels pass.
constexpr std::int64_t block_bytes = 512 * 1024;

struct alignas(64) tile_configuration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(tile_configuration) == 64);

/// Configures the tiles of this thread while it lives: 0 to 3 sums, 4 and 5 inputs, 6 and 7 weights. Sums and inputs have \p rows rows:
/// work on fewer takes less time, and is the same for the rows that there are.
class tiles_in_use {
 public:
  VLBATCH_AMX explicit tiles_in_use(std::int32_t rows) {
    tile_configuration c;
    std::fill_n(c.rows, 6, static_cast<std::uint8_t>(rows));
    // The compiler is told that the whole object is read: GCC 12's intrinsic names but 8 bytes of it.
    __asm__ volatile("" : : "m"(c) : "memory");
    _tile_loadconfig(&c);
  }
  tiles_in_use(const tiles_in_use&) = delete;
  tiles_in_use& operator=(const tiles_in_use&) = delete;
  VLBATCH_AMX ~tiles_in_use() { _tile_release(); }
};

struct product {
  const std::uint16_t* x;  // `[ceil(rows / 16)][steps][16][32]`
  std::int32_t steps;      // of 32 inputs
  const std::uint16_t* weights;
  matrix_view<float> y;
  const linear_epilogue& epilogue;

  [[nodiscard]] const std::uint16_t* operand(std::int32_t row_operand) const {
    return x + static_cast<std::int64_t>(row_operand) * steps * tile_elements;
  }
  [[nodiscard]] const std::uint16_t* panel(std::int32_t panel) const {
    return weights + static_cast<std::int64_t>(panel) * steps * 2 * tile_elements;
  }
  /// Epilogue of \p columns 16-column parts of what the tiles left in \p results, `[columns][16][16]`.
  HWY_ATTR void finish(const float* results, std::int32_t row_operand, std::int32_t column, std::int32_t columns) const {
    const std::int32_t row = row_operand * operand_rows;
    const std::int32_t rows = std::min(y.rows - row, operand_rows);
    for (std::int32_t c = 0; c < columns; ++c)
      finish_columns(epilogue, y, row, rows, column + c * operand_rows, results + static_cast<std::ptrdiff_t>(c) * 256, 16);
  }
};

/// Two operands of rows, from \p a on, times a panel.
VLBATCH_AMX void two_by_two(const product& p, std::int32_t a, std::int32_t panel, float* results) {
  const std::uint16_t* a0 = p.operand(a);
  const std::uint16_t* a1 = p.operand(a + 1);
  const std::uint16_t* b = p.panel(panel);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int32_t k = 0; k < p.steps; ++k) {
    _tile_loadd(4, a0, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + tile_elements, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a1, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a0 += tile_elements;
    a1 += tile_elements;
    b += 2 * tile_elements;
  }
  _tile_stored(0, results, 64);
  _tile_stored(1, results + 256, 64);
  _tile_stored(2, results + 512, 64);
  _tile_stored(3, results + 768, 64);
}

/// Elements of weights that are asked for ahead where there are no more rows than one operand: then the memory sets the pace.
constexpr std::ptrdiff_t few_rows_ahead = 2048;

/// One operand of rows times a panel; \p Alone: there is no other.
template <bool Alone>
VLBATCH_AMX void one_by_two(const product& p, std::int32_t a, std::int32_t panel, float* results) {
  const std::uint16_t* a0 = p.operand(a);
  const std::uint16_t* b = p.panel(panel);
  _tile_zero(0);
  _tile_zero(1);
  for (std::int32_t k = 0; k < p.steps; ++k) {
    for (std::int32_t line = 0; Alone && line < 32; ++line) hwy::Prefetch(b + few_rows_ahead + static_cast<std::ptrdiff_t>(line) * 32);
    _tile_loadd(4, a0, 64);
    _tile_loadd(6, b, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + tile_elements, 64);
    _tile_dpbf16ps(1, 4, 7);
    a0 += tile_elements;
    b += 2 * tile_elements;
  }
  _tile_stored(0, results, 64);
  _tile_stored(1, results + 256, 64);
}

/// Panels `[first, last)` for the operands of rows `[a, end)`.
VLBATCH_AMX HWY_NOINLINE void block(const product& p, std::int32_t a, std::int32_t end, std::int32_t first, std::int32_t last) {
  HWY_ALIGN float results[1024];
  const tiles_in_use configured(end - a == 1 ? std::min(p.y.rows - a * operand_rows, operand_rows) : operand_rows);
  for (; first < last; ++first) {
    std::int32_t i = a;
    for (; i + 1 < end; i += 2) {
      two_by_two(p, i, first, results);
      p.finish(results, i, first * panel_width, 2);
      p.finish(results + 512, i + 1, first * panel_width, 2);
    }
    if (i < end) {
      i == a ? one_by_two<true>(p, i, first, results) : one_by_two<false>(p, i, first, results);
      p.finish(results, i, first * panel_width, 2);
    }
  }
}

/// \p n <= 32 numbers, rounded to bf16 (nearest, ties to even; NaN stays NaN), the rest zeros.
HWY_INLINE void round_some(const float* from, std::int64_t n, std::uint16_t* to) {
  const float_tag d;
  const hn::RebindToUnsigned<float_tag> du;
  const hn::Rebind<std::uint16_t, float_tag> dh;
  for (std::int32_t half = 0; half < 2; ++half) {
    const float_vector v = n > 0 ? load_some(from, n) : hn::Zero(d);
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU))));
    const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40U));
    const auto result = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    hn::StoreU(hn::TruncateTo(dh, result), dh, to);
    from += lanes;
    to += lanes;
    n -= lanes;
  }
}

/// Lays the rows of operand \p a out. Rows beyond the last keep what they held: what comes of them is never read.
HWY_NOINLINE void round_operand(matrix_view<const float> x, std::int32_t a, std::uint16_t* to) {
  const std::int32_t steps = static_cast<std::int32_t>(ceil_div(x.cols, tile_depth));
  std::uint16_t* operand = to + static_cast<std::int64_t>(a) * steps * tile_elements;
  for (std::int32_t r = 0; r < std::min(operand_rows, x.rows - a * operand_rows); ++r) {
    const std::int32_t row = a * operand_rows + r;
    for (std::int32_t k = 0; k < steps; ++k) {
      round_some(x.row(row) + static_cast<std::ptrdiff_t>(k) * tile_depth, x.cols - k * tile_depth,
                 operand + (static_cast<std::int64_t>(k) * operand_rows + r) * tile_depth);
    }
  }
}

void multiply_tiles(cpu_kernels::context& s, matrix_view<const float> x, const cpu::weight::impl& w, matrix_view<float> y,
                    const linear_epilogue& e) {
  const auto steps = static_cast<std::int32_t>(ceil_div(x.cols, tile_depth));
  const auto operands = static_cast<std::int32_t>(ceil_div(x.rows, operand_rows));
  std::uint16_t* const rounded = s.rounded_input.get<std::uint16_t>(static_cast<std::int64_t>(operands) * steps * tile_elements).data();
  s.for_rows(operands, 0.15 * x.rows * x.cols, [&](std::int32_t a) { round_operand(x, a, rounded); });

  const product p{rounded, steps, w.elements<std::uint16_t>(), y, e};
  const auto panels = static_cast<std::int32_t>(ceil_div(y.cols, panel_width));
  // Pairs of operands in blocks of rows.
  const std::int64_t operand_bytes = static_cast<std::int64_t>(steps) * tile_elements * 2;
  const auto block_pairs = static_cast<std::int32_t>(std::clamp<std::int64_t>(block_bytes / (2 * operand_bytes), 1, 32));
  const std::int32_t row_blocks = ceil_div(operands, 2 * block_pairs);
  // A tile operation takes 16 cycles, a weight's bytes come from a cache, whichever takes longer; rough on purpose.
  const double nanoseconds = static_cast<double>(x.cols) * y.cols * std::max(operands * 0.03, 0.05);
  const std::int32_t pieces = s.pieces(nanoseconds);
  const std::int32_t column_pieces = std::clamp(ceil_div(pieces, row_blocks), 1, panels);
  const auto cut = [](std::int32_t whole, std::int32_t i, std::int32_t n) {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(whole) * i / n);
  };
  s.team.run(row_blocks * column_pieces, [&](std::int32_t t, std::int32_t /*thread*/) {
    const std::int32_t rb = t / column_pieces;
    const std::int32_t cp = t % column_pieces;
    block(p, std::min(2 * cut(ceil_div(operands, 2), rb, row_blocks), operands),
          std::min(2 * cut(ceil_div(operands, 2), rb + 1, row_blocks), operands), cut(panels, cp, column_pieces),
          cut(panels, cp + 1, column_pieces));
  });
}

decltype(cpu_kernels::linear) linear_of_panels = nullptr;  // avx512's, for f32 weights; set once, before the table is handed out

void linear(cpu_kernels::context& s, matrix_view<const float> x, const cpu::weight::impl& w, matrix_view<float> y,
            const linear_epilogue& e) {
  w.layout == weight_layout::tiles ? multiply_tiles(s, x, w, y, e) : linear_of_panels(s, x, w, y, e);
}

}  // namespace

void add_amx_linear(cpu_kernels& table) {
  linear_of_panels = table.linear;
  table.linear = linear;
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace vlbatch::inline v0 {

#if defined(VLBATCH_HAVE_AMX) && VLBATCH_HAVE_AVX512
void add_amx_linear(cpu_kernels& table) { N_AVX3::add_amx_linear(table); }

bool amx_is_usable() noexcept {
  static const bool usable = [] {
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    constexpr unsigned bf16 = 1U << 22U;
    constexpr unsigned tile = 1U << 24U;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & bf16) == 0 || (d & tile) == 0) return false;
    // Linux grants the state of the tiles to processes that ask for it (Documentation/arch/x86/xstate.rst).
    constexpr long request_permission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return usable;
}
#else
void add_amx_linear(cpu_kernels& /*table*/) {}
bool amx_is_usable() noexcept { return false; }
#endif

}  // namespace vlbatch::inline v0
#endif
