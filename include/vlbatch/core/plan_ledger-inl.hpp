// SPDX-License-Identifier: Apache-2.0
// Definitions of plan_ledger.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include <algorithm>

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/plan_ledger.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE std::string objection::text() const {
  return std::string(what) + " (wanted " + std::to_string(wanted) + ", have " + std::to_string(have) + ")";
}

VLBATCH_INLINE void plan_ledger::begin(const scheduler_state& state) {
  state_ = &state;
  const auto slots = static_cast<std::size_t>(state.table.num_slots());
  if (named_.size() < slots) named_.resize(slots, 0), inline_tiles_.resize(slots);
  for (const seq_slot s : touched_) named_[index(s)] = 0, inline_tiles_[index(s)] = {};
  touched_.clear();
  free_blocks_ = state.kv.free_blocks + state.kv.evictable_blocks;
  rows_ = 0;
  sequences_ = static_cast<std::int32_t>(state.running.size());
  encoder_tokens_ = 0;
  encoder_bytes_ = 0;
  weakest_ = nullptr;
}

VLBATCH_INLINE std::int32_t plan_ledger::ready_limit(const sequence_view& seq) const noexcept {
  std::int32_t limit = seq.prompt_tokens + seq.generated_tokens;
  for (std::size_t i = 0; i < seq.images.size(); ++i) {
    const image_view& image = seq.images[i];
    limit = std::min(limit, image.limit_with(image.tiles_ready + planned_inline(seq, static_cast<std::int32_t>(i))));
  }
  return limit;
}

VLBATCH_INLINE bool plan_ledger::holds_images(const sequence_view& seq) const noexcept {
  for (std::size_t i = 0; i < seq.images.size(); ++i) {
    const image_view& image = seq.images[i];
    if (image.state == image_state::missing && !image.resident && planned(seq, static_cast<std::int32_t>(i)) == 0) return false;
  }
  return true;
}

VLBATCH_INLINE std::int32_t plan_ledger::runnable(const sequence_view& seq, std::int32_t wanted) const noexcept {
  const std::int32_t blocks = free_blocks_ + seq.kv_blocks;
  const std::int64_t room = static_cast<std::int64_t>(blocks) * state_->kv.block_size - seq.computed_tokens;
  std::int32_t n = std::min({wanted, seq.remaining(), ready_limit(seq) - seq.computed_tokens, free_rows()});
  n = static_cast<std::int32_t>(std::min<std::int64_t>(n, room));
  for (const image_view& image : seq.images) {  // an atomic image is taken whole or not at all
    const std::int32_t end = seq.computed_tokens + n;
    if (image.atomic && image.first_position < end && end < image.first_position + image.num_tokens)
      n = image.first_position - seq.computed_tokens;
  }
  return std::max(n, 0);
}

VLBATCH_INLINE objection plan_ledger::run(const sequence_view& seq, std::int32_t num_tokens, std::int32_t pad_tokens) {
  const kv_budget& kv = state_->kv;
  if (names(seq)) return {"sequence named twice", 2, 1};
  if (seq.where != phase::waiting && seq.where != phase::running) return {"sequence is swapped and not resumed", 1, 0};
  if (num_tokens < 1) return {"fewer than one token to run", num_tokens, 1};
  if (pad_tokens < 0) return {"negative pad tokens", pad_tokens, 0};
  if (num_tokens > seq.remaining()) return {"more tokens than are known and not computed", num_tokens, seq.remaining()};
  const std::int32_t end = seq.computed_tokens + num_tokens;
  if (end > ready_limit(seq)) return {"tokens whose image embeddings are not ready", end, ready_limit(seq)};
  for (const image_view& image : seq.images) {
    if (image.atomic && image.first_position < end && end < image.first_position + image.num_tokens) {
      return {"chunk ends inside an atomic image", end, image.first_position + image.num_tokens};
    }
  }
  if (num_tokens > free_rows() - pad_tokens)
    return {"more rows than max_num_batched_tokens leaves", std::int64_t{num_tokens} + pad_tokens, free_rows()};
  const std::int32_t blocks = kv.blocks_for(end) - seq.kv_blocks;
  if (blocks > free_blocks_) return {"more KV blocks than are free", blocks, free_blocks_};
  const bool admits = seq.where == phase::waiting;
  if (admits && free_sequences() < 1) return {"more sequences than max_num_seqs", std::int64_t{sequences_} + 1, state_->lim.max_num_seqs};
  const char flags = named_[index(seq.slot)];
  name(seq, is_named);
  if (admits && encoder_bytes_ > 0) {  // its embeddings are no longer there to be dropped
    if (const objection o = encoder_room(0)) {
      named_[index(seq.slot)] = flags;
      return o;
    }
  }
  free_blocks_ -= std::max(blocks, 0);
  rows_ += num_tokens + pad_tokens;
  sequences_ += admits ? 1 : 0;
  return {};
}

