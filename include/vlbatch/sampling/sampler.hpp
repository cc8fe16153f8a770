// SPDX-License-Identifier: Apache-2.0
/// \file
/// Choosing the next token.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "vlbatch/core/request.hpp"
#include "vlbatch/sampling/random.hpp"

namespace vlbatch::inline v0 {

/// A chosen token.
struct sampled_token {
  std::int32_t token = -1;  ///< id; -1 if the logits were not usable (NaN or +infinity, or all of them -infinity)
  float logprob = 0.0F;     ///< natural logarithm of its probability under the model's own distribution, if asked
};

/// A sampler: `sample(logits [vocab], params, position)` where \p position is the index of the new token in its sequence. The result may
/// depend on these arguments alone. Used by the engine's thread; may keep scratch.
template <class S>
concept sampler = std::movable<S> && requires(S s, std::span<const float> logits, const sampling_params& p) {
  { s.sample(logits, p, std::uint64_t{}) } -> std::same_as<sampled_token>;
};

/// Greedy, or seeded sampling with temperature, then top-k, then top-p. Ties go to the lower id, so that the choice is one.
class default_sampler {
 public:
  /// As documented at sampler.
  [[nodiscard]] sampled_token sample(std::span<const float> logits, const sampling_params& p, std::uint64_t position);

 private:
  struct candidate {
    float logit;
    std::int32_t id;
    double weight = 0.0;
  };
  struct scan_result {
    std::int32_t best;
    float highest;
    bool usable;
  };

  [[nodiscard]] static scan_result scan(std::span<const float> logits);
  [[nodiscard]] static float log_probability(std::span<const float> logits, std::int32_t id, float highest);
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, const sampling_params& p, float highest, double u);

  std::vector<candidate> candidates_;
};
static_assert(sampler<default_sampler>);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/sampling/sampler-inl.hpp"
#endif
