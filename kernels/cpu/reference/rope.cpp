// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "cpu/kv_access.hpp"
#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {
namespace {

void rotate(float* head, const float* cosines, std::int32_t half) {
  const float* sines = cosines + half;
  for (std::int32_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cosines[i] - b * sines[i];
    head[i + half] = b * cosines[i] + a * sines[i];
  }
}

}  // namespace

void rope_store(context& s, output qkv, indices positions, float theta, const attention_shape& shape, const row_map& map,
                const paged_kv_view& kv, std::int32_t layer) {
  const std::int32_t dim = shape.head_dim;
  s.rope.prepare(theta, dim, positions);
  for (std::int32_t q = 0; q < map.num_sequences; ++q) {
    const auto sequence = static_cast<std::size_t>(q);
    for (std::int32_t i = 0; i < map.num_tokens[sequence]; ++i) {
      const std::int32_t r = map.row_begin[sequence] + i;
      const float* cosines = s.rope.row(positions[static_cast<std::size_t>(r)]);
      float* row = qkv.row(r);
      for (std::int32_t h = 0; h < shape.num_heads + shape.num_kv_heads; ++h) rotate(row + h * dim, cosines, dim / 2);
      const float* keys = row + shape.num_heads * dim;
      const float* values = keys + shape.num_kv_heads * dim;
      for (std::int32_t g = 0; g < shape.num_kv_heads; ++g) {
        std::copy_n(keys + g * dim, dim, kv_row(kv, q, map.context[sequence] + i, layer, 0, g));
        std::copy_n(values + g * dim, dim, kv_row(kv, q, map.context[sequence] + i, layer, 1, g));
      }
    }
  }
}

}  // namespace vlbatch::inline v0::reference
