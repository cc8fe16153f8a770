// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cpu/kv_access.hpp"
#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {
namespace {

// y = softmax(scale q K^T) V over \p count keys, whose rows key(j) and value(j) name.
template <class Key, class Value>
void attend(const float* q, std::int32_t count, const attention_shape& shape, const Key& key, const Value& value, float* y) {
  std::vector<float> score(static_cast<std::size_t>(count));
  float highest = -std::numeric_limits<float>::infinity();
  for (std::int32_t j = 0; j < count; ++j) {
    float sum = 0.0F;
    for (std::int32_t d = 0; d < shape.head_dim; ++d) sum += q[d] * key(j)[d];
    score[static_cast<std::size_t>(j)] = sum * shape.scale;
    highest = std::max(highest, sum * shape.scale);
  }
  float total = 0.0F;
  for (auto& p : score) {
    p = std::exp(p - highest);
    total += p;
  }
  for (std::int32_t d = 0; d < shape.head_dim; ++d) {
    float sum = 0.0F;
    for (std::int32_t j = 0; j < count; ++j) sum += score[static_cast<std::size_t>(j)] * value(j)[d];
    y[d] = sum / total;
  }
}

}  // namespace

void causal_attention(context& /*s*/, input qkv, const attention_shape& shape, const row_map& map, const paged_kv_view& kv,
                      std::int32_t layer, output y) {
  for (std::int32_t r = 0; r < y.rows; ++r) std::fill_n(y.row(r), y.cols, 0.0F);
  const std::int32_t heads_a_group = shape.num_heads / shape.num_kv_heads;
  for (std::int32_t q = 0; q < map.num_sequences; ++q) {
    const auto sequence = static_cast<std::size_t>(q);
    for (std::int32_t i = 0; i < map.num_tokens[sequence]; ++i) {
      const std::int32_t r = map.row_begin[sequence] + i;
      for (std::int32_t h = 0; h < shape.num_heads; ++h) {
        const auto key = [&](std::int32_t j) { return kv_row(kv, q, j, layer, 0, h / heads_a_group); };
        const auto value = [&](std::int32_t j) { return kv_row(kv, q, j, layer, 1, h / heads_a_group); };
        attend(qkv.row(r) + h * shape.head_dim, map.context[sequence] + i + 1, shape, key, value, y.row(r) + h * shape.head_dim);
      }
    }
  }
}

void full_attention(context& /*s*/, input qkv, std::int32_t group, const attention_shape& shape, output y) {
  const std::int32_t width = shape.num_heads * shape.head_dim;
  for (std::int32_t r = 0; r < y.rows; ++r) {
    const std::int32_t first = r / group * group;
    for (std::int32_t h = 0; h < shape.num_heads; ++h) {
      const auto key = [&](std::int32_t j) { return qkv.row(first + j) + width + h * shape.head_dim; };
      const auto value = [&](std::int32_t j) { return qkv.row(first + j) + 2 * width + h * shape.head_dim; };
      attend(qkv.row(r) + h * shape.head_dim, group, shape, key, value, y.row(r) + h * shape.head_dim);
    }
  }
}

}  // namespace vlbatch::inline v0::reference
