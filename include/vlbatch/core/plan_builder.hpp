// SPDX-License-Identifier: Apache-2.0
/// \file
/// What policies write plans with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "vlbatch/core/plan_ledger.hpp"

namespace vlbatch::inline v0 {

/// Trial ledger over a state and a plan: every `try_` enters its item if the whole plan stays legal, and says whether it did, so that a
/// policy does no accounting. Cheap: one a plan. The scratch ledger is the policy's, so that planning allocates nothing in steady state.
class plan_builder {
 public:
  /// Starts an empty plan. All three must outlive the builder.
  plan_builder(const scheduler_state& state, step_plan& plan, plan_ledger& scratch);

  /// Sequence in \p slot.
  [[nodiscard]] const sequence_view& operator[](seq_slot slot) const noexcept { return state_.table[slot]; }
  /// The account so far.
  [[nodiscard]] const plan_ledger& ledger() const noexcept { return ledger_; }

  /// Runs up to \p wanted tokens of \p seq: as many as are known, ready, and fit. \return how many were entered, 0 if none
  std::int32_t try_run(const sequence_view& seq, std::int32_t wanted = std::numeric_limits<std::int32_t>::max());
  /// Runs exactly \p num_tokens tokens of \p seq and \p pad_tokens pads, or nothing.
  bool try_run_padded(const sequence_view& seq, std::int32_t num_tokens, std::int32_t pad_tokens);
  /// True if \p seq can be admitted and every running and admitted sequence can still reach its longest answer without an eviction. Counts
  /// \p seq as admitted if so (TensorRT-LLM calls this guaranteed no evict).
  bool try_promise(const sequence_view& seq);

  /// Encodes up to \p tiles further tiles of an image. \return how many were entered
  std::int32_t try_encode(const sequence_view& seq, std::int32_t image, std::int32_t tiles = std::numeric_limits<std::int32_t>::max(),
                          std::int32_t lane = 0);
  /// Encodes what \p seq still needs, image by image, as far as the budget goes. \return true if after this plan every tile is ready or
  /// under way
  bool try_encode_all(const sequence_view& seq, std::int32_t lane = 0);
  /// True if the next token of \p seq, or the atomic image that begins with it, needs more blocks than are left. False once it is evicted.
  [[nodiscard]] bool lacks_blocks(const sequence_view& seq) const noexcept;
  /// True if blocks for all known tokens of \p seq and its next one are left: it will not run out in the middle of its prefill.
  [[nodiscard]] bool fits_whole(const sequence_view& seq) const noexcept;
  /// True if every embedding of \p seq is there, counting tiles that this plan encodes in the step.
  [[nodiscard]] bool ready(const sequence_view& seq) const noexcept;
  /// True if every image that \p seq still needs has memory, counting what this plan encodes. A policy that admits only then never has two
  /// running sequences wait for each other's memory: each may hold a picture that it cannot consume before another one of its own.
  [[nodiscard]] bool holds_images(const sequence_view& seq) const noexcept { return ledger_.holds_images(seq); }

  /// Takes the KV from a running sequence.
  bool try_evict(const sequence_view& seq, eviction how = eviction::recompute);
  /// Brings a swapped sequence back.
  bool try_resume(const sequence_view& seq);
  /// Ends a sequence without an answer.
  bool try_drop(const sequence_view& seq, std::string reason);
  /// Adds rows computed for nobody.
  bool try_empty_rows(std::int32_t rows);

 private:
  const scheduler_state& state_;
  step_plan& plan_;
  plan_ledger& ledger_;
  std::int32_t promised_ = 0;  // blocks that running and admitted sequences may still come to need
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/plan_builder-inl.hpp"
#endif
