// SPDX-License-Identifier: Apache-2.0
/// \file
/// All that a batching policy may know. Read-only views that the engine keeps up to date.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "vlbatch/core/request.hpp"
#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

class sequence_table;
class encoder_cache;

/// Where the embeddings of an image are.
enum class image_state : std::uint8_t {
  missing,   ///< no tile given to a lane yet (or dropped again)
  encoding,  ///< some tiles given to a lane, not all ready
  ready,     ///< every tile's embeddings are there
  consumed   ///< every position of it is computed: nothing is needed any more
};

/// One image of a sequence.
struct image_view {
  std::int32_t first_position = 0;                 ///< first prompt position it covers
  std::int32_t num_tokens = 0;                     ///< positions it covers, separators between tiles included
  std::int32_t num_tiles = 0;                      ///< tiles, encoded in order
  std::int32_t tiles_ready = 0;                    ///< leading tiles whose embeddings are there
  bool atomic = false;                             ///< may not be cut by a chunk
  image_state state = image_state::missing;        ///< summary of the counts
  std::int32_t tiles_started = 0;                  ///< leading tiles given to a lane, ready ones included
  std::int32_t tokens_per_tile = 0;                ///< embedding rows of a tile: what it costs of `max_encoder_tokens`
  std::int64_t bytes = 0;                          ///< encoder cache bytes of the whole image
  bool resident = false;                           ///< its cache bytes are reserved
  std::span<const std::int32_t> tile_positions{};  ///< `[num_tiles]` first placeholder of each tile

  /// First position that cannot be computed while only \p tiles leading tiles are ready.
  [[nodiscard]] constexpr std::int32_t limit_with(std::int32_t tiles) const noexcept {
    if (state == image_state::consumed || tiles >= num_tiles) return std::numeric_limits<std::int32_t>::max();
    return atomic ? first_position : tile_positions[static_cast<std::size_t>(tiles)];
  }
};

/// Life of a sequence in the scheduler's eyes.
enum class phase : std::uint8_t { waiting, running, swapped, swapping_out, swapping_in };

/// One sequence: all a policy may know of it. The true output length is not in it.
struct sequence_view {
  seq_id id{};                                      ///< identity
  seq_slot slot = 0;                                ///< dense index for a policy's own per-sequence state
  client_id client{};                               ///< who sent it
  session_id session{};                             ///< conversation
  int priority = 0;                                 ///< larger is more urgent
  slo target;                                       ///< optional objectives
  time_point arrival = never;                       ///< scheduled arrival
  time_point first_token = never;                   ///< when its first token existed
  time_point last_token = never;                    ///< when its newest token existed
  std::int32_t prompt_tokens = 0;                   ///< known from the start, placeholders included
  std::int32_t cached_tokens = 0;                   ///< prompt tokens that came from a shared prefix
  std::int32_t computed_tokens = 0;                 ///< tokens whose KV is stored
  std::int32_t in_flight_tokens = 0;                ///< tokens of the step under way
  std::int32_t generated_tokens = 0;                ///< answer so far
  std::int32_t max_new_tokens = 0;                  ///< the request's cap
  std::int32_t kv_blocks = 0;                       ///< blocks it holds
  std::int32_t releasable_blocks = 0;               ///< blocks that evicting it would free
  std::int32_t preemptions = 0;                     ///< how often it was evicted
  std::optional<std::int32_t> predicted_remaining;  ///< filled by an optional engine-owned predictor
  phase where = phase::waiting;                     ///< where it is
  std::span<const image_view> images{};             ///< in the order of their positions

  /// Known and not yet computed: the whole prompt at first, 1 while decoding.
  [[nodiscard]] constexpr std::int32_t remaining() const noexcept {
    return prompt_tokens + generated_tokens - computed_tokens - in_flight_tokens;
  }
  /// True while it computes tokens that were known before its next one: prompt, or recomputation after a preemption.
  [[nodiscard]] constexpr bool in_prefill() const noexcept { return generated_tokens == 0 || remaining() > 1; }
  /// Tokens whose KV it needs in the worst case: the last generated token is never stored.
  [[nodiscard]] constexpr std::int32_t most_tokens() const noexcept { return std::max(prompt_tokens, prompt_tokens + max_new_tokens - 1); }
};

