// SPDX-License-Identifier: Apache-2.0
/// \file
/// Static batching in lockstep, with pads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "vlbatch/batching/static_batching.hpp"

namespace vlbatch::inline v0 {

/// The static batching of frameworks that work on rectangles: every row is computed to the longest prompt and the longest answer of its
/// batch. Prompts are padded on the left, finished rows are computed on as empty rows; both are counted. (TensorRT-LLM's
/// `BatchingType::kSTATIC`, transformers' `generate` on a list of prompts.)
class padded_static {
 public:
  /// Batches of up to `max_num_seqs`.
  explicit padded_static(const vlbatch::limits& bounds = {}) : limits_(bounds) {}
  /// "padded_static"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "padded_static"; }
  /// As given.
  [[nodiscard]] vlbatch::limits limits() const noexcept { return limits_; }

  /// Every row of the batch takes equally many rows of the step, pads before tokens, so that all prompts end in the same step.
  void plan(const scheduler_state& state, step_plan& plan) {
    plan_builder b(state, plan, scratch_);
    const bool begins = state.running.empty();
    if (begins) {
      select_static_batch(state, b, batch_);
    } else {
      batch_.assign(state.running.begin(), state.running.end());
    }
    if (batch_.empty()) return;
    const auto live = static_cast<std::int32_t>(batch_.size());
    const std::int32_t width = begins ? live : std::max(width_, live);
    std::int32_t longest = 0;
    for (const seq_slot s : batch_) longest = std::max(longest, b[s].remaining());
    const std::int32_t chunk = std::min(longest, std::max(state.lim.max_num_batched_tokens / width, 1));
    std::int32_t idle = width - live;
    for (const seq_slot s : batch_) {
      const std::int32_t tokens = std::max(b[s].remaining() - (longest - chunk), begins ? 1 : 0);
      if (tokens < 1 || !b.try_run_padded(b[s], tokens, chunk - tokens)) ++idle;
    }
    for (const seq_slot s : batch_) {  // a share can be too small for an atomic image: then one row has the step for itself
      if (plan.run.empty()) b.try_run(b[s]);
    }
    b.try_empty_rows(idle * chunk);
  }
  /// A batch begins: remembers how wide it is.
  void on_step(const step_plan& committed, duration) {
    if (live_ == 0) live_ = width_ = static_cast<std::int32_t>(committed.run.size());
  }
  /// A row ended.
  void on_finish(const sequence_view& seq) { live_ -= seq.where == phase::running ? 1 : 0; }
  /// A row ended without an answer.
  void on_drop(const sequence_view& seq) { on_finish(seq); }

 private:
  vlbatch::limits limits_;
  plan_ledger scratch_;
  std::vector<seq_slot> batch_;
  std::int32_t width_ = 0;  // rows that the batch began with
  std::int32_t live_ = 0;   // rows of it that have not ended
};
static_assert(batching_policy<padded_static>);

}  // namespace vlbatch::inline v0
