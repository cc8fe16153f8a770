// SPDX-License-Identifier: Apache-2.0
// The table of operations of one level. `cpu` checks shapes and calls through it; nothing below it is virtual.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/stream.hpp"
#include "cpu/weight.hpp"
#include "vlbatch/backend/cpu.hpp"

namespace vlbatch::inline v0 {

/// Operations of one level, with the meaning that the concept `backend` documents. Shapes are already checked.
struct cpu_kernels {
  using context = cpu::stream::impl;
  using input = matrix_view<const float>;
  using output = matrix_view<float>;
  using indices = std::span<const std::int32_t>;

  cpu_level level = cpu_level::reference;
  void (*linear)(context&, input, const cpu::weight::impl&, output, const linear_epilogue&) = nullptr;
  void (*layer_norm)(context&, input, const float* gamma, const float* beta, float eps, output) = nullptr;
  void (*rms_norm)(context&, input, const float* gamma, float eps, output) = nullptr;
  void (*silu_mul)(context&, input, output) = nullptr;
  void (*embed)(context&, indices, const cpu::weight::impl&, output) = nullptr;
  void (*inject)(context&, std::span<const injected_rows>, output) = nullptr;
  void (*rope_store)(context&, output, indices, float theta, const attention_shape&, const row_map&, const paged_kv_view&,
                     std::int32_t layer) = nullptr;
  void (*causal_attention)(context&, input, const attention_shape&, const row_map&, const paged_kv_view&, std::int32_t layer,
                           output) = nullptr;
  void (*full_attention)(context&, input, std::int32_t group, const attention_shape&, output) = nullptr;
  void (*patches)(context&, std::span<const std::uint8_t* const>, const pixel_tiles&, std::int32_t patch, output) = nullptr;
  void (*add_rows)(context&, input, output) = nullptr;
  void (*pixel_shuffle)(context&, input, std::int32_t side, std::int32_t factor, output) = nullptr;
  void (*gather_rows)(context&, input, indices, output) = nullptr;
};

/// Keys of a chunk: attention walks them in chunks of this many, aligned at absolute positions.
inline constexpr std::int32_t attention_chunk = 64;

}  // namespace vlbatch::inline v0
