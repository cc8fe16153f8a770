// SPDX-License-Identifier: Apache-2.0
// Definitions of sequence_table.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/sequence_table.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE const sequence_view* sequence_table::find(seq_id id) const noexcept {
  const auto it = slots_.find(id);
  return it == slots_.end() ? nullptr : &views_[static_cast<std::size_t>(it->second)];
}

VLBATCH_INLINE sequence_view& sequence_table::add(seq_id id) {
  seq_slot slot = 0;
  if (free_.empty()) {
    slot = static_cast<seq_slot>(views_.size());
    views_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
    views_[static_cast<std::size_t>(slot)] = {};
  }
  [[maybe_unused]] const bool fresh = slots_.emplace(id, slot).second;
  assert(fresh);
  sequence_view& v = views_[static_cast<std::size_t>(slot)];
  v.id = id;
  v.slot = slot;
  return v;
}

VLBATCH_INLINE void sequence_table::remove(seq_slot slot) {
  slots_.erase(views_[static_cast<std::size_t>(slot)].id);
  free_.push_back(slot);
}

}  // namespace vlbatch::inline v0
