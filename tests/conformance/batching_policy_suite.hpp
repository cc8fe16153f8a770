// SPDX-License-Identifier: Apache-2.0
/// \file
/// Conformance of a batching policy, for users' own types too. Give a case
///
///     struct my_case {
///       using policy_type = my_policy;
///       static my_policy make(const vlbatch::limits& lim);  // equal policies for equal limits
///       static std::int64_t allocations();                  // optional: of the whole program so far (support/count_allocations.hpp)
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(my_name, batching_policy_suite, ::testing::Types<my_case>);
///
/// The policy plans whole runs over the engine's own bookkeeping, without a model (support/policy_world.hpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/policy_world.hpp"
#include "vlbatch/batching/batching_policy.hpp"

namespace vlbatch::testing {

/// One run of a policy.
struct policy_scenario {
  const char* name = "";
  world_settings world;
  int requests = 24;
  std::int32_t longest_text = 40;
  std::int32_t longest_answer = 20;
  int most_images = 0;    // of a request, of up to 3 tiles each
  int atomic_every = 0;   // the images of each n-th request may not be cut; 0: none
  int arrivals_over = 0;  // steps in which they arrive; 0: all at the start
  int cancel_every = 0;   // a request is cancelled about every n steps; 0: never
};

/// Scenarios from easy to nasty. The tight ones hold the largest request exactly.
[[nodiscard]] inline std::vector<policy_scenario> policy_scenarios() {
  const limits wide{.max_num_seqs = 8, .max_num_batched_tokens = 128, .max_encoder_tokens = 40};
  const limits narrow{.max_num_seqs = 3, .max_num_batched_tokens = 7, .max_encoder_tokens = 5};
  const limits odd{.max_num_seqs = 16, .max_num_batched_tokens = 33, .max_encoder_tokens = 17};
  const limits one{.max_num_seqs = 1, .max_num_batched_tokens = 1, .max_encoder_tokens = 5};
  const std::int64_t tile = fake_model::per_tile * policy_world::bytes_per_embedding;
  return {
      {.name = "text, room for all", .world = {.lim = wide}},
      {.name = "text, tight cache", .world = {.lim = wide, .blocks = 4}, .arrivals_over = 60},
      {.name = "text, small steps", .world = {.lim = narrow, .blocks = 9, .block_size = 7}, .arrivals_over = 200},
      {.name = "text, one row a step", .world = {.lim = one, .blocks = 70, .block_size = 1}, .requests = 8, .cancel_every = 50},
      {.name = "text, cancelled now and then", .world = {.lim = odd, .blocks = 6}, .arrivals_over = 80, .cancel_every = 6},
      {.name = "images in the step", .world = {.lim = wide, .blocks = 40}, .most_images = 3},
      {.name = "images in the step, tight caches",
       .world = {.lim = wide, .blocks = 8, .encoder_bytes = 9 * tile},
       .most_images = 3,
       .arrivals_over = 40},
      {.name = "images in the step, not shared",
       .world = {.lim = narrow, .blocks = 12, .encoder_bytes = 9 * tile, .share_pictures = false},
       .most_images = 3},
      {.name = "images beside the step", .world = {.lim = wide, .blocks = 40, .in_step = false}, .most_images = 3},
      {.name = "images beside the step, tight caches",
       .world = {.lim = odd, .blocks = 8, .encoder_bytes = 9 * tile, .in_step = false},
       .most_images = 3,
       .arrivals_over = 40},
      {.name = "images beside the step, small steps, cancelled",
       .world = {.lim = narrow, .blocks = 10, .encoder_bytes = 11 * tile, .in_step = false},
       .most_images = 3,
       .arrivals_over = 90,
       .cancel_every = 9},
      {.name = "uncuttable images",
       .world = {.lim = odd, .blocks = 10, .encoder_bytes = 9 * tile},
       .most_images = 2,
       .atomic_every = 2,
       .arrivals_over = 30},
      {.name = "uncuttable images beside the step",
       .world = {.lim = {.max_num_seqs = 4, .max_num_batched_tokens = 17, .max_encoder_tokens = 15},
                 .blocks = 8,
                 .encoder_bytes = 7 * tile,
                 .in_step = false},
       .most_images = 2,
       .atomic_every = 1,
       .cancel_every = 15},
  };
}

/// Requests of \p s, drawn with \p random; all of them possible.
[[nodiscard]] inline std::vector<world_request> draw_requests(const policy_scenario& s, const policy_world& world, std::mt19937& random) {
  const auto below = [&](std::int32_t n) { return static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(std::max(n, 1))); };
  std::vector<world_request> all;
  while (static_cast<int>(all.size()) < s.requests) {
    std::vector<std::shared_ptr<const pixel_tiles>> pictures;
    for (int k = below(s.most_images + 1); k > 0; --k)  // few kinds, so that some are shared
      pictures.push_back(picture(static_cast<std::uint8_t>(below(6)), 1 + below(3)));
    const bool atomic = s.atomic_every > 0 && static_cast<int>(all.size()) % s.atomic_every == 0;
    world_request q;
    q.prompt = prompt(below(1 << 20), below(s.longest_text) + (pictures.empty() ? 1 : 0), pictures, below(4), atomic);
    q.max_new_tokens = below(12) == 0 ? 0 : 1 + below(s.longest_answer);
    q.answer = 1 + below(q.max_new_tokens);
    q.arrives = s.arrivals_over > 0 ? below(s.arrivals_over) : 0;
    if (world.refuses(q).empty()) all.push_back(std::move(q));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.arrives < b.arrives; });
  return all;
}

