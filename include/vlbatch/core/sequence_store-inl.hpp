// SPDX-License-Identifier: Apache-2.0
// Definitions of sequence_store.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/sequence_store.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE sequence_store::sequence_store() = default;
VLBATCH_INLINE sequence_store::~sequence_store() = default;

VLBATCH_INLINE sequence_view& sequence_store::add(arrived_request a, encoder_cache& cache, std::int64_t bytes_per_embedding) {
  sequence_view& v = table_.add(a.id);
  if (records_.size() < static_cast<std::size_t>(table_.num_slots())) records_.resize(static_cast<std::size_t>(table_.num_slots()));
  sequence_record& r = record(v.slot);
  r = {};
  r.origin = std::move(a);
  const request& q = r.origin.what;
  const prepared_request& p = *r.origin.ready;
  v.client = q.client, v.session = q.session, v.priority = q.priority, v.target = q.target;
  v.arrival = r.origin.when.arrival;
  v.prompt_tokens = static_cast<std::int32_t>(p.tokens.size());
  v.max_new_tokens = q.max_new_tokens;
  r.outcome.id = v.id, r.outcome.prompt_tokens = v.prompt_tokens, r.outcome.when = r.origin.when;
  const auto answer = static_cast<std::size_t>(q.max_new_tokens);
  r.tokens.reserve(p.tokens.size() + answer);  // a steady decode step allocates nothing
  r.tokens.assign(p.tokens.begin(), p.tokens.end());
  r.outcome.tokens.reserve(answer);
  if (q.sampling.logprobs) r.outcome.logprobs.reserve(answer);
  r.text.reserve(8 * answer);
  r.text.set_stops(q.stop);
  r.images.resize(p.images.size());
  r.entries.assign(p.images.size(), 0);
  v.images = r.images;
  attach_images(v, cache, bytes_per_embedding);
  insert_waiting(v.slot);
  return v;
}

VLBATCH_INLINE void sequence_store::admit(sequence_view& v) {
  std::erase(v.where == phase::swapped ? swapped_ : waiting_, v.slot);
  running_.push_back(v.slot);
  v.where = phase::running;
}

VLBATCH_INLINE void sequence_store::restart(sequence_view& v, encoder_cache& cache, std::int64_t bytes_per_embedding) {
  std::erase(running_, v.slot);
  v.where = phase::waiting;
  v.computed_tokens = v.cached_tokens = v.kv_blocks = v.releasable_blocks = 0;
  ++v.preemptions;
  attach_images(v, cache, bytes_per_embedding);
  insert_waiting(v.slot);
}

VLBATCH_INLINE void sequence_store::remove(sequence_view& v, encoder_cache& cache) {
  sequence_record& r = record(v.slot);
  for (std::size_t i = 0; i < r.images.size(); ++i) detach_image(r, i, cache);
  std::erase(queue_of(v.where), v.slot);
  r = {};
  table_.remove(v.slot);
}

VLBATCH_INLINE void sequence_store::consume_images(sequence_view& v, encoder_cache& cache) {
  sequence_record& r = record(v.slot);
  for (std::size_t i = 0; i < r.images.size(); ++i) {
    image_view& image = r.images[i];
    if (image.state == image_state::consumed || v.computed_tokens < image.first_position + image.num_tokens) continue;
    detach_image(r, i, cache);
    image.state = image_state::consumed;
    image.resident = false;
  }
}

VLBATCH_INLINE std::vector<seq_slot>& sequence_store::queue_of(phase p) noexcept {
  return p == phase::waiting ? waiting_ : p == phase::running ? running_ : swapped_;
}

VLBATCH_INLINE void sequence_store::insert_waiting(seq_slot s) {
  const auto before = [&](seq_slot a, seq_slot b) { return arrives_before(table_[a], table_[b]); };
  waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), s, before), s);
}

VLBATCH_INLINE void sequence_store::attach_images(sequence_view& v, encoder_cache& cache, std::int64_t bytes_per_embedding) {
  sequence_record& r = record(v.slot);
  for (std::size_t i = 0; i < r.images.size(); ++i) {
    if (r.entries[i] != 0) continue;
    const prepared_image& p = r.origin.ready->images[i];
    image_view& image = r.images[i];
    image = {.first_position = p.first_position,
             .num_tokens = p.num_tokens,
             .num_tiles = p.pixels->num_tiles,
             .atomic = p.atomic,
             .tokens_per_tile = p.tokens_per_tile,
             .bytes = p.embedding_rows() * bytes_per_embedding,
             .tile_positions = p.tile_positions};
    r.entries[i] = cache.attach(p.pixels, image.bytes, {&v, &image}).id;
  }
}

VLBATCH_INLINE void sequence_store::detach_image(sequence_record& r, std::size_t i, encoder_cache& cache) {
  if (r.entries[i] == 0) return;
  if (encoder_cache::entry* e = cache.find(r.entries[i])) cache.detach(*e, &r.images[i]);
  r.entries[i] = 0;
}

}  // namespace vlbatch::inline v0
