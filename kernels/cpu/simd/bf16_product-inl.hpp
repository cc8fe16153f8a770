// SPDX-License-Identifier: Apache-2.0
// What products that multiply bf16 by bf16 share: the input is rounded and laid out in operands, work is cut into blocks. Included once for
// each target.
//
// A panel of 32 outputs is walked once over all inputs. Every element of the result is one chain of operations over ascending k, whatever
// the number of rows and their places in operands, so that a row has the same bits alone and in company.
#if defined(VLBATCH_BF16_PRODUCT_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef VLBATCH_BF16_PRODUCT_INL
#undef VLBATCH_BF16_PRODUCT_INL
#else
#define VLBATCH_BF16_PRODUCT_INL
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/kernels.hpp"
#include "cpu/simd/epilogue-inl.hpp"
#include "cpu/weight.hpp"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {

/// Part \p i of \p n equal parts of \p whole begins here.
HWY_INLINE std::int32_t cut(std::int32_t whole, std::int32_t i, std::int32_t n) {
  return static_cast<std::int32_t>(static_cast<std::int64_t>(whole) * i / n);
}

/// A product with a weight of the layout `tiles`, and its input rounded to bf16: operand after operand of `[steps][height][32]`.
struct bf16_product {
  const std::uint16_t* x;
  std::int32_t steps;   ///< of 32 inputs
  std::int32_t height;  ///< rows of every operand, or 0: the rows are cut into `operands` equal parts, each as high as it has rows
  std::int32_t operands;
  const std::uint16_t* weights;
  matrix_view<float> y;
  const linear_epilogue& epilogue;

  /// First row of operand \p a.
  [[nodiscard]] std::int32_t row(std::int32_t a) const { return height > 0 ? std::min(a * height, y.rows) : cut(y.rows, a, operands); }
  [[nodiscard]] std::int32_t rows(std::int32_t a) const { return row(a + 1) - row(a); }
  [[nodiscard]] const std::uint16_t* operand(std::int32_t a) const { return x + static_cast<std::int64_t>(row(a)) * steps * tile_depth; }
  [[nodiscard]] const std::uint16_t* panel(std::int32_t panel) const {
    return weights + static_cast<std::int64_t>(panel) * steps * 2 * tile_elements;
  }
};

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
HWY_NOINLINE inline void round_operand(matrix_view<const float> x, const bf16_product& p, std::int32_t a, std::uint16_t* to) {
  const std::int32_t height = p.height > 0 ? p.height : p.rows(a);
  to += static_cast<std::int64_t>(p.row(a)) * p.steps * tile_depth;
  for (std::int32_t r = 0; r < p.rows(a); ++r) {
    for (std::int32_t k = 0; k < p.steps; ++k) {
      round_some(x.row(p.row(a) + r) + static_cast<std::ptrdiff_t>(k) * tile_depth, x.cols - k * tile_depth,
                 to + (static_cast<std::int64_t>(k) * height + r) * tile_depth);
    }
  }
}

/// The whole product. \p Unit is a multiplying unit:
///   max_rows        rows that an operand can have
///   full_operands   whether all operands are laid out with max_rows rows
///   operands_a_step operands that it takes together: blocks of rows are whole multiples
///   row_nanoseconds what a weight element costs for an operand, and byte_nanoseconds at least; rough on purpose
///   block(p, a, end, first, last)  panels [first, last) for the operands [a, end), epilogue included
template <class Unit>
void multiply_bf16(cpu_kernels::context& s, matrix_view<const float> x, const cpu::weight::impl& w, matrix_view<float> y,
                   const linear_epilogue& e) {
  // Bytes of input operands that stay in the second-level cache while panels pass.
  constexpr std::int64_t block_bytes = 512 * 1024;
  constexpr std::int32_t together = Unit::operands_a_step;
  const auto steps = static_cast<std::int32_t>(ceil_div(x.cols, tile_depth));
  const auto operands = static_cast<std::int32_t>(ceil_div(x.rows, Unit::max_rows));
  const std::int64_t operand_elements = static_cast<std::int64_t>(Unit::max_rows) * steps * tile_depth;
  std::uint16_t* const rounded = s.rounded_input.get<std::uint16_t>(operands * operand_elements).data();
  const bf16_product p{rounded, steps, Unit::full_operands ? Unit::max_rows : 0, operands, w.elements<std::uint16_t>(), y, e};
  s.for_rows(operands, 0.15 * x.rows * x.cols, [&](std::int32_t a) { round_operand(x, p, a, rounded); });

  const auto panels = static_cast<std::int32_t>(ceil_div(y.cols, panel_width));
  const std::int32_t groups = ceil_div(operands, together);
  const auto block_groups = static_cast<std::int32_t>(std::clamp<std::int64_t>(block_bytes / (2 * together * operand_elements), 1, 32));
  const std::int32_t row_blocks = ceil_div(groups, block_groups);
  const double nanoseconds = static_cast<double>(x.cols) * y.cols * std::max(operands * Unit::row_nanoseconds, Unit::byte_nanoseconds);
  const std::int32_t column_pieces = std::clamp(ceil_div(s.pieces(nanoseconds), row_blocks), 1, panels);
  s.team.run(row_blocks * column_pieces, [&](std::int32_t t, std::int32_t /*thread*/) {
    const std::int32_t rb = t / column_pieces;
    const std::int32_t cp = t % column_pieces;
    Unit::block(p, std::min(together * cut(groups, rb, row_blocks), operands),
                std::min(together * cut(groups, rb + 1, row_blocks), operands), cut(panels, cp, column_pieces),
                cut(panels, cp + 1, column_pieces));
  });
}

/// `linear` of a level whose unit is \p Unit: f32 weights are multiplied as \p of_panels does.
template <class Unit>
struct bf16_linear {
  static inline decltype(cpu_kernels::linear) of_panels = nullptr;  // set once, before the table is handed out

  static void run(cpu_kernels::context& s, matrix_view<const float> x, const cpu::weight::impl& w, matrix_view<float> y,
                  const linear_epilogue& e) {
    w.layout == weight_layout::tiles ? multiply_bf16<Unit>(s, x, w, y, e) : of_panels(s, x, w, y, e);
  }
  static void add_to(cpu_kernels& table) {
    of_panels = table.linear;
    table.linear = run;
  }
};

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