namespace detail {

/// Bounds of a plan, worked out from the plan and the state alone. check_plan says the same and more; this one nobody can break with it.
[[nodiscard]] inline std::string out_of_bounds(const scheduler_state& state, const step_plan& plan) {
  std::set<seq_id> ids;
  const auto twice = [&](seq_id id) { return !ids.insert(id).second; };
  std::int64_t rows = plan.empty_rows;
  std::int64_t blocks = state.kv.free_blocks;
  auto sequences = static_cast<std::int64_t>(state.running.size());
  for (const auto& d : plan.drop)
    if (twice(d.id)) return "an id twice";
  for (const auto& e : plan.evict) {
    if (twice(e.id)) return "an id twice";
    blocks += state.table.find(e.id)->kv_blocks;
    --sequences;
  }
  for (const auto& d : plan.drop) {
    const sequence_view& v = *state.table.find(d.id);
    if (v.where != phase::running) continue;
    blocks += v.kv_blocks;
    --sequences;
  }
  for (const auto& r : plan.run) {
    if (twice(r.id)) return "an id twice";
    const sequence_view& v = *state.table.find(r.id);
    if (r.num_tokens < 1 || r.num_tokens > v.remaining()) return "tokens that are not known";
    rows += r.num_tokens + r.pad_tokens;
    blocks -= std::max(state.kv.blocks_for(v.computed_tokens + r.num_tokens) - v.kv_blocks, 0);
    sequences += v.where == phase::waiting ? 1 : 0;
  }
  std::int64_t encoder_tokens = 0;
  for (const auto& e : plan.encode)
    encoder_tokens += std::int64_t{e.num_tiles} * state.table.find(e.id)->images[static_cast<std::size_t>(e.image)].tokens_per_tile;
  if (rows > state.lim.max_num_batched_tokens) return "more rows than max_num_batched_tokens";
  if (encoder_tokens > state.lim.max_encoder_tokens) return "more tokens than max_encoder_tokens";
  if (sequences > state.lim.max_num_seqs) return "more sequences than max_num_seqs";
  if (blocks < 0) return "more blocks than there are";
  return {};
}

}  // namespace detail