/// Bounds of a step.
struct limits {
  std::int32_t max_num_seqs = 16;             ///< sequences that run at the same time
  std::int32_t max_num_batched_tokens = 512;  ///< rows of a step, pads and empty rows included
  std::int32_t max_encoder_tokens = 1152;     ///< embedding rows given to vision lanes in a step
  friend bool operator==(const limits&, const limits&) = default;
};

/// Blocks of the KV cache.
struct kv_budget {
  std::int32_t free_blocks = 0;       ///< unused
  std::int32_t evictable_blocks = 0;  ///< used by nobody living, kept for reuse
  std::int32_t total_blocks = 0;      ///< capacity
  std::int32_t host_free_blocks = 0;  ///< room for swapped-out blocks
  std::int32_t block_size = 1;        ///< tokens of a block
  friend bool operator==(const kv_budget&, const kv_budget&) = default;

  /// Blocks for \p tokens tokens.
  [[nodiscard]] constexpr std::int32_t blocks_for(std::int32_t tokens) const noexcept { return ceil_div(tokens, block_size); }
};

/// Bytes of the encoder cache.
struct encoder_budget {
  std::int64_t free_bytes = 0;           ///< unused
  std::int64_t total_bytes = 0;          ///< capacity
  std::int32_t tokens_in_flight = 0;     ///< embedding rows given to lanes and not finished
  const encoder_cache* cache = nullptr;  ///< asked for what may be dropped when `free_bytes` does not suffice; may be null in tests
};

/// One vision lane.
struct lane_view {
  time_point busy_until{};               ///< estimate; in the past when idle
  std::int32_t shares_device_with = -1;  ///< index of a lane on the same device, or -1
  bool in_step = false;                  ///< runs inside the step: what is planned on it counts as ready in the same plan
  std::int32_t tiles_in_flight = 0;      ///< tiles given to it and not finished
};

/// Shape of a hypothetical step, for the planner's cost model.
struct batch_shape {
  std::int32_t rows = 0;            ///< rows of the step
  std::int32_t sequences = 0;       ///< sequences in it
  std::int64_t context_tokens = 0;  ///< stored tokens that its attention reads, summed over sequences
  std::int32_t encoder_tiles = 0;   ///< tiles encoded inside it
};

/// The planner's model of step time, if there is one. A non-owning callable, cheap to copy.
class cost_estimator {
 public:
  constexpr cost_estimator() = default;
  /// Estimates with \p f on \p context, which must outlive it.
  constexpr cost_estimator(const void* context, duration (*f)(const void*, const batch_shape&)) noexcept
      : context_(context), function_(f) {}
  /// Time that a step of shape \p b would take; empty without a model.
  [[nodiscard]] std::optional<duration> operator()(const batch_shape& b) const {
    if (function_ == nullptr) return std::nullopt;
    return function_(context_, b);
  }
  /// True if there is a model.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return function_ != nullptr; }

 private:
  const void* context_ = nullptr;
  duration (*function_)(const void*, const batch_shape&) = nullptr;
};

/// What `plan()` reads. Valid during the call; the engine keeps it up to date between calls instead of rebuilding it.
struct scheduler_state {
  time_point now{};                   ///< read before the plan
  limits lim;                         ///< the policy's own limits
  const sequence_table& table;        ///< every live sequence by slot or id
  std::span<const seq_slot> waiting;  ///< by (arrival, id), also after preemption
  std::span<const seq_slot> running;  ///< by admission
  std::span<const seq_slot> swapped;  ///< by eviction
  kv_budget kv;                       ///< blocks
  encoder_budget encoder;             ///< bytes of embeddings
  std::span<const lane_view> lanes;   ///< vision lanes
  cost_estimator estimate;            ///< planner's cost model
};

}  // namespace vlbatch::inline v0
