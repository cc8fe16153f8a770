// SPDX-License-Identifier: Apache-2.0
// Plans of the shipped policies, worked out by hand. That they keep the contract in any state is in the conformance suite.
#include <gtest/gtest.h>

#include "support/hand_made_state.hpp"
#include "support/policy_world.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"

namespace vlbatch::testing {
namespace {

using runs = std::vector<run_item>;
using encodes = std::vector<encode_item>;

seq_id id(std::uint64_t n) { return seq_id{n}; }

world_request text(std::int32_t tokens, std::int32_t answer, std::int32_t max_new_tokens = 0) {
  return {.prompt = prompt(1, tokens, {}, 0), .max_new_tokens = std::max(answer, max_new_tokens), .answer = answer};
}

// A policy and its world.
template <class Policy>
struct driven {
  driven(const limits& l, world_settings s) : policy(l), world((s.lim = policy.limits(), s)) {}
  void arrive(const world_request& q) {
    world.arrive(q, [this](auto&& f) { f(policy); });
  }
  // The next plan, carried out.
  const step_plan& step() {
    plan.clear();
    policy.plan(world.state(), plan);
    EXPECT_EQ(world.judge(plan), "");
    world.carry_out(plan, [this](auto&& f) { f(policy); });
    return plan;
  }
  void finish_tiles(int n) {
    world.finish_tiles(n, [this](auto&& f) { f(policy); });
  }
  Policy policy;
  policy_world world;
  step_plan plan;
};

template <class Policy>
step_plan plan_of(const hand_made_state& s) {
  Policy policy(s.lim);
  step_plan plan;
  policy.plan(s.state(), plan);
  return plan;
}

// ---- sequential

TEST(sequential, one_after_the_other_to_its_end) {
  driven<sequential> d({.max_num_seqs = 8, .max_num_batched_tokens = 10}, {});
  d.arrive(text(14, 3));
  d.arrive(text(4, 1));
  EXPECT_EQ(d.policy.limits().max_num_seqs, 1);
  EXPECT_EQ(d.step().run, (runs{{id(1), 10, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(1), 4, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(1), 1, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(1), 1, 0}})) << "the third token ends it: the last one is not stored";
  EXPECT_EQ(d.step().run, (runs{{id(2), 4, 0}}));
  EXPECT_TRUE(d.step().empty());
  EXPECT_EQ(d.world.finished().size(), 2U);
}

TEST(sequential, begins_when_every_embedding_is_there_and_encodes_for_the_head_alone) {
  driven<sequential> d({.max_num_batched_tokens = 64, .max_encoder_tokens = 5}, {});
  for (const std::uint8_t kind : std::initializer_list<std::uint8_t>{1, 2})
    d.arrive({.prompt = prompt(1, 3, {picture(kind, 2)}), .max_new_tokens = 1, .answer = 1});
  const step_plan first = d.step();
  EXPECT_EQ(first.encode, (encodes{{id(1), 0, 0, 1, 0}})) << "one tile of five tokens a step";
  EXPECT_TRUE(first.run.empty());
  const step_plan second = d.step();
  EXPECT_EQ(second.encode, (encodes{{id(1), 0, 1, 1, 0}}));
  EXPECT_EQ(second.run, (runs{{id(1), 16, 0}})) << "3 + 1 + 5 + 1 + 5 + 1 tokens";
  EXPECT_EQ(d.step().encode, (encodes{{id(2), 0, 0, 1, 0}}));
}

// ---- static

TEST(static_batching, twenty_requests_are_batches_of_eight_eight_and_four) {
  driven<static_batching> d({.max_num_seqs = 8, .max_num_batched_tokens = 512}, {.blocks = 8 * 19, .block_size = 16});
  for (int i = 0; i < 20; ++i) d.arrive(text(300, 2));
  const auto batch = [](std::uint64_t from, std::uint64_t to, std::int32_t tokens) {
    runs r;
    for (std::uint64_t i = from; i <= to; ++i) r.push_back({id(i), tokens, 0});
    return r;
  };
  for (const std::uint64_t first : {1U, 9U}) {
    for (int chunk = 0; chunk < 4; ++chunk) EXPECT_EQ(d.step().run, batch(first, first + 7, 64)) << "512 / 8";
    EXPECT_EQ(d.step().run, batch(first, first + 7, 44)) << "300 - 4 * 64";
    EXPECT_EQ(d.step().run, batch(first, first + 7, 1));
  }
  for (int chunk = 0; chunk < 2; ++chunk) EXPECT_EQ(d.step().run, batch(17, 20, 128)) << "512 / 4";
  EXPECT_EQ(d.step().run, batch(17, 20, 44));
  EXPECT_EQ(d.step().run, batch(17, 20, 1));
  EXPECT_EQ(d.world.finished().size(), 20U);
  EXPECT_EQ(d.world.steps(), 16);
  EXPECT_EQ(d.world.rows(), 20 * 301) << "no row for nobody";
}

TEST(static_batching, finished_rows_leave_and_are_not_replaced) {
  driven<static_batching> d({.max_num_seqs = 2, .max_num_batched_tokens = 64}, {});
  for (const std::int32_t answer : {1, 3, 2}) d.arrive(text(5, answer));
  EXPECT_EQ(d.step().run, (runs{{id(1), 5, 0}, {id(2), 5, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(2), 1, 0}})) << "the third one waits although there is room";
  EXPECT_EQ(d.step().run, (runs{{id(2), 1, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(3), 5, 0}}));
}

TEST(static_batching, shares_what_short_prompts_leave) {
  driven<static_batching> d({.max_num_seqs = 3, .max_num_batched_tokens = 30}, {});
  for (const std::int32_t tokens : {4, 40, 40}) d.arrive(text(tokens, 1));
  EXPECT_EQ(d.step().run, (runs{{id(1), 4, 0}, {id(2), 13, 0}, {id(3), 13, 0}})) << "30 / 3 = 10 for the first, then 26 / 2";
}

TEST(static_batching, takes_no_more_than_can_run_to_their_longest_answers) {
  // Blocks of 16: a prompt of 40 with up to 9 tokens stores 48: 3 blocks, with up to 10: 4.
  driven<static_batching> d({.max_num_seqs = 8, .max_num_batched_tokens = 512}, {.blocks = 8, .block_size = 16});
  d.arrive(text(40, 1, 9));
  d.arrive(text(40, 1, 10));
  d.arrive(text(40, 1, 9));
  EXPECT_EQ(d.step().run.size(), 2U) << "3 + 4 of 8";
  EXPECT_EQ(d.step().run, (runs{{id(3), 40, 0}}));
}

TEST(static_batching, waits_until_its_images_are_encoded) {
  driven<static_batching> d({.max_num_seqs = 3, .max_num_batched_tokens = 60, .max_encoder_tokens = 50}, {.in_step = false});
  d.arrive(text(5, 1));
  d.arrive({.prompt = prompt(1, 3, {picture(1, 2)}, 0), .max_new_tokens = 1, .answer = 1});
  d.arrive(text(6, 1));
  const step_plan first = d.step();
  EXPECT_EQ(first.encode, (encodes{{id(2), 0, 0, 2, 0}}));
  EXPECT_TRUE(first.run.empty()) << "the batch would be smaller than it can be";
  d.finish_tiles(1);
  EXPECT_TRUE(d.step().empty());
  d.finish_tiles(1);
  EXPECT_EQ(d.step().run, (runs{{id(1), 5, 0}, {id(2), 15, 0}, {id(3), 6, 0}}));
}

// ---- padded static

TEST(padded_static, pads_to_the_longest_prompt_and_the_longest_answer) {
  // Three rows of a step of 12: four each. The longest prompt has 6, so chunks of 4 and 2; pads stand before tokens.
  driven<padded_static> d({.max_num_seqs = 3, .max_num_batched_tokens = 12}, {});
  d.arrive(text(6, 1));
  d.arrive(text(4, 3));
  d.arrive(text(2, 2));
  d.arrive(text(9, 1));
  EXPECT_EQ(d.step().run, (runs{{id(1), 4, 0}, {id(2), 2, 2}, {id(3), 1, 3}}))
      << "the third one's turn is in the next chunk: one token admits it";
  EXPECT_EQ(d.plan.empty_rows, 0);
  EXPECT_EQ(d.step().run, (runs{{id(1), 2, 0}, {id(2), 2, 0}, {id(3), 1, 1}})) << "all prompts end in the same step";
  EXPECT_EQ(d.plan.empty_rows, 0);
  EXPECT_EQ(d.step().run, (runs{{id(2), 1, 0}, {id(3), 1, 0}}));
  EXPECT_EQ(d.plan.empty_rows, 1) << "the first row ended and is computed on";
  EXPECT_EQ(d.step().run, (runs{{id(2), 1, 0}}));
  EXPECT_EQ(d.plan.empty_rows, 2);
  EXPECT_EQ(d.step().run, (runs{{id(4), 9, 0}})) << "a new batch is as wide as it begins";
  EXPECT_EQ(d.plan.empty_rows, 0);
  EXPECT_EQ(d.world.rows(), 12 + 6 + 3 + 3 + 9);
  EXPECT_EQ(d.world.finished().size(), 4U);
}

TEST(padded_static, a_batch_cancelled_as_a_whole_leaves_no_width_behind) {
  driven<padded_static> d({.max_num_seqs = 3, .max_num_batched_tokens = 12}, {});
  for (int i = 0; i < 4; ++i) d.arrive(text(3, 5));
  EXPECT_EQ(d.step().run.size(), 3U);
  for (const std::uint64_t i : {1U, 2U, 3U}) d.world.cancel(id(i), [&](auto&& f) { f(d.policy); });
  EXPECT_EQ(d.step().run, (runs{{id(4), 3, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(4), 1, 0}}));
  EXPECT_EQ(d.plan.empty_rows, 0);
}

// ---- continuous

TEST(continuous, decodes_first_and_a_chunk_in_the_rest) {
  driven<continuous> d({.max_num_seqs = 4, .max_num_batched_tokens = 10}, {});
  d.arrive(text(4, 3));
  d.arrive(text(20, 2));
  d.arrive(text(5, 1));
  EXPECT_EQ(d.step().run, (runs{{id(1), 4, 0}, {id(2), 6, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(1), 1, 0}, {id(2), 9, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(1), 1, 0}, {id(2), 5, 0}, {id(3), 4, 0}}));
  EXPECT_EQ(d.step().run, (runs{{id(2), 1, 0}, {id(3), 1, 0}})) << "the first one left";
  EXPECT_EQ(d.world.finished().size(), 3U);
}

TEST(continuous, a_decode_goes_before_a_prefill_that_was_admitted_earlier) {
  hand_made_state s;
  s.lim.max_num_batched_tokens = 10;
  s.running(40, 7);
  s.running(8, 8, 1);
  EXPECT_EQ(plan_of<continuous>(s).run, (runs{{id(2), 1, 0}, {id(1), 9, 0}}));
}

TEST(continuous, evicts_the_youngest_when_a_block_is_missing_and_admits_nobody) {
  hand_made_state s;
  s.kv = {.free_blocks = 6, .total_blocks = 6, .block_size = 4};
  s.running(7, 8, 2);  // its two blocks are full
  s.running(7, 8, 2);  // likewise
  s.running(7, 5);     // room for three more tokens
  s.waiting(2);
  ASSERT_EQ(s.kv.free_blocks, 0);
  const step_plan p = plan_of<continuous>(s);
  EXPECT_EQ(p.evict, (std::vector<evict_item>{{id(3), eviction::recompute}}));
  EXPECT_EQ(p.run, (runs{{id(1), 1, 0}, {id(2), 1, 0}})) << "its two blocks are enough for both";
}

TEST(continuous, the_youngest_evicts_itself) {
  hand_made_state s;
  s.kv = {.free_blocks = 4, .total_blocks = 4, .block_size = 4};
  s.running(6, 6, 1);
  s.running(7, 8, 2);
  ASSERT_EQ(s.kv.free_blocks, 0);
  const step_plan p = plan_of<continuous>(s);
  EXPECT_EQ(p.evict, (std::vector<evict_item>{{id(2), eviction::recompute}}));
  EXPECT_EQ(p.run, (runs{{id(1), 1, 0}}));
}

TEST(continuous, evicts_nobody_for_whom_there_is_no_row_anyway) {
  hand_made_state s;
  s.lim.max_num_batched_tokens = 1;
  s.kv = {.free_blocks = 4, .total_blocks = 4, .block_size = 4};
  s.running(6, 6, 1);
  s.running(7, 8, 2);
  const step_plan p = plan_of<continuous>(s);
  EXPECT_TRUE(p.evict.empty());
  EXPECT_EQ(p.run, (runs{{id(1), 1, 0}}));
}

TEST(continuous, makes_room_before_it_encodes) {
  hand_made_state s;
  s.kv = {.free_blocks = 4, .total_blocks = 4, .block_size = 4};
  sequence_view& old = s.running(20, 8);  // in its prompt, blocks full, image next
  s.image(old, 8, 1);
  sequence_view& young = s.running(20, 8);
  s.image(young, 8, 1);
  ASSERT_EQ(s.kv.free_blocks, 0);
  const step_plan p = plan_of<continuous>(s);
  EXPECT_EQ(p.evict, (std::vector<evict_item>{{id(2), eviction::recompute}}));
  EXPECT_EQ(p.encode, (encodes{{id(1), 0, 0, 1, 0}})) << "and not for whom it evicts";
  EXPECT_EQ(p.run, (runs{{id(1), 8, 0}}));
}

TEST(continuous, makes_room_for_a_whole_atomic_image) {
  hand_made_state s;
  s.kv = {.free_blocks = 5, .total_blocks = 5, .block_size = 8};
  sequence_view& old = s.running(20, 7);  // one slot left in its block, but the image takes five
  image_view& image = s.image(old, 7, 1, true);
  image.tiles_started = image.tiles_ready = 1;
  image.state = image_state::ready;
  s.running(40, 32);  // a younger one in its prompt holds the others
  ASSERT_EQ(s.kv.free_blocks, 0);
  const step_plan p = plan_of<continuous>(s);
  EXPECT_EQ(p.evict, (std::vector<evict_item>{{id(2), eviction::recompute}}));
  EXPECT_EQ(p.run, (runs{{id(1), 13, 0}}));
}

TEST(continuous, admits_only_whom_it_can_prefill_whole) {
  hand_made_state s;
  s.lim.max_num_batched_tokens = 10;
  s.kv = {.free_blocks = 5, .total_blocks = 5, .block_size = 4};
  s.waiting(16, 8);  // 16 and the first token of the answer: 5 blocks
  EXPECT_EQ(plan_of<continuous>(s).run, (runs{{id(1), 10, 0}}));
  s.kv.free_blocks = 4;
  s.waiting(1, 1);
  EXPECT_TRUE(plan_of<continuous>(s).run.empty()) << "and nobody overtakes the head";
}

TEST(continuous, a_lane_beside_the_step_encodes_for_those_who_wait) {
  hand_made_state s;
  s.lim.max_num_seqs = 1;
  s.running(8, 8, 1);
  sequence_view& first = s.waiting(20);
  s.image(first, 2, 2);
  sequence_view& second = s.waiting(20);
  s.image(second, 2, 3);
  step_plan p = plan_of<continuous>(s);
  EXPECT_EQ(p.run, (runs{{id(1), 1, 0}}));
  EXPECT_TRUE(p.encode.empty()) << "inside the step it would make decodes wait for whom there is no room";
  s.lanes[0].in_step = false;
  s.lim.max_num_seqs = 2;
  p = plan_of<continuous>(s);
  EXPECT_EQ(p.encode, (encodes{{id(2), 0, 0, 2, 0}, {id(3), 0, 0, 2, 0}})) << "20 tokens are four tiles";
  EXPECT_EQ(p.run, (runs{{id(1), 1, 0}, {id(2), 2, 0}})) << "the text before the image runs meanwhile";
}

// Two that run could each hold a picture (shared ones come early) and wait for the memory of the other's.
TEST(continuous, admits_only_whose_pictures_all_have_memory) {
  hand_made_state s;
  s.lanes[0].in_step = false;
  s.encoder.free_bytes = 10;
  sequence_view& v = s.waiting(30);
  s.image(v, 5, 1);
  s.image(v, 15, 1);
  step_plan p = plan_of<continuous>(s);
  EXPECT_EQ(p.encode, (encodes{{id(1), 0, 0, 1, 0}}));
  EXPECT_TRUE(p.run.empty()) << "though the text before the first picture is known";
  s.encoder.free_bytes = 20;
  p = plan_of<continuous>(s);
  EXPECT_EQ(p.encode, (encodes{{id(1), 0, 0, 1, 0}, {id(1), 1, 0, 1, 0}}));
  EXPECT_EQ(p.run, (runs{{id(1), 5, 0}}));
}

// A stream of small requests must not keep a large one out, whichever lane there is.
TEST(continuous, nobody_overtakes_whoever_waits_for_room) {
  for (const bool in_step : {true, false}) {
    hand_made_state s;
    s.lanes[0].in_step = in_step;
    s.kv = {.free_blocks = 4, .total_blocks = 8, .block_size = 4};
    s.waiting(30, 1);
    s.waiting(2, 1);
    EXPECT_TRUE(plan_of<continuous>(s).run.empty()) << "blocks";
    hand_made_state t;
    t.lanes[0].in_step = in_step;
    t.encoder.free_bytes = 10;
    t.image(t.waiting(20), 2, 2);
    t.image(t.waiting(20), 2, 1);
    const step_plan p = plan_of<continuous>(t);
    EXPECT_TRUE(p.run.empty() && p.encode.empty()) << "bytes of embeddings";
  }
}

}  // namespace
}  // namespace vlbatch::testing
