// SPDX-License-Identifier: Apache-2.0
// Matrix products with packed weights.
//
// A panel of 32 outputs is walked once from front to back, and every element of the result is one chain of FMAs over ascending k. Few rows
// (decoding) take several panels at once, so that enough chains are in flight to hide the latency of an FMA and the weights stream at the
// speed of the memory. Many rows (prefill, vision) are cut into blocks whose inputs stay in the second-level cache, and into register tiles
// of up to 12 rows. None of it changes an element's chain: a row has the same bits alone and in company.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/linear.cpp"
// clang-format off: the targets come first
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstdint>

#include "cpu/simd/epilogue-inl.hpp"
#include "cpu/simd/multiply-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace {

/// Vector pairs that make up a panel.
constexpr std::int32_t pairs_a_panel = panel_width / (2 * lanes);
/// Deeper products are cut along k, so that a register tile's rows and the panel stay in the second-level cache.
constexpr std::int32_t max_depth = 4096;
/// Bytes of input rows that stay in the second-level cache while panels pass.
constexpr std::int32_t block_bytes = 256 * 1024;

template <class T>
struct product {
  matrix_view<const float> x;
  const T* weights;
  matrix_view<float> y;
  const linear_epilogue& epilogue;

  [[nodiscard]] std::int32_t panels() const { return ceil_div(y.cols, panel_width); }
  [[nodiscard]] std::int32_t row_step() const { return std::is_same_v<T, float> ? panel_width : panel_width / 2; }
  /// First column of vector pair \p pair.
  [[nodiscard]] static std::int32_t column(std::int32_t pair) { return pair / pairs_a_panel * panel_width + pair % pairs_a_panel * lanes; }
  /// Weights of vector pairs from \p pair on, beginning at row \p k of their panels.
  template <int Pairs>
  [[nodiscard]] panel_columns<T, Pairs> columns(std::int32_t pair, std::int32_t k) const {
    panel_columns<T, Pairs> c;
    for (int g = 0; g < Pairs; ++g) {
      const std::int32_t panel = (pair + g) / pairs_a_panel;
      c.at[g] = weights + (static_cast<std::int64_t>(panel) * x.cols + k) * row_step() + (pair + g) % pairs_a_panel * lanes;
    }
    return c;
  }
};

/// Epilogue of a tile of \p rows rows and \p pairs vector pairs.
template <class T>
HWY_NOINLINE void finish(const product<T>& p, const float* tile, std::int64_t tile_stride, std::int32_t row, std::int32_t rows,
                         std::int32_t pair, std::int32_t pairs) {
  for (std::int32_t v = 0; v < 2 * pairs; ++v) {
    const std::int32_t column = product<T>::column(pair + v / 2) + v % 2 * (panel_width / 2);
    finish_columns(p.epilogue, p.y, row, rows, column, tile + v * lanes, tile_stride);
  }
}

/// Vector pairs `[first, last)` for so few rows that one register tile holds them all: \p Pairs at a time, and what remains one by one.
template <int Pairs, class T>
void few_rows(const product<T>& p, std::int32_t first, std::int32_t last) {
  HWY_ALIGN float tile[static_cast<std::size_t>(accumulators) * lanes];
  const std::int32_t rows = p.x.rows;
  const auto multiply = tile_kernels<panel_columns<T, Pairs>>::of(rows);
  constexpr std::int32_t stride = 2 * Pairs * lanes;
  for (; first + Pairs <= last; first += Pairs) {
    multiply(p.x.data, p.x.stride, p.template columns<Pairs>(first, 0), p.x.cols, tile, stride, false);
    finish(p, tile, stride, 0, rows, first, Pairs);
  }
  if constexpr (Pairs > 1) {
    if (first < last) few_rows<1>(p, first, last);
  }
}

