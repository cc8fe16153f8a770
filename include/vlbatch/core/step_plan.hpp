// SPDX-License-Identifier: Apache-2.0
/// \file
/// A policy's decision for one step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// Run the next \p num_tokens known tokens of a sequence; a waiting one is admitted by it.
struct run_item {
  seq_id id{};                  ///< which sequence
  std::int32_t num_tokens = 0;  ///< how many of its `remaining()` tokens, at least 1
  std::int32_t pad_tokens = 0;  ///< rows computed besides, for nobody: they pass every row operation and write no KV
  friend bool operator==(const run_item&, const run_item&) = default;
};

/// Encode tiles `[first_tile, first_tile + num_tiles)` of an image of a sequence on a lane.
struct encode_item {
  seq_id id{};                  ///< which sequence
  std::int32_t image = 0;       ///< index of the image
  std::int32_t first_tile = 0;  ///< must be the image's `tiles_started`
  std::int32_t num_tiles = 0;   ///< at least 1
  std::int32_t lane = 0;        ///< index of the lane
  friend bool operator==(const encode_item&, const encode_item&) = default;
};

/// How an evicted sequence comes back.
enum class eviction : std::uint8_t {
  recompute,  ///< its KV is released and computed again
  swap        ///< its KV is copied to host memory and back
};

/// Take the KV from a running sequence. It waits in arrival order (recompute) or among the swapped.
struct evict_item {
  seq_id id{};                         ///< which sequence
  eviction how = eviction::recompute;  ///< how it comes back
  friend bool operator==(const evict_item&, const evict_item&) = default;
};

/// End a sequence without an answer.
struct drop_item {
  seq_id id{};         ///< which sequence
  std::string reason;  ///< told to its user
  friend bool operator==(const drop_item&, const drop_item&) = default;
};

/// What one step does. Reused from step to step: clear() keeps the memory.
struct step_plan {
  std::vector<run_item> run;          ///< at most one item a sequence
  std::vector<encode_item> encode;    ///< at most one item an image
  std::vector<evict_item> evict;      ///< carried out before run
  std::vector<seq_id> resume;         ///< swapped sequences to bring back
  std::vector<drop_item> drop;        ///< carried out first
  std::int32_t empty_rows = 0;        ///< rows computed for nobody (lockstep batching)
  std::optional<time_point> wake_at;  ///< nothing to run before then

  /// Empties it without giving memory back.
  void clear() noexcept {
    run.clear();
    encode.clear();
    evict.clear();
    resume.clear();
    drop.clear();
    empty_rows = 0;
    wake_at.reset();
  }
  /// True if the step would do nothing.
  [[nodiscard]] bool empty() const noexcept { return run.empty() && encode.empty() && evict.empty() && resume.empty() && drop.empty(); }
  friend bool operator==(const step_plan&, const step_plan&) = default;
};

}  // namespace vlbatch::inline v0
