// SPDX-License-Identifier: Apache-2.0
/// \file
/// Contiguous KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/kv/block_tables.hpp"

namespace vlbatch::inline v0 {

/// One piece of memory for each sequence, as long as the longest sequence may become: a paged cache with one block a sequence. Simple, and
/// wasteful by nature: what a short sequence does not use nobody else can.
class contiguous_kv {
 public:
  /// Capacity, in bytes or in sequences.
  struct settings {
    std::int64_t bytes = 256_MiB;          ///< capacity; ignored if `sequences` is set
    std::int32_t sequences = 0;            ///< capacity in sequences; 0: by `bytes`
    std::int32_t tokens_per_sequence = 0;  ///< longest sequence; 0: what the model can take
    friend bool operator==(const settings&, const settings&) = default;
  };
  /// What a kernel gets.
  using view_type = paged_kv_view;

  /// Cache with the default capacity.
  contiguous_kv() = default;
  /// \throws invalid_argument negative numbers
  explicit contiguous_kv(const settings& s);

  /// "contiguous"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "contiguous"; }
  /// As documented at kv_allocator.
  void bind(const kv_binding& b);
  /// As documented at kv_allocator.
  [[nodiscard]] kv_budget budget() const noexcept { return tables_.budget(); }
  /// As documented at kv_allocator.
  [[nodiscard]] kv_usage usage() const noexcept { return tables_.usage(); }
  /// As documented at kv_allocator.
  [[nodiscard]] std::int32_t blocks_of(seq_id id) const noexcept { return tables_.blocks_of(id); }
  /// As documented at kv_allocator. A sequence longer than its piece never fits.
  [[nodiscard]] bool reserve(seq_id id, std::int32_t tokens);
  /// As documented at kv_allocator.
  void release(seq_id id) noexcept { tables_.release(id); }
  /// As documented at kv_allocator.
  [[nodiscard]] view_type view(std::span<const seq_id> ids) { return tables_.view(ids); }
  /// The most tokens that one sequence can have here.
  [[nodiscard]] std::int32_t max_tokens_per_sequence() const noexcept { return tables_.budget().block_size; }

 private:
  settings settings_;
  block_tables tables_;
};
static_assert(kv_allocator<contiguous_kv>);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/kv/contiguous-inl.hpp"
#endif
