// SPDX-License-Identifier: Apache-2.0
/// \file
/// The replaceable parts of an engine besides model, cache and policy, and its settings.
#pragma once

#include <cstdint>

#include "vlbatch/core/clock.hpp"
#include "vlbatch/observe/observer.hpp"
#include "vlbatch/sampling/sampler.hpp"
#include "vlbatch/vision/encoder_cache.hpp"
#include "vlbatch/vision/inline_vision.hpp"

namespace vlbatch::inline v0 {

/// Vision lane, sampler, clock and observer, each with a default: `parts<async_vision>{}`.
template <class Vision = inline_vision, sampler Sampler = default_sampler, engine_clock Clock = wall_clock,
          observer Observer = null_observer>
struct parts {
  using vision_type = Vision;      ///< settings of the vision lane
  using sampler_type = Sampler;    ///< chooses tokens
  using clock_type = Clock;        ///< gives time
  using observer_type = Observer;  ///< watches

  Vision vision{};   ///< settings of the vision lane
  Sampler choose{};  ///< chooses tokens
  Clock clock{};     ///< gives time
  Observer watch{};  ///< watches
};

/// Settings of an engine that are no policy's business.
struct engine_options {
  std::int32_t threads = 0;                ///< of the step and the vision lane together; 0: as many as the machine has processors
  std::int32_t preparation_threads = 1;    ///< of the preparation pool; 0: requests are prepared in the step that takes them in
  encoder_cache_settings encoder_cache{};  ///< embeddings of images
  friend bool operator==(const engine_options&, const engine_options&) = default;
};

/// Counts of an engine's whole life.
struct engine_stats {
  std::int64_t steps = 0;              ///< steps that ran something
  std::int64_t rows = 0;               ///< rows computed
  std::int64_t prefill_rows = 0;       ///< of these, prompt tokens and recomputation
  std::int64_t decode_rows = 0;        ///< of these, decodes
  std::int64_t pad_tokens = 0;         ///< of these, pads
  std::int64_t empty_rows = 0;         ///< of these, for nobody
  std::int64_t output_tokens = 0;      ///< tokens generated
  std::int64_t preemptions = 0;        ///< evictions
  std::int64_t recomputed_tokens = 0;  ///< tokens computed again after an eviction
  std::int64_t encoded_tiles = 0;      ///< tiles through the vision lane
  std::int64_t failed_reserves = 0;    ///< KV reservations that failed although the budget allowed them
  duration plan_time{};                ///< in the policy
  duration forward_time{};             ///< in the model's forward pass
  duration encode_time{};              ///< in the vision lane (a batch of tiles counted once)
  friend bool operator==(const engine_stats&, const engine_stats&) = default;

  /// What happened between two readings.
  friend engine_stats operator-(engine_stats a, const engine_stats& b) {
    a.steps -= b.steps, a.rows -= b.rows, a.prefill_rows -= b.prefill_rows, a.decode_rows -= b.decode_rows, a.pad_tokens -= b.pad_tokens;
    a.empty_rows -= b.empty_rows, a.output_tokens -= b.output_tokens, a.preemptions -= b.preemptions,
        a.recomputed_tokens -= b.recomputed_tokens;
    a.encoded_tiles -= b.encoded_tiles, a.failed_reserves -= b.failed_reserves;
    a.plan_time -= b.plan_time, a.forward_time -= b.forward_time, a.encode_time -= b.encode_time;
    return a;
  }
};

}  // namespace vlbatch::inline v0
