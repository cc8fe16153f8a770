// SPDX-License-Identifier: Apache-2.0
/// \file
/// What an engine tells about itself. All measuring is an observer; the default one is empty and free.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "vlbatch/core/request.hpp"
#include "vlbatch/core/step_plan.hpp"
#include "vlbatch/core/types.hpp"
#include "vlbatch/vision/lane.hpp"

namespace vlbatch::inline v0 {

/// One step as it happened. Views are valid during the call.
struct step_report {
  std::int64_t index = 0;                ///< counts steps that ran something
  time_point started{};                  ///< before the plan
  time_point planned{};                  ///< after the plan
  time_point launched{};                 ///< after commit, in-step encodes and gather: the forward pass begins
  time_point computed{};                 ///< the forward pass is complete: tokens exist
  std::int32_t rows = 0;                 ///< rows computed, pads and empty rows included
  std::int32_t prefill_rows = 0;         ///< of these, tokens of prompts or of recomputation
  std::int32_t decode_rows = 0;          ///< of these, tokens decoded one by one
  std::int32_t pad_tokens = 0;           ///< of these, pads
  std::int32_t empty_rows = 0;           ///< of these, rows for nobody
  std::int32_t recomputed_tokens = 0;    ///< tokens whose KV had been computed before an eviction
  std::span<const run_item> run{};       ///< as planned and carried out
  std::span<const tile_done> encoded{};  ///< tiles that became ready since the last report
};

/// An observer has any of `on_arrival(const sequence_view&)`, `on_encoded(const tile_done&, const sequence_view&, image index)`,
/// `on_token(const sequence_view&)`, `on_step(const step_report&)`, `on_evict(seq_id, time_point)` and `on_finish(const result&)`; missing
/// ones cost nothing. Called on the engine's thread; must not throw.
template <class O>
concept observer = std::movable<O>;

/// Sees nothing.
struct null_observer {};
static_assert(observer<null_observer>);

}  // namespace vlbatch::inline v0
