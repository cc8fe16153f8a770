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
  sequence_store();
  sequence_store(const sequence_store&) = delete;
  sequence_store& operator=(const sequence_store&) = delete;
  ~sequence_store();
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
  sequence_view& add(arrived_request a, encoder_cache& cache, std::int64_t bytes_per_embedding);
  /// Waiting or swapped becomes running.
  void admit(sequence_view& v);
  /// Running becomes waiting, nothing of it computed any more; image embeddings that its recomputation needs are attached again.
  void restart(sequence_view& v, encoder_cache& cache, std::int64_t bytes_per_embedding);
  /// The sequence ended. Its slot is free afterwards.
  void remove(sequence_view& v, encoder_cache& cache);
  /// Embeddings of images that lie before \p v's computed tokens are needed no more.
  void consume_images(sequence_view& v, encoder_cache& cache);

 private:
  [[nodiscard]] std::vector<seq_slot>& queue_of(phase p) noexcept;
  void insert_waiting(seq_slot s);
  void attach_images(sequence_view& v, encoder_cache& cache, std::int64_t bytes_per_embedding);
  static void detach_image(sequence_record& r, std::size_t i, encoder_cache& cache);

  sequence_table table_;
  std::deque<sequence_record> records_;  // by slot; a record never moves
  std::vector<seq_slot> waiting_;
  std::vector<seq_slot> running_;
  std::vector<seq_slot> swapped_;
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/sequence_store-inl.hpp"
#endif
