// SPDX-License-Identifier: Apache-2.0
// The answer to a request does not depend on its company: every strategy, cache, block size, lane and pool gives what the model gives
// alone.
#include <gtest/gtest.h>

#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/kv/statistics_adaptor.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

struct workload {
  std::vector<request> requests;
  std::vector<std::vector<std::int32_t>> expected;
};

// Text only, one image, two images of one or two tiles, duplicates; lengths of many kinds.
workload mixed(int count, int eos_every, bool atomic = false) {
  workload w;
  for (int i = 0; i < count; ++i) {
    std::vector<std::shared_ptr<const pixel_tiles>> pictures;
    for (int k = 0; k < i % 3; ++k) pictures.push_back(picture(static_cast<std::uint8_t>((i % 7) * 3 + k), 1 + (i + k) % 2));
    const auto p = prompt(i, 3 + i * 5 % 40, pictures, 1 + i % 4, atomic);
    const int tokens = i % 11 == 0 ? 1 : 1 + i * 7 % 30;
    w.requests.push_back(ask(p, tokens));
    w.expected.push_back(expected_tokens(*p, tokens, eos_every));
  }
  return w;
}

template <class T>
class exactness : public ::testing::Test {};

template <class Policy, class Kv, class Vision>
struct kind {
  using policy = Policy;
  using kv = Kv;
  using vision = Vision;
};
using kinds = ::testing::Types<kind<sequential, paged_kv, inline_vision>, kind<sequential, contiguous_kv, async_vision>,
                               kind<static_batching, paged_kv, async_vision>, kind<static_batching, contiguous_kv, inline_vision>,
                               kind<padded_static, paged_kv, inline_vision>, kind<padded_static, contiguous_kv, async_vision>,
                               kind<continuous, paged_kv, inline_vision>, kind<continuous, paged_kv, async_vision>,
                               kind<continuous, contiguous_kv, inline_vision>, kind<continuous, contiguous_kv, async_vision>>;
TYPED_TEST_SUITE(exactness, kinds);

template <class Kv>
Kv cache_of(std::int32_t tokens, std::int32_t block_size) {
  if constexpr (std::is_same_v<Kv, paged_kv>) {
    return paged_kv{{.bytes = 0, .blocks = ceil_div(tokens, block_size), .block_size = block_size}};
  } else {
    return contiguous_kv{{.bytes = 0, .sequences = std::max(tokens / 96, 1), .tokens_per_sequence = 96}};
  }
}

TYPED_TEST(exactness, every_pool_chunk_and_encoder_cache_gives_the_answers_of_the_model_alone) {
  const workload w = mixed(24, 9);
  for (const std::int32_t pool : {96, 192, 2048}) {
    for (const std::int32_t block_size : {16, 32, 256}) {
      if (std::is_same_v<typename TypeParam::kv, contiguous_kv> && block_size != 16) continue;
      for (const std::int32_t rows : {5, 32, 512}) {
        fake_model model;
        model.control().eos_every = 9;
        const limits lim{.max_num_seqs = 4, .max_num_batched_tokens = rows, .max_encoder_tokens = 10};
        // Room for four tiles: requests have up to four, so others must give way.
        engine e{model, cache_of<typename TypeParam::kv>(pool, block_size), typename TypeParam::policy{lim},
                 parts<typename TypeParam::vision>{},
                 engine_options{.threads = 2, .encoder_cache = {.bytes = 4 * fake_model::per_tile * fake_model::hidden * 4}}};
        const std::vector<result> results = e.generate(w.requests);
        for (std::size_t i = 0; i < results.size(); ++i) {
          ASSERT_EQ(results[i].outcome, status::finished) << results[i].reason << " pool " << pool << " rows " << rows << " request " << i;
          ASSERT_EQ(results[i].tokens, w.expected[i]) << "pool " << pool << " block " << block_size << " rows " << rows << " request " << i;
        }
        EXPECT_EQ(e.kv().usage().blocks_used, 0);
        EXPECT_EQ(e.kv().usage().tokens_stored, 0);
        EXPECT_EQ(e.kv().usage().sequences, 0);
        EXPECT_EQ(e.state().table.size(), 0);
        EXPECT_LE(e.stats().rows, e.stats().steps * rows);
        EXPECT_EQ(e.stats().rows, e.stats().prefill_rows + e.stats().decode_rows + e.stats().pad_tokens + e.stats().empty_rows);
      }
    }
  }
}

TYPED_TEST(exactness, atomic_images_are_never_cut) {
  const workload w = mixed(12, 0, true);
  fake_model model;
  engine e{model, cache_of<typename TypeParam::kv>(1024, 16),
           typename TypeParam::policy{limits{.max_num_seqs = 3, .max_num_batched_tokens = 40, .max_encoder_tokens = 20}},
           parts<typename TypeParam::vision>{}};
  const std::vector<result> results = e.generate(w.requests);
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].tokens, w.expected[i]) << results[i].reason;
}

TYPED_TEST(exactness, an_allocator_that_fails_costs_steps_and_no_answer) {
  const workload w = mixed(16, 0);
  fake_model model;
  engine e{model, statistics_adaptor{cache_of<typename TypeParam::kv>(1024, 16)},
           typename TypeParam::policy{limits{.max_num_seqs = 4, .max_num_batched_tokens = 64}}, parts<typename TypeParam::vision>{}};
  e.kv().fail_reserves(10, 25);
  const std::vector<result> results = e.generate(w.requests);
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].tokens, w.expected[i]) << results[i].reason;
  EXPECT_EQ(e.stats().failed_reserves, 25);
  EXPECT_EQ(e.kv().statistics().failed_reserves, 25);
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
}

TYPED_TEST(exactness, seeded_sampling_does_not_depend_on_company_or_order) {
  workload w = mixed(20, 0);
  for (std::size_t i = 0; i < w.requests.size(); ++i) {
    w.requests[i].sampling = {.temperature = 0.9F,
                              .top_k = static_cast<std::int32_t>(i % 3) * 20,
                              .top_p = i % 2 == 0 ? 1.0F : 0.9F,
                              .seed = i * 77,
                              .logprobs = true};
  }
  const auto run = [&](std::vector<request> requests, std::int32_t tokens) {
    fake_model model;
    engine e{model, cache_of<typename TypeParam::kv>(tokens, 16),
             typename TypeParam::policy{limits{.max_num_seqs = 5, .max_num_batched_tokens = 48}}, parts<typename TypeParam::vision>{}};
    return e.generate(requests);
  };
  std::vector<result> alone;
  for (const request& r : w.requests) alone.push_back(run({r}, 2048).front());
  const std::vector<result> together = run(w.requests, 192);
  std::vector<request> reversed(w.requests.rbegin(), w.requests.rend());
  const std::vector<result> backwards = run(reversed, 192);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].outcome, status::finished) << alone[i].reason;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
    EXPECT_EQ(together[i].logprobs, alone[i].logprobs) << i;
    EXPECT_EQ(backwards[alone.size() - 1 - i].tokens, alone[i].tokens) << i;
    EXPECT_EQ(alone[i].logprobs.size(), alone[i].tokens.size());
  }
}

}  // namespace
}  // namespace vlbatch::testing
