// SPDX-License-Identifier: Apache-2.0
/// \file
/// One request at a time.
#pragma once

#include <string_view>

#include "vlbatch/batching/batching_policy.hpp"

namespace vlbatch::inline v0 {

/// Encodes, prefills and decodes one request to its end before the next one begins: the list of calls one by one, the baseline of every
/// comparison.
class sequential {
 public:
  /// `max_num_seqs` is 1 whatever it is set to.
  explicit sequential(const vlbatch::limits& bounds = {}) : limits_(bounds) { limits_.max_num_seqs = 1; }
  /// "sequential"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "sequential"; }
  /// One sequence.
  [[nodiscard]] vlbatch::limits limits() const noexcept { return limits_; }

  /// The running sequence goes on, or the head of the queue is encoded and, once every embedding is there, begins.
  void plan(const scheduler_state& state, step_plan& plan) {
    plan_builder b(state, plan, scratch_);
    for (const seq_slot slot : state.running) b.try_run(b[slot]);
    if (!state.running.empty() || state.waiting.empty()) return;
    const sequence_view& head = b[state.waiting.front()];
    b.try_encode_all(head);
    if (b.ready(head)) b.try_run(head);
  }

 private:
  vlbatch::limits limits_;
  plan_ledger scratch_;
};
static_assert(batching_policy<sequential>);

}  // namespace vlbatch::inline v0