/// Vector pairs `[first, last)` for the rows `[row, row + rows)`; \p scratch holds `rows` times two vectors.
template <class T>
void many_rows(const product<T>& p, std::int32_t row, std::int32_t rows, std::int32_t first, std::int32_t last, float* scratch) {
  using kernels = tile_kernels<panel_columns<T, 1>>;
  constexpr std::int32_t stride = 2 * lanes;
  const std::int32_t depth = p.x.cols;
  const std::int32_t slices = std::max(1, ceil_div(depth, max_depth));
  const std::int32_t blocks = ceil_div(rows, kernels::max_rows);
  const auto part = [](std::int32_t whole, std::int32_t i, std::int32_t n) {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(whole) * i / n);
  };
  for (; first < last; ++first) {
    for (std::int32_t s = 0; s < slices; ++s) {
      const std::int32_t k = part(depth, s, slices);
      const auto columns = p.template columns<1>(first, k);
      for (std::int32_t b = 0; b < blocks; ++b) {
        const std::int32_t r = part(rows, b, blocks);
        const std::int32_t n = part(rows, b + 1, blocks) - r;
        kernels::of(n)(p.x.row(row + r) + k, p.x.stride, columns, part(depth, s + 1, slices) - k, scratch + r * stride, stride, s > 0);
      }
    }
    finish(p, scratch, stride, row, rows, first, 1);
  }
}

template <class T>
void multiply_packed(cpu_kernels::context& s, const product<T>& p) {
  constexpr std::int32_t tile_rows = accumulators / 2;
  const std::int32_t rows = p.x.rows;
  const std::int32_t depth = p.x.cols;
  // Panels that one register tile covers: tasks are whole multiples of it.
  const std::int32_t pairs = rows <= accumulators / 8 ? 4 : rows <= accumulators / 4 ? 2 : 1;
  const std::int32_t grain = std::max(1, pairs / pairs_a_panel);
  const std::int32_t row_limit = std::clamp(block_bytes / 4 / std::min(depth, max_depth) / tile_rows, 2, 8) * tile_rows;
  const std::int32_t row_blocks = rows <= tile_rows ? 1 : ceil_div(rows, row_limit);
  const std::int32_t grains = ceil_div(p.panels(), grain);

  // Operations at the speed of the registers, or bytes at the speed of a cache, whichever takes longer; rough on purpose.
  const double elements = static_cast<double>(depth) * p.y.cols;
  const double nanoseconds = elements * std::max(rows / (8.0 * lanes), sizeof(T) == sizeof(std::uint32_t) ? 0.03 : 0.06);
  const std::int32_t pieces = s.pieces(nanoseconds);
  const std::int32_t column_pieces = std::clamp(ceil_div(pieces, row_blocks), 1, grains);
  const std::int32_t tasks = pieces == 1 ? 1 : row_blocks * column_pieces;
  if (rows > tile_rows) s.reserve_scratch(static_cast<std::int64_t>(2 * lanes) * row_limit);

  const auto block = [&](std::int32_t rb, std::int32_t cp, std::int32_t column_parts, std::int32_t thread) {
    const auto cut = [&](std::int32_t i) {
      const auto g = static_cast<std::int32_t>(static_cast<std::int64_t>(grains) * i / column_parts);
      return std::min(g * grain, p.panels()) * pairs_a_panel;
    };
    const std::int32_t first = cut(cp);
    const std::int32_t last = cut(cp + 1);
    if (rows > tile_rows) {
      const auto row = static_cast<std::int32_t>(static_cast<std::int64_t>(rows) * rb / row_blocks);
      const auto end = static_cast<std::int32_t>(static_cast<std::int64_t>(rows) * (rb + 1) / row_blocks);
      many_rows(p, row, end - row, first, last, s.scratch_of(thread));
    } else if (pairs == 4) {
      few_rows<4>(p, first, last);
    } else if (pairs == 2) {
      few_rows<2>(p, first, last);
    } else {
      few_rows<1>(p, first, last);
    }
  };
  if (tasks == 1) {
    for (std::int32_t rb = 0; rb < row_blocks; ++rb) block(rb, 0, 1, 0);
  } else {
    s.team.run(tasks, [&](std::int32_t t, std::int32_t thread) { block(t / column_pieces, t % column_pieces, column_pieces, thread); });
  }
}

void linear(cpu_kernels::context& s, matrix_view<const float> x, const cpu::weight::impl& w, matrix_view<float> y,
            const linear_epilogue& e) {
  if (w.type == dtype::bf16) {
    multiply_packed(s, product<std::uint32_t>{x, w.elements<std::uint32_t>(), y, e});
  } else {
    multiply_packed(s, product<float>{x, w.elements<float>(), y, e});
  }
}

}  // namespace

void add_linear(cpu_kernels& table) { table.linear = linear; }

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vlbatch::inline v0 {

void add_linear(cpu_kernels& table, cpu_level level) { VLBATCH_AT_LEVEL(level, add_linear(table)) }

}  // namespace vlbatch::inline v0
#endif
