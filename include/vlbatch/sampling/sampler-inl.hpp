// SPDX-License-Identifier: Apache-2.0
// Definitions of sampler.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/sampling/sampler.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE sampled_token default_sampler::sample(std::span<const float> logits, const sampling_params& p, std::uint64_t position) {
  const auto [best, highest, usable] = scan(logits);
  if (!usable) return {};
  std::int32_t chosen = best;
  if (p.temperature > 0.0F && p.top_k != 1) chosen = draw(logits, p, highest, counter_uniform(p.seed, position));
  return {chosen, p.logprobs ? log_probability(logits, chosen, highest) : 0.0F};
}

VLBATCH_INLINE auto default_sampler::scan(std::span<const float> logits) -> scan_result {
  scan_result r{-1, -std::numeric_limits<float>::infinity(), true};
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < std::numeric_limits<float>::infinity())) return {-1, 0.0F, false};  // NaN compares false
    if (logits[i] > r.highest) r = {static_cast<std::int32_t>(i), logits[i], true};
  }
  r.usable = r.best >= 0;
  return r;
}

VLBATCH_INLINE float default_sampler::log_probability(std::span<const float> logits, std::int32_t id, float highest) {
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - highest);
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - highest - std::log(sum));
}

VLBATCH_INLINE std::int32_t default_sampler::draw(std::span<const float> logits, const sampling_params& p, float highest, double u) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  const auto likelier = [](const candidate& a, const candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.id < b.id; };
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + p.top_k, candidates_.end(), likelier);
    candidates_.resize(static_cast<std::size_t>(p.top_k));
  }
  std::sort(candidates_.begin(), candidates_.end(), likelier);
  double sum = 0.0;
  for (candidate& c : candidates_) {
    // Differences first: a tiny temperature sends everything but the highest to exp(-infinity) = 0, never to NaN.
    c.weight = c.logit == highest ? 1.0 : std::exp((static_cast<double>(c.logit) - highest) / static_cast<double>(p.temperature));
    sum += c.weight;
  }
  if (p.top_p < 1.0F) {  // smallest set with sum >= top_p; at least one
    double kept = 0.0;
    std::size_t n = 0;
    while (n < candidates_.size() && (n == 0 || kept < static_cast<double>(p.top_p) * sum * (1.0 - 1e-7))) kept += candidates_[n++].weight;
    candidates_.resize(n);
    sum = kept;
  }
  double left = u * sum;
  for (const candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0.0) return c.id;
  }
  return candidates_.front().id;  // rounding at the very end of the interval
}

}  // namespace vlbatch::inline v0
