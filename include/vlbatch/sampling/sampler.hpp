// SPDX-License-Identifier: Apache-2.0
/// \file
/// Choosing the next token.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "vlbatch/core/request.hpp"
#include "vlbatch/sampling/random.hpp"

namespace vlbatch::inline v0 {

/// A chosen token.
struct sampled_token {
  std::int32_t token = -1;               ///< id; -1 if the logits were not usable (NaN or +infinity, or all of them -infinity)
  float logprob = 0.0F;                  ///< natural logarithm of its probability under the model's own distribution, if asked
  std::span<const token_logprob> top{};  ///< likeliest tokens under that distribution, if asked; valid until the sampler's next call
};

/// What a sequence has so far.
struct sampling_context {
  std::uint64_t position = 0;                 ///< index of the new token among the generated ones
  std::span<const std::int32_t> prompt{};     ///< its tokens, image placeholders included
  std::span<const std::int32_t> generated{};  ///< tokens of the answer
};

/// A sampler: `sample(logits [vocab], params, context)` chooses a sequence's next token. The result may depend on these arguments alone.
/// Used by the engine's thread; may keep scratch.
template <class S>
concept sampler = std::movable<S> && requires(S s, std::span<const float> logits, const sampling_params& p, const sampling_context& c) {
  { s.sample(logits, p, c) } -> std::same_as<sampled_token>;
};

/// Greedy, or seeded sampling, as sampling_params describes it. Ties go to the lower id, so that the choice is one.
class default_sampler {
 public:
  /// As documented at sampler.
  [[nodiscard]] sampled_token sample(std::span<const float> logits, const sampling_params& p, const sampling_context& c);

 private:
  struct candidate {
    float logit;
    std::int32_t id;
    double weight = 0.0;  // probability, as a multiple of the likeliest token's
  };
  struct scan_result {
    std::int32_t best;
    float highest;
    bool usable;
  };

  static bool likelier(const candidate& a, const candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; }

  [[nodiscard]] static scan_result scan(std::span<const float> logits);
  // The logits after bias and penalties.
  [[nodiscard]] std::span<const float> adjust(std::span<const float> logits, const sampling_params& p, const sampling_context& c);
  template <class F>
  void for_each_distinct(std::initializer_list<std::span<const std::int32_t>> tokens, F&& change);
  void find_top(std::span<const float> logits, std::int32_t count, double log_sum);
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, const sampling_params& p, const scan_result& best, double u);
  void keep_top_p(double top_p);

  std::vector<candidate> candidates_;
  std::vector<float> scores_;
  std::vector<std::int32_t> counts_;  // by token, all zero between calls
  std::vector<token_logprob> top_;
};
static_assert(sampler<default_sampler>);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/sampling/sampler-inl.hpp"
#endif
