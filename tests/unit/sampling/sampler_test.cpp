// SPDX-License-Identifier: Apache-2.0
// Choice of the next token, against probabilities worked out by hand, and the random numbers behind it.
#include "vlbatch/sampling/sampler.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>

namespace vlbatch {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> log_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// How often each token is drawn in n draws.
std::vector<int> draws(const std::vector<float>& logits, sampling_params p, int n) {
  default_sampler s;
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < n; ++i) {
    const sampled_token t = s.sample(logits, p, {static_cast<std::uint64_t>(i)});
    EXPECT_TRUE(t.token >= 0 && t.token < static_cast<std::int32_t>(logits.size())) << t.token;
    if (t.token >= 0) ++counts[static_cast<std::size_t>(t.token)];
  }
  return counts;
}

std::set<int> support(const std::vector<int>& counts) {
  std::set<int> s;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) s.insert(static_cast<int>(i));
  return s;
}

double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities, int n) {
  double sum = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] == 0.0) continue;
    const double expected = probabilities[i] * n;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(greedy, takes_the_highest_and_the_lowest_id_of_equals) {
  default_sampler s;
  EXPECT_EQ(s.sample(std::vector<float>{1.0F, 3.0F, 2.0F}, {}, {0}).token, 1);
  EXPECT_EQ(s.sample(std::vector<float>{1.0F, 3.0F, 3.0F, 3.0F}, {}, {0}).token, 1);
  EXPECT_EQ(s.sample(std::vector<float>{0.0F, -0.0F}, {}, {0}).token, 0);
  EXPECT_EQ(s.sample(std::vector<float>{-5.0F, -infinity, -4.0F}, {}, {0}).token, 2);
  EXPECT_EQ(s.sample(std::vector<float>{7.0F}, {}, {0}).token, 0);
  EXPECT_EQ(s.sample(std::vector<float>{1.0F, 2.0F}, {.temperature = 1.0F, .top_k = 1}, {5}).token, 1) << "top_k 1 is greedy";
}

TEST(greedy, does_not_depend_on_seed_or_position) {
  default_sampler s;
  const std::vector<float> logits{0.5F, 0.6F, 0.55F};
  for (std::uint64_t i = 0; i < 50; ++i) EXPECT_EQ(s.sample(logits, {.top_p = 0.9F, .seed = i}, {i * 7}).token, 1);
}

TEST(temperature, tiny_ones_are_greedy_and_never_give_nan) {
  default_sampler s;
  const std::vector<float> logits{-100.0F, 100.0F, 99.9F, 0.0F, -infinity};
  for (const float t : {1e-4F, 1e-7F, 1e-30F, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()}) {
    for (const float top_p : {0.0F, 0.5F, 1.0F}) {
      for (const std::int32_t top_k : {0, 2, 5}) {
        for (std::uint64_t position = 0; position < 100; ++position) {
          const sampled_token got =
              s.sample(logits, {.temperature = t, .top_k = top_k, .top_p = top_p, .seed = 3, .logprobs = true}, {position});
          ASSERT_EQ(got.token, 1) << "temperature " << t << ", top_p " << top_p << ", top_k " << top_k;
          ASSERT_TRUE(std::isfinite(got.logprob));
        }
      }
    }
  }
}

TEST(temperature, equal_logits_share_even_a_tiny_one) {
  const std::vector<int> c = draws({5.0F, 1.0F, 5.0F}, {.temperature = 1e-30F}, 2000);
  EXPECT_EQ(support(c), (std::set<int>{0, 2}));
  EXPECT_NEAR(c[0], 1000, 120);
}

TEST(temperature, scales_the_logits) {
  // Probabilities 0.8 and 0.2 are a logit difference of log 4. At temperature 2 it is log 2: 2/3 and 1/3; at 1/2 it is log 16: 16/17.
  const std::vector<float> logits = log_of({0.8, 0.2});
  EXPECT_LT(chi_square(draws(logits, {.temperature = 2.0F}, 30000), {2.0 / 3, 1.0 / 3}, 30000), 10.83);
  EXPECT_LT(chi_square(draws(logits, {.temperature = 0.5F}, 30000), {16.0 / 17, 1.0 / 17}, 30000), 10.83);
}

