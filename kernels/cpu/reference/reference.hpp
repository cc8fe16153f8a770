// SPDX-License-Identifier: Apache-2.0
// Plain loops that define every operation. One thread, no tricks: they are read, and other kernels are compared with them.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/kernels.hpp"

namespace vlbatch::inline v0::reference {

using context = cpu_kernels::context;
using input = cpu_kernels::input;
using output = cpu_kernels::output;
using indices = cpu_kernels::indices;

// linear.cpp
void linear(context&, input x, const cpu::weight::impl& w, output y, const linear_epilogue& e);
// normalise.cpp
void layer_norm(context&, input x, const float* gamma, const float* beta, float eps, output y);
void rms_norm(context&, input x, const float* gamma, float eps, output y);
// activation.cpp
void silu_mul(context&, input gate_up, output y);
// rope.cpp
void rope_store(context&, output qkv, indices positions, float theta, const attention_shape& shape, const row_map& map,
                const paged_kv_view& kv, std::int32_t layer);
// attention.cpp
void causal_attention(context&, input qkv, const attention_shape& shape, const row_map& map, const paged_kv_view& kv, std::int32_t layer,
                      output y);
void full_attention(context&, input qkv, std::int32_t group, const attention_shape& shape, output y);
// rows.cpp
void embed(context&, indices ids, const cpu::weight::impl& table, output y);
void inject(context&, std::span<const injected_rows> images, output y);
void add_rows(context&, input table, output y);
void gather_rows(context&, input x, indices rows, output y);
// vision.cpp
void patches(context&, std::span<const std::uint8_t* const> tiles, const pixel_tiles& like, std::int32_t patch, output y);
void pixel_shuffle(context&, input x, std::int32_t side, std::int32_t factor, output y);

/// The table of the level `reference`.
[[nodiscard]] const cpu_kernels& kernels() noexcept;

}  // namespace vlbatch::inline v0::reference
