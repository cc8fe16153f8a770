// SPDX-License-Identifier: Apache-2.0
// Definitions of block_tables.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/kv/block_tables.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE block_tables::block_tables() = default;
VLBATCH_INLINE block_tables::block_tables(const block_tables&) = default;
VLBATCH_INLINE block_tables::block_tables(block_tables&&) noexcept = default;
VLBATCH_INLINE block_tables& block_tables::operator=(const block_tables&) = default;
VLBATCH_INLINE block_tables& block_tables::operator=(block_tables&&) noexcept = default;
VLBATCH_INLINE block_tables::~block_tables() = default;

VLBATCH_INLINE void block_tables::bind(const kv_binding& binding, std::int64_t blocks, std::int32_t block_size,
                                       const std::string& capacity) {
  const std::int64_t block_bytes = binding.shape.bytes_per_token() * block_size;
  if (blocks < 1) {
    throw invalid_argument("KV cache: capacity of " + capacity + " is less than one block of " + std::to_string(block_size) +
                           " tokens = " + std::to_string(block_bytes) + " bytes");
  }
  blocks = std::min<std::int64_t>(blocks, 1 << 30);
  shape_ = binding.shape;
  block_size_ = block_size;
  total_ = static_cast<std::int32_t>(blocks);
  storage_ = binding.allocate(blocks * block_bytes);
  free_.resize(static_cast<std::size_t>(total_));
  for (std::int32_t b = 0; b < total_; ++b) free_[static_cast<std::size_t>(b)] = total_ - 1 - b;
}

VLBATCH_INLINE kv_budget block_tables::budget() const noexcept {
  return {.free_blocks = static_cast<std::int32_t>(free_.size()), .total_blocks = total_, .block_size = block_size_};
}

VLBATCH_INLINE kv_usage block_tables::usage() const noexcept {
  return {.blocks_used = total_ - static_cast<std::int32_t>(free_.size()),
          .peak_blocks_used = peak_,
          .tokens_stored = tokens_,
          .sequences = static_cast<std::int32_t>(tables_.size())};
}

VLBATCH_INLINE std::int32_t block_tables::blocks_of(seq_id id) const noexcept {
  const auto it = tables_.find(id);
  return it == tables_.end() ? 0 : static_cast<std::int32_t>(it->second.blocks.size());
}

VLBATCH_INLINE std::span<const std::int32_t> block_tables::table_of(seq_id id) const noexcept {
  const auto it = tables_.find(id);
  return it == tables_.end() ? std::span<const std::int32_t>{} : std::span<const std::int32_t>(it->second.blocks);
}

VLBATCH_INLINE bool block_tables::reserve(seq_id id, std::int32_t tokens) {
  const auto held = static_cast<std::size_t>(blocks_of(id));
  const auto wanted = static_cast<std::size_t>(ceil_div(std::max(tokens, 0), block_size_));
  if (wanted > held && wanted - held > free_.size()) return false;
  if (wanted == 0) return true;  // who holds no block is nobody's sequence
  table& t = tables_.try_emplace(id).first->second;
  if (t.blocks.capacity() == 0 && !spare_.empty()) {  // a table that an ended sequence left behind
    t.blocks = std::move(spare_.back());
    spare_.pop_back();
  }
  for (std::size_t i = held; i < wanted; ++i) {
    t.blocks.push_back(free_.back());
    free_.pop_back();
  }
  tokens_ += std::max(tokens - t.tokens, 0);
  t.tokens = std::max(t.tokens, tokens);
  peak_ = std::max(peak_, total_ - static_cast<std::int32_t>(free_.size()));
  return true;
}

VLBATCH_INLINE void block_tables::release(seq_id id) noexcept {
  const auto it = tables_.find(id);
  if (it == tables_.end()) return;
  for (auto b = it->second.blocks.rbegin(); b != it->second.blocks.rend(); ++b) free_.push_back(*b);  // within capacity: never allocates
  tokens_ -= it->second.tokens;
  it->second.blocks.clear();
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(it->second.blocks));
  tables_.erase(it);
}

VLBATCH_INLINE paged_kv_view block_tables::view(std::span<const seq_id> ids) {
  if (spare_.capacity() < ids.size()) spare_.reserve(2 * ids.size());
  std::size_t widest = 1;
  rows_.clear();
  for (const seq_id id : ids) {
    rows_.push_back(table_of(id));
    widest = std::max(widest, rows_.back().size());
  }
  matrix_.assign(ids.size() * widest, -1);
  for (std::size_t s = 0; s < rows_.size(); ++s)
    std::copy(rows_[s].begin(), rows_[s].end(), matrix_.begin() + static_cast<std::ptrdiff_t>(s * widest));
  return {.data = storage_.get(),
          .block_table = matrix_.data(),
          .num_sequences = static_cast<std::int32_t>(ids.size()),
          .max_blocks = static_cast<std::int32_t>(widest),
          .block_size = block_size_,
          .shape = shape_};
}

}  // namespace vlbatch::inline v0