TEST(temperature, a_hundred_thousand_draws_follow_the_distribution) {
  const std::vector<double> p{0.05, 0.3, 0.1, 0.02, 0.2, 0.08, 0.25};
  for (const std::uint64_t seed : {0ULL, 1ULL, 12345678901234ULL}) {
    // 0.999 quantile of chi-square with 6 degrees of freedom: 22.46.
    EXPECT_LT(chi_square(draws(log_of(p), {.temperature = 1.0F, .seed = seed}, 100000), p, 100000), 22.46) << seed;
  }
}

TEST(top_p, keeps_the_smallest_set_that_reaches_it) {
  const std::vector<double> p{0.3, 0.1, 0.1, 0.5};
  const std::vector<float> logits = log_of(p);
  const auto kept = [&](float top_p) { return support(draws(logits, {.temperature = 1.0F, .top_p = top_p}, 20000)); };
  EXPECT_EQ(kept(0.8F), (std::set<int>{0, 3}));
  EXPECT_EQ(kept(0.0F), (std::set<int>{3}));
  EXPECT_EQ(kept(0.5F), (std::set<int>{3})) << "0.5 alone reaches it";
  EXPECT_EQ(kept(0.51F), (std::set<int>{0, 3}));
  EXPECT_EQ(kept(0.85F), (std::set<int>{0, 1, 3})) << "of equal ones the lower id";
  EXPECT_EQ(kept(0.95F), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(kept(1.0F), (std::set<int>{0, 1, 2, 3}));
  // What is kept is drawn in proportion: 0.5 : 0.3.
  EXPECT_LT(chi_square(draws(logits, {.temperature = 1.0F, .top_p = 0.8F}, 40000), {3.0 / 8, 0, 0, 5.0 / 8}, 40000), 10.83);
}

TEST(top_k, keeps_the_likeliest_and_of_equal_ones_the_lowest_ids) {
  const std::vector<float> logits = log_of({0.1, 0.3, 0.1, 0.3, 0.1, 0.1});
  const auto kept = [&](std::int32_t k) { return support(draws(logits, {.temperature = 1.0F, .top_k = k}, 5000)); };
  EXPECT_EQ(kept(1), (std::set<int>{1}));
  EXPECT_EQ(kept(2), (std::set<int>{1, 3}));
  EXPECT_EQ(kept(3), (std::set<int>{0, 1, 3}));
  EXPECT_EQ(kept(4), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(kept(6).size(), 6U);
  EXPECT_EQ(kept(0).size(), 6U) << "0: all";
  EXPECT_EQ(kept(1000).size(), 6U) << "more than there are: all";
}

TEST(top_k, comes_before_top_p) {
  // top_k 2 leaves 0.5 and 0.3, of which 0.5 is 62.5 %: enough for top_p 0.6 although it is not of the whole.
  const std::vector<float> logits = log_of({0.3, 0.1, 0.1, 0.5});
  EXPECT_EQ(support(draws(logits, {.temperature = 1.0F, .top_k = 2, .top_p = 0.6F}, 5000)), (std::set<int>{3}));
  EXPECT_EQ(support(draws(logits, {.temperature = 1.0F, .top_k = 0, .top_p = 0.6F}, 5000)), (std::set<int>{0, 3}));
}

TEST(top_k, every_combination_keeps_at_least_one) {
  const std::vector<std::vector<float>> all = {log_of({0.25, 0.25, 0.25, 0.25}),
                                               {100.0F, -100.0F, 0.0F, 1e-3F},
                                               {-infinity, -infinity, 2.0F, -infinity},
                                               {-3e38F, 3e38F, 0.0F, 1.0F}};
  for (const std::vector<float>& logits : all) {
    for (const std::int32_t k : {0, 1, 2, 3, 4, 5}) {
      for (const float p : {0.0F, 1e-30F, 0.1F, 0.25F, 0.5F, 0.999999F, 1.0F}) {
        for (const float t : {1e-30F, 0.7F, 1.0F, 1e30F}) {
          std::size_t kinds = support(draws(logits, {.temperature = t, .top_k = k, .top_p = p}, 40)).size();
          ASSERT_GE(kinds, 1U);
          if (k > 0) {
            ASSERT_LE(kinds, static_cast<std::size_t>(k));
          }
          if (p == 0.0F) {
            ASSERT_EQ(kinds, 1U);
          }
        }
      }
    }
  }
}

TEST(masked_logits, minus_infinity_is_never_drawn) {
  const std::vector<float> logits{0.0F, -infinity, 0.0F, -infinity, -200.0F};
  for (const float t : {0.5F, 1.0F, 1e30F}) {
    const std::vector<int> c = draws(logits, {.temperature = t}, 20000);
    EXPECT_EQ(c[1] + c[3], 0) << t;
  }
  default_sampler s;
  EXPECT_EQ(s.sample(std::vector<float>{-infinity, -infinity, -1e30F}, {.temperature = 1.0F, .top_k = 3}, {0}).token, 2);
}

TEST(unusable_logits, give_no_token) {
  default_sampler s;
  for (const float t : {0.0F, 1.0F}) {
    const sampling_params p{.temperature = t, .logprobs = true};
    EXPECT_EQ(s.sample(std::vector<float>{0.0F, nan}, p, {0}).token, -1);
    EXPECT_EQ(s.sample(std::vector<float>{nan, 0.0F}, p, {0}).token, -1);
    EXPECT_EQ(s.sample(std::vector<float>{0.0F, infinity}, p, {0}).token, -1);
    EXPECT_EQ(s.sample(std::vector<float>{-infinity, -infinity}, p, {0}).token, -1);
    EXPECT_EQ(s.sample(std::vector<float>{}, p, {0}).token, -1);
  }
}

TEST(logprobs, are_those_of_the_model_whatever_is_filtered) {
  default_sampler s;
  const std::vector<float> logits = log_of({0.3, 0.1, 0.1, 0.5});
  EXPECT_NEAR(s.sample(logits, {.logprobs = true}, {0}).logprob, std::log(0.5), 1e-6);
  EXPECT_EQ(s.sample(logits, {}, {0}).logprob, 0.0F) << "only if asked";
  for (std::uint64_t i = 0; i < 30; ++i) {
    const sampled_token t = s.sample(logits, {.temperature = 3.0F, .top_k = 2, .top_p = 0.9F, .logprobs = true}, {i});
    EXPECT_NEAR(t.logprob, std::log(t.token == 3 ? 0.5 : 0.3), 1e-6);
  }
  // log softmax of (1, 2, 3) at 3: -log(1 + e^-1 + e^-2). A common offset changes nothing, large ones do not overflow.
  const double expected = -std::log(1.0 + std::exp(-1.0) + std::exp(-2.0));
  EXPECT_NEAR(s.sample(std::vector<float>{1.0F, 2.0F, 3.0F}, {.logprobs = true}, {0}).logprob, expected, 1e-6);
  EXPECT_NEAR(s.sample(std::vector<float>{1001.0F, 1002.0F, 1003.0F}, {.logprobs = true}, {0}).logprob, expected, 1e-6);
  EXPECT_EQ(s.sample(std::vector<float>{-infinity, 4.0F}, {.logprobs = true}, {0}).logprob, 0.0F);
}

TEST(top_logprobs, are_the_likeliest_of_the_model_whatever_is_filtered_or_penalised) {
  default_sampler s;
  const std::vector<float> logits = log_of({0.3, 0.1, 0.1, 0.5});
  const std::vector<std::int32_t> answer{3, 3, 0};
  for (const float t : {0.0F, 1.0F}) {
    const sampled_token got = s.sample(logits,
                                       {.logit_bias = {{3, -infinity}},
                                        .repetition_penalty = 2.0F,
                                        .presence_penalty = 1.0F,
                                        .temperature = t,
                                        .top_k = 2,
                                        .top_p = 0.5F,
                                        .top_logprobs = 3},
                                       {.position = 3, .generated = answer});
    ASSERT_EQ(got.top.size(), 3U);
    EXPECT_EQ(got.top[0].token, 3);
    EXPECT_EQ(got.top[1].token, 0);
    EXPECT_EQ(got.top[2].token, 1) << "of equal ones the lower id";
    EXPECT_NEAR(got.top[0].logprob, std::log(0.5), 1e-6);
    EXPECT_NEAR(got.top[1].logprob, std::log(0.3), 1e-6);
    EXPECT_NEAR(got.top[2].logprob, std::log(0.1), 1e-6);
  }
  const sampled_token all = s.sample(std::vector<float>{-infinity, 0.0F}, {.logprobs = true, .top_logprobs = 2}, {});
  ASSERT_EQ(all.top.size(), 2U);
  EXPECT_EQ(all.top[0], (token_logprob{1, 0.0F}));
  EXPECT_EQ(all.top[1], (token_logprob{0, -infinity}));
  EXPECT_EQ(all.logprob, 0.0F);
  EXPECT_TRUE(s.sample(logits, {.logprobs = true}, {}).top.empty()) << "only if asked";
}

TEST(min_p, keeps_what_is_at_least_that_fraction_of_the_likeliest) {
  const std::vector<float> logits = log_of({0.3, 0.1, 0.1, 0.5});
  const auto kept = [&](sampling_params p) {
    p.temperature = 1.0F;
    return support(draws(logits, p, 5000));
  };
  EXPECT_EQ(kept({.min_p = 0.0F}), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.19F}), (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(kept({.min_p = 0.21F}), (std::set<int>{0, 3}));
  EXPECT_EQ(kept({.min_p = 0.61F}), (std::set<int>{3}));
  EXPECT_EQ(kept({.min_p = 1.0F}), (std::set<int>{3}));
  EXPECT_EQ(kept({.top_p = 0.85F, .min_p = 0.19F}), (std::set<int>{0, 1, 3})) << "both apply";
  // What is kept is drawn in proportion.
  EXPECT_LT(chi_square(draws(logits, {.temperature = 1.0F, .min_p = 0.21F}, 40000), {3.0 / 8, 0, 0, 5.0 / 8}, 40000), 10.83);
}

// What a greedy choice tells of changed logits: the bias that another token needs to be chosen instead.
float score_of(const std::vector<float>& logits, std::int32_t token, sampling_params p, const sampling_context& c) {
  default_sampler s;
  std::vector<float> more = logits;
  more.push_back(0.0F);
  const auto other = static_cast<std::int32_t>(logits.size());
  for (std::int32_t i = 0; i < other; ++i)
    if (i != token) p.logit_bias.push_back({i, -infinity});
  float low = -1000.0F;
  float high = 1000.0F;
  for (int i = 0; i < 60; ++i) {
    const float middle = low + (high - low) / 2;
    sampling_params q = p;
    q.logit_bias.push_back({other, middle});
    (s.sample(more, q, c).token == token ? low : high) = middle;
  }
  return low;
}

TEST(penalties, change_logits_as_their_sources_say) {
  const std::vector<float> logits{2.0F, -1.0F, 0.5F, 0.0F};
  const std::vector<std::int32_t> prompt{0, 1, 0, 0, -7, 99};  // ids outside the vocabulary touch nothing
  const std::vector<std::int32_t> answer{2, 2, 1, 2};
  const sampling_context c{.position = 4, .prompt = prompt, .generated = answer};
  const auto score = [&](std::int32_t token, const sampling_params& p) { return score_of(logits, token, p, c); };
  // Positive logits are divided, negative ones multiplied, once however often the token occurs, in the prompt or the answer.
  EXPECT_NEAR(score(0, {.repetition_penalty = 4.0F}), 0.5, 1e-4);
  EXPECT_NEAR(score(1, {.repetition_penalty = 4.0F}), -4.0, 1e-4);
  EXPECT_NEAR(score(2, {.repetition_penalty = 4.0F}), 0.125, 1e-4);
  EXPECT_NEAR(score(3, {.repetition_penalty = 4.0F}), 0.0, 1e-4);
  // Presence and frequency look at the answer alone.
  EXPECT_NEAR(score(0, {.frequency_penalty = 0.25F, .presence_penalty = 1.5F}), 2.0, 1e-4);
  EXPECT_NEAR(score(1, {.frequency_penalty = 0.25F, .presence_penalty = 1.5F}), -1.0 - 1.5 - 0.25, 1e-4);
  EXPECT_NEAR(score(2, {.frequency_penalty = 0.25F, .presence_penalty = 1.5F}), 0.5 - 1.5 - 3 * 0.25, 1e-4);
  EXPECT_NEAR(score(2, {.frequency_penalty = -0.25F}), 0.5 + 3 * 0.25, 1e-4) << "negative ones encourage";
  // Bias first, then repetition, then the others.
  EXPECT_NEAR(score(1, {.logit_bias = {{1, 2.0F}, {1, 1.0F}}}), 2.0, 1e-4) << "those of one token add up";
  EXPECT_NEAR(score(1, {.logit_bias = {{1, 3.0F}}, .repetition_penalty = 4.0F, .presence_penalty = 1.0F}), (-1.0 + 3.0) / 4 - 1.0, 1e-4);
}

TEST(penalties, leave_nothing_behind) {
  default_sampler s;
  const std::vector<float> logits{2.0F, 1.9F, 0.0F};
  const std::vector<std::int32_t> answer{0, 0};
  const sampling_params p{.repetition_penalty = 1.5F, .frequency_penalty = 0.5F};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(s.sample(logits, p, {.generated = answer}).token, 1);
    EXPECT_EQ(s.sample(logits, p, {}).token, 0);
    EXPECT_EQ(s.sample(std::vector<float>(50, 1.0F), p, {.prompt = answer}).token, 1) << "another vocabulary";
  }
}

TEST(logit_bias, bans_and_never_overflows) {
  default_sampler s;
  const std::vector<float> logits{3.0F, 2.0F, 1.0F};
  EXPECT_EQ(s.sample(logits, {.logit_bias = {{0, -infinity}}}, {}).token, 1);
  EXPECT_EQ(s.sample(logits, {.logit_bias = {{0, -infinity}, {0, 100.0F}}}, {}).token, 1) << "a ban stays";
  const sampling_params all{.logit_bias = {{0, -infinity}, {1, -infinity}, {2, -infinity}}, .temperature = 1.0F};
  EXPECT_EQ(s.sample(logits, all, {}).token, -1) << "nothing is left";
  const std::vector<std::int32_t> answer(1000, 2);
  constexpr float huge = std::numeric_limits<float>::max();
  for (const float t : {0.0F, 1.0F, 1e30F}) {
    const sampled_token up = s.sample({std::vector<float>{huge, huge, huge}},
                                      {.logit_bias = {{1, huge}},
                                       .repetition_penalty = std::numeric_limits<float>::denorm_min(),
                                       .frequency_penalty = -huge,
                                       .presence_penalty = huge,
                                       .temperature = t,
                                       .top_p = 0.9F,
                                       .logprobs = true},
                                      {.generated = answer});
    EXPECT_GE(up.token, 0);
    EXPECT_TRUE(std::isfinite(up.logprob));
    const sampled_token down = s.sample(std::vector<float>{-huge, -huge, -huge},
                                        {.repetition_penalty = huge, .frequency_penalty = huge, .temperature = t}, {.generated = answer});
    EXPECT_TRUE(down.token == 0 || (down.token == 1 && t > 0.0F)) << down.token;
  }
}

TEST(logprobs, of_a_mixed_grid_are_finite_and_sum_to_at_most_one) {
  default_sampler s;
  const std::vector<std::vector<float>> rows = {{0.0F, 0.0F, 0.0F, 0.0F}, {100.0F, -100.0F, 99.0F, 0.0F}, {1e30F, -1e30F, 3.0F, 4.0F}};
  for (const std::vector<float>& logits : rows) {
    for (const float t : {0.0F, 1e-40F, 1.0F, 1e30F}) {
      for (const std::int32_t n : {1, 3, 4, 9}) {
        const sampled_token got =
            s.sample(logits, {.temperature = t, .top_p = 0.7F, .min_p = 0.1F, .logprobs = true, .top_logprobs = n}, {7});
        ASSERT_GE(got.token, 0);
        ASSERT_EQ(got.top.size(), static_cast<std::size_t>(std::min(n, 4)));
        double sum = 0.0;
        for (const token_logprob& x : got.top) sum += std::exp(static_cast<double>(x.logprob));
        ASSERT_LE(sum, 1.0 + 1e-6);
        ASSERT_TRUE(std::is_sorted(got.top.begin(), got.top.end(), [](auto& a, auto& b) { return a.logprob > b.logprob; }));
        ASSERT_LE(got.logprob, got.top.front().logprob);
      }
    }
  }
}

TEST(draws, depend_on_seed_and_position_alone) {
  const std::vector<float> logits = log_of({0.3, 0.1, 0.1, 0.5});
  default_sampler a;
  default_sampler b;
  std::vector<std::int32_t> forwards;
  std::vector<std::int32_t> backwards(200);
  for (std::uint64_t i = 0; i < 200; ++i) forwards.push_back(a.sample(logits, {.temperature = 1.0F, .seed = 9}, {i}).token);
  for (std::uint64_t i = 200; i-- > 0;) {
    static_cast<void>(b.sample(std::vector<float>{1.0F, 2.0F}, {.temperature = 1.0F, .seed = i}, {i}));  // company
    backwards[i] = b.sample(logits, {.temperature = 1.0F, .seed = 9}, {i}).token;
  }
  EXPECT_EQ(forwards, backwards);
  std::vector<std::int32_t> other;
  for (std::uint64_t i = 0; i < 200; ++i) other.push_back(a.sample(logits, {.temperature = 1.0F, .seed = 10}, {i}).token);
  EXPECT_NE(forwards, other);
}

TEST(counter_uniform, is_uniform_in_every_direction) {
  static_assert(counter_uniform(1, 2) == counter_uniform(1, 2));
  static_assert(counter_uniform(1, 2) != counter_uniform(2, 1));
  const auto check = [](const char* what, auto&& number) {
    constexpr int n = 100000;
    std::array<int, 20> bins{};
    double sum = 0.0;
    double squares = 0.0;
    double products = 0.0;
    double before = 0.5;
    for (int i = 0; i < n; ++i) {
      const double u = number(static_cast<std::uint64_t>(i));
      ASSERT_TRUE(u >= 0.0 && u < 1.0) << u;
      ++bins[static_cast<std::size_t>(u * 20)];
      sum += u;
      squares += u * u;
      products += (u - 0.5) * (before - 0.5);
      before = u;
    }
    EXPECT_NEAR(sum / n, 0.5, 0.004) << what;  // standard deviation of the mean: 0.0009
    EXPECT_NEAR(squares / n - sum / n * sum / n, 1.0 / 12, 0.001) << what;
    EXPECT_NEAR(products / n * 12, 0.0, 0.015) << what << ": neighbours";  // standard deviation: 0.0032
    double chi = 0.0;
    for (const int b : bins) chi += (b - n / 20.0) * (b - n / 20.0) / (n / 20.0);
    EXPECT_LT(chi, 43.8) << what;  // 0.999 quantile with 19 degrees of freedom
  };
  check("positions of seed 0", [](std::uint64_t i) { return counter_uniform(0, i); });
  check("positions of seed 77", [](std::uint64_t i) { return counter_uniform(77, i); });
  check("first positions of seeds", [](std::uint64_t i) { return counter_uniform(i, 0); });
  check("tenth positions of seeds", [](std::uint64_t i) { return counter_uniform(i, 10); });
  check("diagonal", [](std::uint64_t i) { return counter_uniform(i, i); });
  check("high seeds", [](std::uint64_t i) { return counter_uniform(i << 40U, 3); });
}

TEST(counter_uniform, seeds_that_are_neighbours_have_nothing_in_common) {
  int equal = 0;
  for (std::uint64_t i = 0; i < 10000; ++i)
    equal += counter_uniform(1, i) == counter_uniform(2, i) || counter_uniform(1, i + 1) == counter_uniform(2, i);
  EXPECT_EQ(equal, 0);
}

}  // namespace
}  // namespace vlbatch
