// SPDX-License-Identifier: Apache-2.0
/// \file
/// Everything the engine keeps of live sequences, and their queues.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "vlbatch/core/intake.hpp"
#include "vlbatch/core/sequence_table.hpp"
#include "vlbatch/core/text_stream.hpp"
#include "vlbatch/vision/encoder_cache.hpp"

namespace vlbatch::inline v0 {

/// What the engine knows of a live sequence beyond its view.
struct sequence_record {
  arrived_request origin;              ///< request, tokens and pixels
  std::vector<std::int32_t> tokens;    ///< prompt, then what was generated
  std::vector<image_view> images;      ///< what the view's `images` shows
  std::vector<std::uint64_t> entries;  ///< encoder cache entry of each image; 0 when detached
  text_stream text;                    ///< answer as text
  result outcome;                      ///< filled as it goes
  std::int32_t computed_before = 0;    ///< most tokens ever computed: computing them again is recomputation
};

/// Live sequences: views by slot, records beside them, and the queues that a policy sees. Kept up to date, never rebuilt. The engine's
/// thread alone.
class sequence_store {
 public:
  /// Views of all live sequences.
  [[nodiscard]] const sequence_table& table() const noexcept { return table_; }
  /// Mutable view.
  [[nodiscard]] sequence_view& view(seq_slot s) noexcept { return table_.edit(s); }
  /// Record beside the view.
  [[nodiscard]] sequence_record& record(seq_slot s) noexcept { return records_[static_cast<std::size_t>(s)]; }
  /// Waiting sequences by (arrival, id).
  [[nodiscard]] std::span<const seq_slot> waiting() const noexcept { return waiting_; }
  /// Running sequences by admission.
  [[nodiscard]] std::span<const seq_slot> running() const noexcept { return running_; }
  /// Swapped sequences by eviction.
  [[nodiscard]] std::span<const seq_slot> swapped() const noexcept { return swapped_; }

  /// Takes in a prepared request: it waits. Images are attached to the cache.
  sequence_view& add(arrived_request a, encoder_cache& cache, std::int64_t bytes_per_embedding) {
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
  /// Waiting or swapped becomes running.
  void admit(sequence_view& v) {
    std::erase(v.where == phase::swapped ? swapped_ : waiting_, v.slot);
    running_.push_back(v.slot);
    v.where = phase::running;
  }
  /// Running becomes waiting, nothing of it computed any more; image embeddings that its recomputation needs are attached again.
  void restart(sequence_view& v, encoder_cache& cache, std::int64_t bytes_per_embedding) {
    std::erase(running_, v.slot);
    v.where = phase::waiting;
    v.computed_tokens = v.cached_tokens = v.kv_blocks = v.releasable_blocks = 0;
    ++v.preemptions;
    attach_images(v, cache, bytes_per_embedding);
    insert_waiting(v.slot);
  }
  /// The sequence ended. Its slot is free afterwards.
  void remove(sequence_view& v, encoder_cache& cache) {
    sequence_record& r = record(v.slot);
    for (std::size_t i = 0; i < r.images.size(); ++i) detach_image(r, i, cache);
    std::erase(queue_of(v.where), v.slot);
    r = {};
    table_.remove(v.slot);
  }
  /// Embeddings of images that lie before \p v's computed tokens are needed no more.
  void consume_images(sequence_view& v, encoder_cache& cache) {
    sequence_record& r = record(v.slot);
    for (std::size_t i = 0; i < r.images.size(); ++i) {
      image_view& image = r.images[i];
      if (image.state == image_state::consumed || v.computed_tokens < image.first_position + image.num_tokens) continue;
      detach_image(r, i, cache);
      image.state = image_state::consumed;
      image.resident = false;
    }
  }

 private:
  [[nodiscard]] std::vector<seq_slot>& queue_of(phase p) noexcept {
    return p == phase::waiting ? waiting_ : p == phase::running ? running_ : swapped_;
  }
  void insert_waiting(seq_slot s) {
    const auto before = [&](seq_slot a, seq_slot b) { return arrives_before(table_[a], table_[b]); };
    waiting_.insert(std::lower_bound(waiting_.begin(), waiting_.end(), s, before), s);
  }
  void attach_images(sequence_view& v, encoder_cache& cache, std::int64_t bytes_per_embedding) {
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
  static void detach_image(sequence_record& r, std::size_t i, encoder_cache& cache) {
    if (r.entries[i] == 0) return;
    if (encoder_cache::entry* e = cache.find(r.entries[i])) cache.detach(*e, &r.images[i]);
    r.entries[i] = 0;
  }

  sequence_table table_;
  std::deque<sequence_record> records_;  // by slot; a record never moves
  std::vector<seq_slot> waiting_;
  std::vector<seq_slot> running_;
  std::vector<seq_slot> swapped_;
};

}  // namespace vlbatch::inline v0
