// SPDX-License-Identifier: Apache-2.0
/// \file
/// Static batching, ragged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "vlbatch/batching/batching_policy.hpp"

namespace vlbatch::inline v0 {

/// The first requests of the queue that can start together and run to their ends: their images are ready once this plan is carried out.
/// While images are still being encoded nobody starts, so that the batch is as full as it can be. Shared by the two static strategies.
inline void select_static_batch(const scheduler_state& state, plan_builder& b, std::vector<seq_slot>& batch) {
  batch.clear();
  const auto most = static_cast<std::size_t>(std::min(state.lim.max_num_seqs, state.lim.max_num_batched_tokens));
  bool pending = false;
  for (std::size_t i = 0; i < std::min(state.waiting.size(), most); ++i) {
    const sequence_view& seq = b[state.waiting[i]];
    const bool under_way = b.try_encode_all(seq);
    if (b.ready(seq)) {
      if (!b.try_promise(seq)) break;
      batch.push_back(seq.slot);
      continue;
    }
    const auto in_flight = [](const image_view& v) { return v.tiles_ready < v.tiles_started; };
    pending = pending || std::any_of(seq.images.begin(), seq.images.end(), in_flight) ||
              b.ledger().free_encoder_tokens() < state.lim.max_encoder_tokens;
    if (!under_way) break;  // no budget left in this step, or no room in the encoder cache: then those before it begin without it
  }
  if (pending) batch.clear();
}

/// Admits a batch only when nothing runs. Ragged: no pads; finished rows leave and are not replaced, so the batch shrinks until its longest
/// answer ends.
class static_batching {
 public:
  /// Batches of up to `max_num_seqs`.
  explicit static_batching(const vlbatch::limits& bounds = {}) : limits_(bounds) {}
  /// "static"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "static"; }
  /// As given.
  [[nodiscard]] vlbatch::limits limits() const noexcept { return limits_; }

  /// Everything that runs goes on; otherwise a new batch begins, the token budget shared evenly so that all of it is admitted at once.
  void plan(const scheduler_state& state, step_plan& plan) {
    plan_builder b(state, plan, scratch_);
    if (state.running.empty()) {
      select_static_batch(state, b, batch_);
    } else {
      batch_.assign(state.running.begin(), state.running.end());
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      const auto left = static_cast<std::int32_t>(batch_.size() - i);
      const std::int32_t share = std::max(b.ledger().free_rows() / left, 1);
      if (b.try_run(b[batch_[i]], share) == 0) b.try_run(b[batch_[i]]);  // an atomic image may need more than its share
    }
  }

 private:
  vlbatch::limits limits_;
  plan_ledger scratch_;
  std::vector<seq_slot> batch_;
};
static_assert(batching_policy<static_batching>);

}  // namespace vlbatch::inline v0
