// SPDX-License-Identifier: Apache-2.0
/// \file
/// What policies write plans with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "vlbatch/core/plan_ledger.hpp"

namespace vlbatch::inline v0 {

/// Trial ledger over a state and a plan: every `try_` enters its item if the whole plan stays legal, and says whether it did, so that a
/// policy does no accounting. Cheap: one a plan. The scratch ledger is the policy's, so that planning allocates nothing in steady state.
class plan_builder {
 public:
  /// Starts an empty plan. All three must outlive the builder.
  plan_builder(const scheduler_state& state, step_plan& plan, plan_ledger& scratch) : state_(state), plan_(plan), ledger_(scratch) {
    ledger_.begin(state);
    for (const seq_slot s : state.running) {
      const sequence_view& v = state.table[s];
      promised_ += std::max(state.kv.blocks_for(v.most_tokens()) - v.kv_blocks, 0);
    }
  }

  /// Sequence in \p slot.
  [[nodiscard]] const sequence_view& operator[](seq_slot slot) const noexcept { return state_.table[slot]; }
  /// The account so far.
  [[nodiscard]] const plan_ledger& ledger() const noexcept { return ledger_; }

  /// Runs up to \p wanted tokens of \p seq: as many as are known, ready, and fit. \return how many were entered, 0 if none
  std::int32_t try_run(const sequence_view& seq, std::int32_t wanted = std::numeric_limits<std::int32_t>::max()) {
    if (ledger_.names(seq)) return 0;
    const std::int32_t n = ledger_.runnable(seq, wanted);
    return n > 0 && try_run_padded(seq, n, 0) ? n : 0;
  }
  /// Runs exactly \p num_tokens tokens of \p seq and \p pad_tokens pads, or nothing.
  bool try_run_padded(const sequence_view& seq, std::int32_t num_tokens, std::int32_t pad_tokens) {
    if (ledger_.run(seq, num_tokens, pad_tokens)) return false;
    plan_.run.push_back({seq.id, num_tokens, pad_tokens});
    return true;
  }
  /// True if \p seq can be admitted and every running and admitted sequence can still reach its longest answer without an eviction. Counts
  /// \p seq as admitted if so (TensorRT-LLM calls this guaranteed no evict).
  bool try_promise(const sequence_view& seq) {
    const std::int32_t blocks = state_.kv.blocks_for(seq.most_tokens());
    if (promised_ + blocks > state_.kv.free_blocks + state_.kv.evictable_blocks) return false;
    promised_ += blocks;
    return true;
  }

  /// Encodes up to \p tiles further tiles of an image. \return how many were entered
  std::int32_t try_encode(const sequence_view& seq, std::int32_t image, std::int32_t tiles = std::numeric_limits<std::int32_t>::max(),
                          std::int32_t lane = 0) {
    const image_view& v = seq.images[static_cast<std::size_t>(image)];
    std::int32_t n = std::min(tiles, v.num_tiles - v.tiles_started);
    if (v.tokens_per_tile > 0) n = std::min(n, ledger_.free_encoder_tokens() / v.tokens_per_tile);
    if (v.state == image_state::consumed || n < 1 || ledger_.encode(seq, image, v.tiles_started, n, lane)) return 0;
    plan_.encode.push_back({seq.id, image, v.tiles_started, n, lane});
    return n;
  }
  /// Encodes what \p seq still needs, image by image, as far as the budget goes. \return true if after this plan every tile is ready or
  /// under way
  bool try_encode_all(const sequence_view& seq, std::int32_t lane = 0) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(seq.images.size()); ++i) {
      const image_view& v = seq.images[static_cast<std::size_t>(i)];
      if (v.state == image_state::consumed || v.tiles_started == v.num_tiles) continue;
      if (v.tiles_started + try_encode(seq, i, v.num_tiles, lane) < v.num_tiles) return false;
    }
    return true;
  }
  /// True if the next token of \p seq, or the atomic image that begins with it, needs more blocks than are left. False once it is evicted.
  [[nodiscard]] bool lacks_blocks(const sequence_view& seq) const noexcept {
    std::int32_t least = seq.computed_tokens + 1;
    for (const image_view& image : seq.images) {
      if (image.atomic && image.first_position == seq.computed_tokens) least = seq.computed_tokens + image.num_tokens;
    }
    return !ledger_.evicts(seq) && state_.kv.blocks_for(least) - seq.kv_blocks > ledger_.free_blocks();
  }
  /// True if blocks for all known tokens of \p seq and its next one are left: it will not run out in the middle of its prefill.
  [[nodiscard]] bool fits_whole(const sequence_view& seq) const noexcept {
    const std::int32_t known = std::min(seq.computed_tokens + seq.remaining() + 1, seq.most_tokens());
    return state_.kv.blocks_for(known) - seq.kv_blocks <= ledger_.free_blocks();
  }
  /// True if every embedding of \p seq is there, counting tiles that this plan encodes in the step.
  [[nodiscard]] bool ready(const sequence_view& seq) const noexcept {
    return ledger_.ready_limit(seq) >= seq.prompt_tokens + seq.generated_tokens;
  }
  /// True if every image that \p seq still needs has memory, counting what this plan encodes. A policy that admits only then never has two
  /// running sequences wait for each other's memory: each may hold a picture that it cannot consume before another one of its own.
  [[nodiscard]] bool holds_images(const sequence_view& seq) const noexcept { return ledger_.holds_images(seq); }

  /// Takes the KV from a running sequence.
  bool try_evict(const sequence_view& seq, eviction how = eviction::recompute) {
    if (ledger_.evict(seq, how)) return false;
    plan_.evict.push_back({seq.id, how});
    return true;
  }
  /// Brings a swapped sequence back.
  bool try_resume(const sequence_view& seq) {
    if (ledger_.resume(seq)) return false;
    plan_.resume.push_back(seq.id);
    return true;
  }
  /// Ends a sequence without an answer.
  bool try_drop(const sequence_view& seq, std::string reason) {
    if (ledger_.drop(seq)) return false;
    plan_.drop.push_back({seq.id, std::move(reason)});
    return true;
  }
  /// Adds rows computed for nobody.
  bool try_empty_rows(std::int32_t rows) {
    if (ledger_.empty_rows(rows)) return false;
    plan_.empty_rows += rows;
    return true;
  }

 private:
  const scheduler_state& state_;
  step_plan& plan_;
  plan_ledger& ledger_;
  std::int32_t promised_ = 0;  // blocks that running and admitted sequences may still come to need
};

}  // namespace vlbatch::inline v0
