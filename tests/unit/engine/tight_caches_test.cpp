// SPDX-License-Identifier: Apache-2.0
// Pictures in caches that hold the largest request and little more: evictions and dropped embeddings in every order, and still the answers
// that the model gives alone.
#include <gtest/gtest.h>

#include <random>

#include "conformance/batching_policy_suite.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

template <class Policy, class Vision>
void answers_are_right() {
  for (const policy_scenario& s : policy_scenarios()) {
    if (s.world.block_size < 16) continue;
    for (std::uint32_t seed = 1; seed <= 6; ++seed) {
      std::mt19937 random(seed);
      const policy_world world(s.world);
      std::vector<request> requests;
      for (const world_request& q : draw_requests(s, world, random)) requests.push_back(ask(q.prompt, q.max_new_tokens));
      engine e{fake_model(), paged_kv{{.bytes = 0, .blocks = s.world.blocks, .block_size = s.world.block_size}}, Policy(s.world.lim),
               parts<Vision>{}, engine_options{.encoder_cache = {.bytes = s.world.encoder_bytes, .reuse = s.world.share_pictures}}};
      const std::vector<result> results = e.generate(requests);
      for (std::size_t i = 0; i < results.size(); ++i)
        ASSERT_EQ(results[i].tokens, expected_tokens(*requests[i].prepared, requests[i].max_new_tokens))
            << s.name << ", seed " << seed << ", request " << i << ": " << results[i].reason;
      EXPECT_EQ(e.kv().usage().blocks_used, 0);
      EXPECT_LE(e.core().cache.peak_bytes(), s.world.encoder_bytes);
    }
  }
}

TEST(tight_caches, continuous_with_a_lane_in_the_step) { answers_are_right<continuous, inline_vision>(); }
TEST(tight_caches, continuous_with_a_lane_beside_it) { answers_are_right<continuous, async_vision>(); }
TEST(tight_caches, static_batching_with_a_lane_in_the_step) { answers_are_right<static_batching, inline_vision>(); }
TEST(tight_caches, padded_static_with_a_lane_beside_it) { answers_are_right<padded_static, async_vision>(); }

}  // namespace
}  // namespace vlbatch::testing