VLBATCH_INLINE objection plan_ledger::encode(const sequence_view& seq, std::int32_t image_index, std::int32_t first_tile,
                                             std::int32_t num_tiles, std::int32_t lane) {
  const auto num_images = static_cast<std::int32_t>(seq.images.size());
  if (image_index < 0 || image_index >= num_images) return {"no such image", image_index, num_images};
  if (lane < 0 || lane >= static_cast<std::int32_t>(state_->lanes.size()))
    return {"no such vision lane", lane, static_cast<std::int64_t>(state_->lanes.size())};
  if (evicts(seq)) return {"image of a sequence that the plan evicts or drops", 1, 0};
  const image_view& image = seq.images[static_cast<std::size_t>(image_index)];
  if (image.state == image_state::consumed) return {"image is already consumed", image_index, 0};
  if (first_tile != image.tiles_started) return {"first tile is not the next one", first_tile, image.tiles_started};
  if (num_tiles < 1 || num_tiles > image.num_tiles - first_tile)
    return {"tile count out of range", num_tiles, image.num_tiles - first_tile};
  for (std::int32_t i = 0; i < image_index; ++i) {  // in order, so that what is ready can always be consumed
    const image_view& before = seq.images[static_cast<std::size_t>(i)];
    if (before.state != image_state::consumed && before.tiles_started + planned(seq, i) < before.num_tiles)
      return {"an earlier image is not encoded first", image_index, i};
  }
  if (planned(seq, image_index) > 0) return {"image named twice", 2, 1};
  const std::int32_t tokens = num_tiles * image.tokens_per_tile;
  if (tokens > free_encoder_tokens()) return {"more tokens than max_encoder_tokens leaves", tokens, free_encoder_tokens()};
  const std::int64_t bytes = image.resident ? 0 : image.bytes;
  const sequence_view* const before = weakest_;
  if (bytes > 0 && (weakest_ == nullptr || outranks(*weakest_, seq))) weakest_ = &seq;
  const char flags = named_[index(seq.slot)];
  name(seq, is_encoded);
  if (encoder_bytes_ + bytes > 0) {  // also without new bytes: what it has can no longer be dropped
    if (const objection o = encoder_room(bytes)) {
      weakest_ = before;
      named_[index(seq.slot)] = flags;
      return o;
    }
  }
  encoder_tokens_ += tokens;
  encoder_bytes_ += bytes;
  inline_tiles_[index(seq.slot)].push_back({image_index, num_tiles, state_->lanes[static_cast<std::size_t>(lane)].in_step});
  return {};
}

VLBATCH_INLINE objection plan_ledger::evict(const sequence_view& seq, eviction how) {
  if (names(seq)) return {"sequence named twice", 2, 1};
  if (encodes(seq)) return {"sequence whose image the plan encodes", 1, 0};
  if (seq.where != phase::running) return {"only a running sequence can be evicted", 1, 0};
  if (how == eviction::swap && state_->kv.host_free_blocks < seq.kv_blocks)
    return {"no host memory to swap to, in blocks", seq.kv_blocks, state_->kv.host_free_blocks};
  name(seq, is_named | is_evicted);
  free_blocks_ += seq.releasable_blocks;
  --sequences_;
  return {};
}

VLBATCH_INLINE objection plan_ledger::resume(const sequence_view& seq) {
  if (names(seq)) return {"sequence named twice", 2, 1};
  if (seq.where != phase::swapped) return {"only a swapped sequence can be resumed", 1, 0};
  const std::int32_t blocks = state_->kv.blocks_for(seq.computed_tokens);
  if (blocks > free_blocks_) return {"more KV blocks than are free", blocks, free_blocks_};
  if (free_sequences() < 1) return {"more sequences than max_num_seqs", std::int64_t{sequences_} + 1, state_->lim.max_num_seqs};
  name(seq, is_named);
  free_blocks_ -= blocks;
  ++sequences_;
  return {};
}

