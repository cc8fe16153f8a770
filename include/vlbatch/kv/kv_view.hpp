// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a kernel sees of a KV cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// Shape of the keys and values that a model keeps for each token.
struct kv_shape {
  std::int32_t num_layers = 0;    ///< decoder layers
  std::int32_t num_kv_heads = 0;  ///< KV heads of a layer
  std::int32_t head_dim = 0;      ///< elements of a head
  dtype type = dtype::f32;        ///< number type of an entry

  /// Bytes that one token occupies over all layers, keys and values together.
  [[nodiscard]] constexpr std::int64_t bytes_per_token() const noexcept {
    return 2LL * num_layers * num_kv_heads * head_dim * size_of(type);
  }
  friend constexpr bool operator==(const kv_shape&, const kv_shape&) = default;
};

/// Paged KV cache of the sequences of one batch, by value, as kernels take it. A contiguous cache is one with a single block a sequence.
///
/// Layout, outermost first: `[block][layer][K=0|V=1][kv_head][token in block][head_dim]`, so that a block is one contiguous piece of memory
/// (one copy swaps it) and the keys of one head are dense rows. Offsets are 64-bit.
struct paged_kv_view {
  std::byte* data = nullptr;                  ///< storage of all blocks; host or device memory
  const std::int32_t* block_table = nullptr;  ///< `[num_sequences, max_blocks]` block ids in the order of the batch; host memory
  std::int32_t num_sequences = 0;             ///< rows of the block table
  std::int32_t max_blocks = 0;                ///< columns of the block table
  std::int32_t block_size = 0;                ///< tokens of a block
  kv_shape shape;                             ///< what a token occupies

  /// Index of the first element of (\p block, \p layer, K or V, \p head), counted in elements of `shape.type`.
  [[nodiscard]] constexpr std::int64_t offset(std::int32_t block, std::int32_t layer, std::int32_t k_or_v,
                                              std::int32_t head) const noexcept {
    const std::int64_t outer = (static_cast<std::int64_t>(block) * shape.num_layers + layer) * 2 + k_or_v;
    return (outer * shape.num_kv_heads + head) * block_size * shape.head_dim;
  }
  /// Block that holds token \p position of sequence \p s of the batch.
  [[nodiscard]] constexpr std::int32_t block_of(std::int32_t s, std::int32_t position) const noexcept {
    return block_table[static_cast<std::int64_t>(s) * max_blocks + position / block_size];
  }
};

}  // namespace vlbatch::inline v0
