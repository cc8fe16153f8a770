// SPDX-License-Identifier: Apache-2.0
/// \file
/// Paged KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/kv/block_tables.hpp"

namespace vlbatch::inline v0 {

/// Blocks of a fixed number of tokens, handed out one by one as a sequence grows (vLLM's PagedAttention). Little is lost to fragmentation:
/// less than a block a sequence.
class paged_kv {
 public:
  /// Capacity, in bytes or in blocks.
  struct settings {
    std::int64_t bytes = 256_MiB;  ///< capacity; ignored if `blocks` is set
    std::int32_t blocks = 0;       ///< capacity in blocks; 0: by `bytes`
    std::int32_t block_size = 32;  ///< tokens of a block, 16 to 256
    friend bool operator==(const settings&, const settings&) = default;
  };
  /// What a kernel gets.
  using view_type = paged_kv_view;

  /// Cache with the default capacity.
  paged_kv() = default;
  /// \throws invalid_argument block size or capacity out of range
  explicit paged_kv(const settings& s);

  /// "paged"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "paged"; }
  /// As documented at kv_allocator.
  void bind(const kv_binding& b);
  /// As documented at kv_allocator.
  [[nodiscard]] kv_budget budget() const noexcept { return tables_.budget(); }
  /// As documented at kv_allocator.
  [[nodiscard]] kv_usage usage() const noexcept { return tables_.usage(); }
  /// As documented at kv_allocator.
  [[nodiscard]] std::int32_t blocks_of(seq_id id) const noexcept { return tables_.blocks_of(id); }
  /// As documented at kv_allocator.
  [[nodiscard]] bool reserve(seq_id id, std::int32_t tokens) { return tables_.reserve(id, tokens); }
  /// As documented at kv_allocator.
  void release(seq_id id) noexcept { tables_.release(id); }
  /// As documented at kv_allocator.
  [[nodiscard]] view_type view(std::span<const seq_id> ids) { return tables_.view(ids); }

 private:
  settings settings_;
  block_tables tables_;
};
static_assert(kv_allocator<paged_kv>);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/kv/paged-inl.hpp"
#endif
