// SPDX-License-Identifier: Apache-2.0
// Packed weights: the layouts and how they are made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "io/float16.hpp"
#include "vlbatch/backend/cpu.hpp"

namespace vlbatch::inline v0 {

/// Outputs of a panel.
inline constexpr std::int32_t panel_width = 32;
/// Inputs of a tile of bf16, and its elements: 16 rows of 64 bytes.
inline constexpr std::int32_t tile_depth = 32;
inline constexpr std::int32_t tile_elements = 512;

/// How the elements of a weight `[out, in]` lie.
enum class weight_layout : std::uint8_t {
  rows,    ///< row-major, as in the checkpoint: tables of rows, and the reference level
  panels,  ///< `[out / 32][in][32]`, the last panel filled up with zeros: one pass over k reads a panel from front to back
  tiles    ///< bf16 alone: `[out / 32][in / 32][2][16][16][2]`, filled up with zeros: the operands of a matrix unit, 16 outputs times 32
           ///< inputs, inputs in pairs
};

/// Immutable. A panel of f32 holds its columns in order. A panel of bf16 holds pairs: the 32-bit word i of a row has column i in its lower
/// half and column i + 16 in its upper half, so that a shift and a mask make two vectors of f32 from one load, whatever the vector length.
struct cpu::weight::impl {
  std::int32_t out = 0;
  std::int32_t in = 0;
  dtype type = dtype::f32;  // f32 or bf16
  weight_layout layout = weight_layout::rows;
  std::shared_ptr<const std::byte> data;

  /// Index of element (\p n, \p k), counted in elements.
  [[nodiscard]] std::int64_t index(std::int32_t n, std::int32_t k) const noexcept {
    if (layout == weight_layout::rows) return static_cast<std::int64_t>(n) * in + k;
    const std::int32_t column = n % panel_width;
    constexpr std::int32_t half = panel_width / 2;
    if (layout == weight_layout::tiles) {
      const std::int64_t step = static_cast<std::int64_t>(n / panel_width) * ceil_div(in, tile_depth) + k / tile_depth;
      const std::int32_t pair = k % tile_depth / 2;
      return (step * 2 + column / half) * tile_elements + pair * tile_depth + column % half * 2 + k % 2;
    }
    const std::int32_t place = type == dtype::bf16 ? 2 * (column % half) + column / half : column;
    return (static_cast<std::int64_t>(n / panel_width) * in + k) * panel_width + place;
  }
  /// Element (\p n, \p k) as f32.
  [[nodiscard]] float at(std::int32_t n, std::int32_t k) const noexcept {
    return type == dtype::bf16 ? bf16_to_f32(elements<std::uint16_t>()[index(n, k)]) : elements<float>()[index(n, k)];
  }
  /// First element.
  template <class T>
  [[nodiscard]] const T* elements() const noexcept {
    return static_cast<const T*>(static_cast<const void*>(data.get()));
  }
  /// Elements stored, padding included.
  [[nodiscard]] std::int64_t stored() const noexcept {
    const std::int64_t rows = layout == weight_layout::rows ? out : ceil_div(out, panel_width) * panel_width;
    return rows * (layout == weight_layout::tiles ? ceil_div(in, tile_depth) * tile_depth : in);
  }
};

/// Packs \p ts one below the other; what becomes f32 is packed as panels where \p layout is tiles. \throws model_error naming file, tensor
/// and shape if one is not a matrix of floats or `in` differs
[[nodiscard]] std::shared_ptr<const cpu::weight::impl> pack_weight(std::span<const tensor_view* const> ts, weight_format format,
                                                                   weight_layout layout);

}  // namespace vlbatch::inline v0
