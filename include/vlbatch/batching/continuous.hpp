// SPDX-License-Identifier: Apache-2.0
/// \file
/// Continuous batching.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "vlbatch/batching/batching_policy.hpp"

namespace vlbatch::inline v0 {

/// Iteration-level scheduling (Orca): a request joins as soon as there is room and leaves as soon as it ends. Decodes come first, what is
/// left of the token budget goes to prefill chunks (Sarathi-Serve); when blocks run out the youngest running sequence is evicted and
/// recomputed later (vLLM).
class continuous {
 public:
  /// Up to `max_num_seqs` at the same time, `max_num_batched_tokens` rows a step.
  explicit continuous(const vlbatch::limits& bounds = {}) : limits_(bounds) {}
  /// "continuous"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "continuous"; }
  /// As given.
  [[nodiscard]] vlbatch::limits limits() const noexcept { return limits_; }

  /// Decodes, then prefills under way, then admissions, images ahead of them.
  void plan(const scheduler_state& state, step_plan& plan) {
    plan_builder b(state, plan, scratch_);
    for (const bool prefill : {false, true}) {
      for (const seq_slot slot : state.running) {
        const sequence_view& seq = b[slot];
        if (seq.in_prefill() != prefill || b.ledger().evicts(seq)) continue;
        while (b.lacks_blocks(seq) && b.ledger().free_rows() > 0 && evict_youngest(state, b)) continue;
        if (prefill) b.try_encode_all(seq);  // after that it cannot be evicted in this plan
        b.try_run(seq);
      }
    }
    if (!plan.evict.empty()) return;
    const bool encodes_ahead = !state.lanes.empty() && !state.lanes.front().in_step;
    bool open = true;  // until somebody has to wait for room: nobody overtakes
    for (std::size_t i = 0; i < state.waiting.size() && i < static_cast<std::size_t>(state.lim.max_num_seqs); ++i) {
      const sequence_view& seq = b[state.waiting[i]];
      open = open && b.ledger().free_sequences() > 0 && b.ledger().free_rows() > 0 && b.fits_whole(seq);
      if (!open && !encodes_ahead) break;
      b.try_encode_all(seq);
      if (!b.holds_images(seq)) break;  // what others encoded meanwhile could keep it waiting for ever
      if (open) b.try_run(seq);
    }
  }

 private:
  // The last of those that run now and are not in the plan yet, at worst the one that asked for room.
  static bool evict_youngest(const scheduler_state& state, plan_builder& b) {
    return std::any_of(state.running.rbegin(), state.running.rend(), [&](seq_slot s) { return b.try_evict(b[s]); });
  }

  vlbatch::limits limits_;
  plan_ledger scratch_;
};
static_assert(batching_policy<continuous>);

}  // namespace vlbatch::inline v0
