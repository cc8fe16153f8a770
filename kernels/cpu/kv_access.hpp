// SPDX-License-Identifier: Apache-2.0
// Addresses in a KV cache of f32.
#pragma once

#include <cstdint>

#include "vlbatch/kv/kv_view.hpp"

namespace vlbatch::inline v0 {

/// Key (\p k_or_v = 0) or value (1) of token \p position of sequence \p s: `[head_dim]`.
[[nodiscard]] inline float* kv_row(const paged_kv_view& kv, std::int32_t s, std::int32_t position, std::int32_t layer, std::int32_t k_or_v,
                                   std::int32_t head) noexcept {
  auto* elements = static_cast<float*>(static_cast<void*>(kv.data));
  return elements + kv.offset(kv.block_of(s, position), layer, k_or_v, head) +
         static_cast<std::int64_t>(position % kv.block_size) * kv.shape.head_dim;
}

}  // namespace vlbatch::inline v0
