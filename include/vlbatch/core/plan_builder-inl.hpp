// SPDX-License-Identifier: Apache-2.0
// Definitions of plan_builder.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/plan_builder.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE plan_builder::plan_builder(const scheduler_state& state, step_plan& plan, plan_ledger& scratch)
    : state_(state), plan_(plan), ledger_(scratch) {
  ledger_.begin(state);
  for (const seq_slot s : state.running) {
    const sequence_view& v = state.table[s];
    promised_ += std::max(state.kv.blocks_for(v.most_tokens()) - v.kv_blocks, 0);
  }
}

VLBATCH_INLINE std::int32_t plan_builder::try_run(const sequence_view& seq, std::int32_t wanted) {
  if (ledger_.names(seq)) return 0;
  const std::int32_t n = ledger_.runnable(seq, wanted);
  return n > 0 && try_run_padded(seq, n, 0) ? n : 0;
}

VLBATCH_INLINE bool plan_builder::try_run_padded(const sequence_view& seq, std::int32_t num_tokens, std::int32_t pad_tokens) {
  if (ledger_.run(seq, num_tokens, pad_tokens)) return false;
  plan_.run.push_back({seq.id, num_tokens, pad_tokens});
  return true;
}

VLBATCH_INLINE bool plan_builder::try_promise(const sequence_view& seq) {
  const std::int32_t blocks = state_.kv.blocks_for(seq.most_tokens());
  if (promised_ + blocks > state_.kv.free_blocks + state_.kv.evictable_blocks) return false;
  promised_ += blocks;
  return true;
}

VLBATCH_INLINE std::int32_t plan_builder::try_encode(const sequence_view& seq, std::int32_t image, std::int32_t tiles, std::int32_t lane) {
  const image_view& v = seq.images[static_cast<std::size_t>(image)];
  std::int32_t n = std::min(tiles, v.num_tiles - v.tiles_started);
  if (v.tokens_per_tile > 0) n = std::min(n, ledger_.free_encoder_tokens() / v.tokens_per_tile);
  if (v.state == image_state::consumed || n < 1 || ledger_.encode(seq, image, v.tiles_started, n, lane)) return 0;
  plan_.encode.push_back({seq.id, image, v.tiles_started, n, lane});
  return n;
}

VLBATCH_INLINE bool plan_builder::try_encode_all(const sequence_view& seq, std::int32_t lane) {
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(seq.images.size()); ++i) {
    const image_view& v = seq.images[static_cast<std::size_t>(i)];
    if (v.state == image_state::consumed || v.tiles_started == v.num_tiles) continue;
    if (v.tiles_started + try_encode(seq, i, v.num_tiles, lane) < v.num_tiles) return false;
  }
  return true;
}

VLBATCH_INLINE bool plan_builder::lacks_blocks(const sequence_view& seq) const noexcept {
  std::int32_t least = seq.computed_tokens + 1;
  for (const image_view& image : seq.images) {
    if (image.atomic && image.first_position == seq.computed_tokens) least = seq.computed_tokens + image.num_tokens;
  }
  return !ledger_.evicts(seq) && state_.kv.blocks_for(least) - seq.kv_blocks > ledger_.free_blocks();
}

VLBATCH_INLINE bool plan_builder::fits_whole(const sequence_view& seq) const noexcept {
  const std::int32_t known = std::min(seq.computed_tokens + seq.remaining() + 1, seq.most_tokens());
  return state_.kv.blocks_for(known) - seq.kv_blocks <= ledger_.free_blocks();
}

VLBATCH_INLINE bool plan_builder::ready(const sequence_view& seq) const noexcept {
  return ledger_.ready_limit(seq) >= seq.prompt_tokens + seq.generated_tokens;
}

VLBATCH_INLINE bool plan_builder::try_evict(const sequence_view& seq, eviction how) {
  if (ledger_.evict(seq, how)) return false;
  plan_.evict.push_back({seq.id, how});
  return true;
}

VLBATCH_INLINE bool plan_builder::try_resume(const sequence_view& seq) {
  if (ledger_.resume(seq)) return false;
  plan_.resume.push_back(seq.id);
  return true;
}

VLBATCH_INLINE bool plan_builder::try_drop(const sequence_view& seq, std::string reason) {
  if (ledger_.drop(seq)) return false;
  plan_.drop.push_back({seq.id, std::move(reason)});
  return true;
}

VLBATCH_INLINE bool plan_builder::try_empty_rows(std::int32_t rows) {
  if (ledger_.empty_rows(rows)) return false;
  plan_.empty_rows += rows;
  return true;
}

}  // namespace vlbatch::inline v0