/// Runs the policies that \p make gives through \p scenario. \p allocations counts those of the program (or always says 0). \return the
/// first breach of the contract, with the step it happened in; empty if there is none
template <class Make, class Allocations>
[[nodiscard]] std::string run_scenario(Make&& make, policy_scenario scenario, std::uint32_t seed, Allocations&& allocations) {
  auto first = make(scenario.world.lim);   // plans every step, three times
  auto second = make(scenario.world.lim);  // plans now and then, and sees every hook: plan() may leave no trace
  scenario.world.lim = first.limits();
  policy_world world(scenario.world);
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<std::uint32_t>(n)); };
  const std::vector<world_request> requests = draw_requests(scenario, world, random);
  const auto tell = [&](auto&& f) {
    f(first);
    f(second);
  };
  std::int64_t work = 0;
  for (const world_request& q : requests) work += static_cast<std::int64_t>(q.prompt->tokens.size()) + q.max_new_tokens + 16;
  const std::int64_t bound = scenario.arrivals_over + 40 * work;
  step_plan plan;
  step_plan again;
  step_plan others;
  std::size_t next = 0;
  std::size_t ended = 0;
  for (std::int64_t step = 0; ended < requests.size(); ++step) {
    const auto wrong = [&](const std::string& what) {
      return what + " (step " + std::to_string(step) + ", seed " + std::to_string(seed) + ")";
    };
    if (step > bound) return wrong("no end: " + std::to_string(requests.size() - ended) + " requests are still there");
    for (; next < requests.size() && requests[next].arrives <= step; ++next) world.arrive(requests[next], tell);
    world.finish_tiles(below(3), tell);
    if (scenario.cancel_every > 0 && below(scenario.cancel_every) == 0 && world.table().size() > 0) {
      const scheduler_state s = world.state();
      const auto& queue = s.waiting.empty() || (!s.running.empty() && below(2) == 0) ? s.running : s.waiting;
      world.cancel(s.table[queue[static_cast<std::size_t>(below(static_cast<int>(queue.size())))]].id, tell);
    }

    const scheduler_state state = world.state();
    plan.clear();
    first.plan(state, plan);
    std::int64_t before = 0;
    for (int warm = 0; warm < 2; ++warm) {  // the second time everything has room
      again.clear();
      before = allocations();
      first.plan(state, again);
    }
    const std::int64_t allocated = allocations() - before;
    if (plan != again) return wrong("planning twice gives two plans");
    if (allocated != 0 && plan.drop.empty()) return wrong("plan() allocates when it is warm: " + std::to_string(allocated) + " times");
    if (below(2) == 0) {
      others.clear();
      second.plan(state, others);
      if (plan != others) return wrong("equal history and state, another plan");
    }
    if (first.limits() != scenario.world.lim) return wrong("limits() changed");
    if (const std::string o = world.judge(plan); !o.empty()) return wrong("illegal plan: " + o);
    if (const std::string o = detail::out_of_bounds(state, plan); !o.empty()) return wrong("illegal plan: " + o);
    if (plan.empty()) {
      // Nothing runs and nothing is in flight, so the whole cache is free and every request that was let in fits.
      if (!state.waiting.empty() && state.running.empty() && world.tiles_in_flight() == 0 && !plan.wake_at)
        return wrong("no progress: " + std::to_string(state.waiting.size()) + " wait and the plan is empty");
      if (!state.running.empty() && world.tiles_in_flight() == 0 && !plan.wake_at)
        return wrong("no progress: " + std::to_string(state.running.size()) + " run and the plan is empty");
      if (plan.wake_at) world.sleep_until(*plan.wake_at);
    }
    world.carry_out(plan, tell);
    ended = world.finished().size() + world.dropped().size();
  }
  if (world.usage().blocks_used != 0) return "blocks are left over";
  return {};
}

/// The suite; see the top of the file.
template <class Case>
class batching_policy_suite : public ::testing::Test {
 protected:
  using policy_type = typename Case::policy_type;
  static_assert(batching_policy<policy_type>);
  static std::int64_t allocations() {
    if constexpr (requires { Case::allocations(); }) return Case::allocations();
    return 0;
  }
};
TYPED_TEST_SUITE_P(batching_policy_suite);

TYPED_TEST_P(batching_policy_suite, has_a_name_and_stays_within_the_limits_it_was_given) {
  EXPECT_FALSE(std::string_view(TypeParam::policy_type::name()).empty());
  const limits given{.max_num_seqs = 5, .max_num_batched_tokens = 77, .max_encoder_tokens = 30};
  const limits got = TypeParam::make(given).limits();
  EXPECT_LE(got.max_num_seqs, given.max_num_seqs);
  EXPECT_LE(got.max_num_batched_tokens, given.max_num_batched_tokens);
  EXPECT_LE(got.max_encoder_tokens, given.max_encoder_tokens);
}

TYPED_TEST_P(batching_policy_suite, plans_nothing_for_nobody) {
  auto policy = TypeParam::make({});
  policy_world world({.lim = policy.limits()});
  step_plan plan;
  policy.plan(world.state(), plan);
  EXPECT_TRUE(plan.empty());
  EXPECT_EQ(plan.empty_rows, 0);
}

TYPED_TEST_P(batching_policy_suite, keeps_the_contract_over_whole_runs) {
  for (const policy_scenario& s : policy_scenarios()) {
    for (std::uint32_t seed = 1; seed <= 8; ++seed)
      EXPECT_EQ(run_scenario([](const limits& l) { return TypeParam::make(l); }, s, seed, [] { return TestFixture::allocations(); }), "")
          << s.name;
  }
}

REGISTER_TYPED_TEST_SUITE_P(batching_policy_suite, has_a_name_and_stays_within_the_limits_it_was_given, plans_nothing_for_nobody,
                            keeps_the_contract_over_whole_runs);
// The scenarios may be used without the suite.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(batching_policy_suite);

}  // namespace vlbatch::testing
