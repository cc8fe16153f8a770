// SPDX-License-Identifier: Apache-2.0
/// \file
/// Block tables over one pool of equal blocks: what the paged and the contiguous cache share.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "vlbatch/core/error.hpp"
#include "vlbatch/kv/kv_allocator.hpp"

namespace vlbatch::inline v0 {

/// Pool of blocks and the table of each sequence. Blocks go out lowest first at the start and last-freed first later, so that memory is
/// reused while it is warm. Block tables as in vLLM's PagedAttention (Kwon et al., SOSP 2023).
class block_tables {
 public:
  /// No storage yet.
  block_tables();
  /// Copies share the storage: meant for settings that are copied before `bind`.
  block_tables(const block_tables&);
  /// Moves the storage.
  block_tables(block_tables&&) noexcept;
  /// As the copy constructor.
  block_tables& operator=(const block_tables&);
  /// Moves the storage.
  block_tables& operator=(block_tables&&) noexcept;
  ~block_tables();
  /// Takes the storage of \p blocks blocks of \p block_size tokens. \throws invalid_argument with both numbers if there is not one block
  void bind(const kv_binding& binding, std::int64_t blocks, std::int32_t block_size, const std::string& capacity);

  /// Free and total blocks.
  [[nodiscard]] kv_budget budget() const noexcept;
  /// Blocks and tokens in use.
  [[nodiscard]] kv_usage usage() const noexcept;
  /// Blocks that \p id holds.
  [[nodiscard]] std::int32_t blocks_of(seq_id id) const noexcept;
  /// Block ids of \p id, in order; empty if it holds none.
  [[nodiscard]] std::span<const std::int32_t> table_of(seq_id id) const noexcept;

  /// Room for the first \p tokens tokens of \p id, all or nothing.
  [[nodiscard]] bool reserve(seq_id id, std::int32_t tokens);
  /// Gives everything of \p id back.
  void release(seq_id id) noexcept;
  /// Block tables of \p ids as one matrix.
  [[nodiscard]] paged_kv_view view(std::span<const seq_id> ids);

 private:
  struct table {
    std::vector<std::int32_t> blocks;
    std::int32_t tokens = 0;
  };
  kv_shape shape_;
  std::int32_t block_size_ = 1;
  std::int32_t total_ = 0;
  std::shared_ptr<std::byte> storage_;
  std::vector<std::int32_t> free_;
  std::unordered_map<seq_id, table> tables_;
  std::vector<std::vector<std::int32_t>> spare_;
  std::vector<std::span<const std::int32_t>> rows_;  // scratch of view()
  std::vector<std::int32_t> matrix_;                 // scratch of view()
  std::int64_t tokens_ = 0;
  std::int32_t peak_ = 0;
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/kv/block_tables-inl.hpp"
#endif
