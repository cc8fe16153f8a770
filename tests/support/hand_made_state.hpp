// SPDX-License-Identifier: Apache-2.0
// A scheduler state put together by hand, for exact plans.
#pragma once

#include <deque>
#include <vector>

#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/core/sequence_table.hpp"

namespace vlbatch::testing {

/// Sequences are added in the order of their queues. Figures may be edited between plans.
class hand_made_state {
 public:
  vlbatch::limits lim{.max_num_seqs = 4, .max_num_batched_tokens = 64, .max_encoder_tokens = 20};
  kv_budget kv{.free_blocks = 10, .total_blocks = 10, .block_size = 16};
  encoder_budget encoder{.free_bytes = 1000, .total_bytes = 1000};
  std::vector<lane_view> lanes{{.in_step = true}};
  std::vector<seq_slot> waiting_queue, running_queue, swapped_queue;

  /// A sequence that waits, with id 1, 2, ... in the order of adding.
  sequence_view& waiting(std::int32_t prompt, std::int32_t max_new_tokens = 8) {
    sequence_view& v = table_.add(seq_id{++last_});
    v.prompt_tokens = prompt;
    v.max_new_tokens = max_new_tokens;
    v.arrival = time_point{} + duration(last_);
    waiting_queue.push_back(v.slot);
    return v;
  }
  /// A sequence that runs; its blocks are taken from the budget.
  sequence_view& running(std::int32_t prompt, std::int32_t computed, std::int32_t generated = 0, std::int32_t max_new_tokens = 8) {
    sequence_view& v = waiting(prompt, max_new_tokens);
    waiting_queue.pop_back();
    running_queue.push_back(v.slot);
    v.where = phase::running;
    v.computed_tokens = computed;
    v.generated_tokens = generated;
    v.kv_blocks = v.releasable_blocks = kv.blocks_for(computed);
    kv.free_blocks -= v.kv_blocks;
    return v;
  }
  /// Gives \p v another image of \p tiles tiles of 5 tokens at \p first, separators of one token between them; 10 bytes a tile.
  image_view& image(sequence_view& v, std::int32_t first, std::int32_t tiles, bool atomic = false) {
    std::vector<image_view>& all = images_.emplace_back(v.images.begin(), v.images.end());
    std::vector<std::int32_t>& positions = positions_.emplace_back();
    for (std::int32_t t = 0; t < tiles; ++t) positions.push_back(first + 6 * t);
    all.push_back({.first_position = first,
                   .num_tokens = 6 * tiles - 1,
                   .num_tiles = tiles,
                   .atomic = atomic,
                   .tokens_per_tile = 5,
                   .bytes = 10LL * tiles,
                   .tile_positions = positions});
    v.images = all;
    return all.back();
  }
  /// Image \p i of \p v as it is now.
  static image_view& edit(sequence_view& v, std::size_t i) { return const_cast<image_view&>(v.images[i]); }

  [[nodiscard]] sequence_table& table() { return table_; }
  [[nodiscard]] scheduler_state state() const {
    return {.now = time_point{},
            .lim = lim,
            .table = table_,
            .waiting = waiting_queue,
            .running = running_queue,
            .swapped = swapped_queue,
            .kv = kv,
            .encoder = encoder,
            .lanes = lanes,
            .estimate = {}};
  }

 private:
  sequence_table table_;
  std::deque<std::vector<image_view>> images_;
  std::deque<std::vector<std::int32_t>> positions_;
  std::uint64_t last_ = 0;
};

}  // namespace vlbatch::testing
