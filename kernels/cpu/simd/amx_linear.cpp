// SPDX-License-Identifier: Apache-2.0
// Matrix products with bf16 weights in the matrix unit (AMX).
//
// The input is laid out in operands of 16 rows times 32 inputs; a panel takes up to 2 x 2 operands at a time.
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

#include "cpu/simd/bf16_product-inl.hpp"
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

/// Epilogue of \p columns 16-column parts of what the tiles left in \p results, `[columns][16][16]`.
HWY_ATTR void finish(const bf16_product& p, const float* results, std::int32_t operand, std::int32_t column, std::int32_t columns) {
  for (std::int32_t c = 0; c < columns; ++c)
    finish_columns(p.epilogue, p.y, p.row(operand), p.rows(operand), column + c * 16, results + static_cast<std::ptrdiff_t>(c) * 256, 16);
}

/// Two operands of rows, from \p a on, times a panel.
VLBATCH_AMX void two_by_two(const bf16_product& p, std::int32_t a, std::int32_t panel, float* results) {
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
VLBATCH_AMX void one_by_two(const bf16_product& p, std::int32_t a, std::int32_t panel, float* results) {
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

struct amx_unit {
  static constexpr std::int32_t max_rows = 16;
  static constexpr bool full_operands = true;
  static constexpr std::int32_t operands_a_step = 2;
  static constexpr double row_nanoseconds = 0.03;  // 16 cycles a tile operation
  static constexpr double byte_nanoseconds = 0.05;

  VLBATCH_AMX static HWY_NOINLINE void block(const bf16_product& p, std::int32_t a, std::int32_t end, std::int32_t first,
                                             std::int32_t last) {
    HWY_ALIGN float results[1024];
    const tiles_in_use configured(end - a == 1 ? p.rows(a) : max_rows);
    for (; first < last; ++first) {
      std::int32_t i = a;
      for (; i + 1 < end; i += 2) {
        two_by_two(p, i, first, results);
        finish(p, results, i, first * panel_width, 2);
        finish(p, results + 512, i + 1, first * panel_width, 2);
      }
      if (i < end) {
        i == a ? one_by_two<true>(p, i, first, results) : one_by_two<false>(p, i, first, results);
        finish(p, results, i, first * panel_width, 2);
      }
    }
  }
};

}  // namespace

void add_amx_linear(cpu_kernels& table) { bf16_linear<amx_unit>::add_to(table); }

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
