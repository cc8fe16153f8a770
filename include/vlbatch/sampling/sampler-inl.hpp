// SPDX-License-Identifier: Apache-2.0
// Definitions of sampler.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/sampling/sampler.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE sampled_token default_sampler::sample(std::span<const float> logits, const sampling_params& p, const sampling_context& c) {
  const scan_result own = scan(logits);
  if (!own.usable) return {};
  const std::span<const float> scores = adjust(logits, p, c);
  const scan_result best = scores.data() == logits.data() ? own : scan(scores);
  if (!best.usable) return {};  // every token that the model allows is banned
  std::int32_t chosen = best.best;
  if (p.temperature > 0.0F && p.top_k != 1) chosen = draw(scores, p, best, counter_uniform(p.seed, c.position));
  if (!p.logprobs && p.top_logprobs == 0) return {chosen};
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - own.highest);
  const double log_sum = own.highest + std::log(sum);
  if (p.top_logprobs > 0) find_top(logits, p.top_logprobs, log_sum);
  return {chosen, static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(chosen)]) - log_sum),
          std::span(top_).first(p.top_logprobs > 0 ? top_.size() : 0)};
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

// Calls change(logit, how often) for each token that occurs, once.
template <class F>
void default_sampler::for_each_distinct(std::initializer_list<std::span<const std::int32_t>> tokens, F&& change) {
  const auto known = [&](std::int32_t t) { return t >= 0 && static_cast<std::size_t>(t) < scores_.size(); };
  counts_.resize(std::max(counts_.size(), scores_.size()), 0);
  for (const auto& some : tokens) {
    for (const std::int32_t t : some)
      if (known(t)) ++counts_[static_cast<std::size_t>(t)];
  }
  for (const auto& some : tokens) {
    for (const std::int32_t t : some) {
      if (!known(t) || counts_[static_cast<std::size_t>(t)] == 0) continue;
      change(scores_[static_cast<std::size_t>(t)], std::exchange(counts_[static_cast<std::size_t>(t)], 0));
    }
  }
}

VLBATCH_INLINE std::span<const float> default_sampler::adjust(std::span<const float> logits, const sampling_params& p,
                                                              const sampling_context& c) {
  const bool repetition = p.repetition_penalty != 1.0F;
  const bool answer = p.frequency_penalty != 0.0F || p.presence_penalty != 0.0F;
  if (p.logit_bias.empty() && !repetition && !answer) return logits;
  // In double and bounded: large penalties must not turn a logit into NaN or +infinity.
  const auto bounded = [](double x) { return static_cast<float>(std::min<double>(x, std::numeric_limits<float>::max())); };
  scores_.assign(logits.begin(), logits.end());
  for (const token_bias& b : p.logit_bias) {
    if (b.token < 0 || static_cast<std::size_t>(b.token) >= scores_.size()) continue;
    float& x = scores_[static_cast<std::size_t>(b.token)];
    x = bounded(static_cast<double>(x) + b.bias);
  }
  if (repetition) {
    for_each_distinct({c.prompt, c.generated}, [&](float& x, std::int32_t) {
      x = bounded(x > 0.0F ? static_cast<double>(x) / p.repetition_penalty : static_cast<double>(x) * p.repetition_penalty);
    });
  }
  if (answer) {
    for_each_distinct({c.generated}, [&](float& x, std::int32_t n) {
      x = bounded(x - static_cast<double>(p.presence_penalty) - static_cast<double>(p.frequency_penalty) * n);
    });
  }
  return scores_;
}

VLBATCH_INLINE void default_sampler::find_top(std::span<const float> logits, std::int32_t count, double log_sum) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) candidates_.push_back({logits[i], static_cast<std::int32_t>(i)});
  const auto n = static_cast<std::ptrdiff_t>(std::min(static_cast<std::size_t>(count), candidates_.size()));
  std::partial_sort(candidates_.begin(), candidates_.begin() + n, candidates_.end(), likelier);
  top_.clear();
  for (const candidate& c : std::span(candidates_).first(static_cast<std::size_t>(n)))
    top_.push_back({c.id, static_cast<float>(static_cast<double>(c.logit) - log_sum)});
}

VLBATCH_INLINE std::int32_t default_sampler::draw(std::span<const float> logits, const sampling_params& p, const scan_result& best,
                                                  double u) {
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    // Differences first: a tiny temperature sends everything but the highest to exp(-infinity) = 0, never to NaN.
    const double below = static_cast<double>(logits[i]) - best.highest;
    candidates_.push_back(
        {logits[i], static_cast<std::int32_t>(i), below == 0.0 ? 1.0 : std::exp(below / static_cast<double>(p.temperature))});
  }
  if (p.top_k > 0 && static_cast<std::size_t>(p.top_k) < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + p.top_k, candidates_.end(), likelier);
    candidates_.resize(static_cast<std::size_t>(p.top_k));
  }
  if (p.top_p < 1.0F) keep_top_p(static_cast<double>(p.top_p));
  if (p.min_p > 0.0F) std::erase_if(candidates_, [&](const candidate& c) { return c.weight < static_cast<double>(p.min_p); });
  double sum = 0.0;
  for (const candidate& c : candidates_) sum += c.weight;
  double left = u * sum;
  for (const candidate& c : candidates_) {
    left -= c.weight;
    if (left < 0.0) return c.id;
  }
  return best.best;  // rounding at the very end of the interval
}

VLBATCH_INLINE void default_sampler::keep_top_p(double top_p) {
  double sum = 0.0;
  for (const candidate& c : candidates_) sum += c.weight;
  // A heap gives the likeliest one by one, and few are enough as a rule: what is kept gathers at the end.
  const auto unlikelier = [](const candidate& a, const candidate& b) { return likelier(b, a); };
  std::make_heap(candidates_.begin(), candidates_.end(), unlikelier);
  auto kept_from = candidates_.end();
  double kept = 0.0;
  // Probabilities in f32 that sum to exactly top_p must count as having reached it.
  while (kept_from != candidates_.begin() && (kept_from == candidates_.end() || kept < top_p * sum * (1.0 - 1e-7))) {
    std::pop_heap(candidates_.begin(), kept_from, unlikelier);
    kept += (--kept_from)->weight;
  }
  candidates_.erase(candidates_.begin(), kept_from);
}

}  // namespace vlbatch::inline v0