VLBATCH_INLINE objection plan_ledger::drop(const sequence_view& seq) {
  if (names(seq)) return {"sequence named twice", 2, 1};
  if (encodes(seq)) return {"sequence whose image the plan encodes", 1, 0};
  name(seq, is_named | is_evicted | encoder_cache::leaves);
  if (seq.where == phase::running) {
    free_blocks_ += seq.releasable_blocks;
    --sequences_;
  }
  return {};
}

VLBATCH_INLINE objection plan_ledger::empty_rows(std::int32_t rows) {
  if (rows < 0) return {"negative empty rows", rows, 0};
  if (rows > free_rows()) return {"more rows than max_num_batched_tokens leaves", rows, free_rows()};
  rows_ += rows;
  return {};
}

VLBATCH_INLINE void plan_ledger::name(const sequence_view& seq, char flag) {
  touched_.push_back(seq.slot);
  named_[index(seq.slot)] = static_cast<char>(named_[index(seq.slot)] | flag);
}

VLBATCH_INLINE std::int32_t plan_ledger::planned(const sequence_view& seq, std::int32_t image) const noexcept {
  for (const tiles& t : inline_tiles_[index(seq.slot)]) {
    if (t.image == image) return t.count;
  }
  return 0;
}

VLBATCH_INLINE std::int32_t plan_ledger::planned_inline(const sequence_view& seq, std::int32_t image) const noexcept {
  for (const tiles& t : inline_tiles_[index(seq.slot)]) {
    if (t.image == image) return t.in_step ? t.count : 0;
  }
  return 0;
}

VLBATCH_INLINE objection plan_ledger::encoder_room(std::int64_t more) const {
  const encoder_budget& b = state_->encoder;
  const std::int64_t wanted = encoder_bytes_ + more;
  if (wanted <= b.free_bytes) return {};
  const std::int64_t have = b.cache != nullptr && weakest_ != nullptr ? b.cache->available_for(*weakest_, named_) : b.free_bytes;
  if (wanted > have) return {"more encoder cache bytes than can be had", wanted, have};
  return {};
}

VLBATCH_INLINE objection check_plan(const scheduler_state& state, const step_plan& plan, plan_ledger& ledger, std::string& where) {
  ledger.begin(state);
  const auto at = [&](const char* list, std::size_t i, seq_id id) {
    where = std::string(list) + "[" + std::to_string(i) + "]: sequence " + std::to_string(static_cast<std::uint64_t>(id));
  };
  const auto each = [&](const char* list, const auto& items, auto&& id_of, auto&& enter) -> objection {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const seq_id id = id_of(items[i]);
      const sequence_view* seq = state.table.find(id);
      objection o =
          seq == nullptr ? objection{"sequence is not live", static_cast<std::int64_t>(id), state.table.size()} : enter(*seq, items[i]);
      if (o) {
        at(list, i, id);
        return o;
      }
    }
    return {};
  };
  const auto id_of = [](const auto& item) { return item.id; };
  if (auto o = each("drop", plan.drop, id_of, [&](const sequence_view& s, const drop_item&) { return ledger.drop(s); })) return o;
  if (auto o = each("evict", plan.evict, id_of, [&](const sequence_view& s, const evict_item& i) { return ledger.evict(s, i.how); }))
    return o;
  if (auto o = each(
          "resume", plan.resume, [](seq_id id) { return id; }, [&](const sequence_view& s, seq_id) { return ledger.resume(s); }))
    return o;
  if (auto o = each("encode", plan.encode, id_of, [&](const sequence_view& s, const encode_item& i) {
        return ledger.encode(s, i.image, i.first_tile, i.num_tiles, i.lane);
      })) {
    return o;
  }
  if (auto o = each("run", plan.run, id_of,
                    [&](const sequence_view& s, const run_item& i) { return ledger.run(s, i.num_tokens, i.pad_tokens); }))
    return o;
  if (auto o = ledger.empty_rows(plan.empty_rows)) {
    where = "empty_rows";
    return o;
  }
  return {};
}

}  // namespace vlbatch::inline v0
