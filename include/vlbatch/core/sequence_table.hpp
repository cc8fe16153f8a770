// SPDX-License-Identifier: Apache-2.0
/// \file
/// Live sequences by slot and by id.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "vlbatch/core/scheduler_state.hpp"

namespace vlbatch::inline v0 {

/// Views of all live sequences. Slots are dense, reused after a sequence ended, and a view never moves while its sequence lives.
/// Policies see it const; the engine alone changes it. Not thread-safe.
class sequence_table {
 public:
  /// The sequence in \p slot, which must be live.
  [[nodiscard]] const sequence_view& operator[](seq_slot slot) const noexcept { return views_[static_cast<std::size_t>(slot)]; }
  /// The sequence \p id, or nullptr if it is not live.
  [[nodiscard]] const sequence_view* find(seq_id id) const noexcept;
  /// Live sequences.
  [[nodiscard]] std::int32_t size() const noexcept { return static_cast<std::int32_t>(slots_.size()); }
  /// Highest slot ever used + 1: the length of a policy's per-slot array.
  [[nodiscard]] std::int32_t num_slots() const noexcept { return static_cast<std::int32_t>(views_.size()); }

  /// Adds a sequence and returns its view, slot filled in. For the engine and for tests of policies.
  sequence_view& add(seq_id id);
  /// Removes the sequence in \p slot.
  void remove(seq_slot slot);
  /// Mutable access for the engine and for tests.
  [[nodiscard]] sequence_view& edit(seq_slot slot) noexcept { return views_[static_cast<std::size_t>(slot)]; }

 private:
  std::deque<sequence_view> views_;
  std::unordered_map<seq_id, seq_slot> slots_;
  std::vector<seq_slot> free_;
};

/// Order of the waiting queue: earlier arrivals first, ties by id.
[[nodiscard]] constexpr bool arrives_before(const sequence_view& a, const sequence_view& b) noexcept {
  return a.arrival != b.arrival ? a.arrival < b.arrival : a.id < b.id;
}

/// Whose claim on encoder cache bytes is stronger: a running sequence's (it holds KV that others wait for), then that of the earlier
/// arrival.
[[nodiscard]] constexpr bool outranks(const sequence_view& a, const sequence_view& b) noexcept {
  if ((a.where == phase::running) != (b.where == phase::running)) return a.where == phase::running;
  return arrives_before(a, b);
}

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/sequence_table-inl.hpp"
#endif
