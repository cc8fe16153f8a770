// SPDX-License-Identifier: Apache-2.0
// What a plan may do: every objection with both values, and what the builder makes of a wish that is too large.
#include "vlbatch/core/plan_ledger.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "support/hand_made_state.hpp"
#include "vlbatch/core/plan_builder.hpp"

namespace vlbatch::testing {
namespace {

class ledger : public ::testing::Test {
 protected:
  hand_made_state s;
  plan_ledger l;

  // A ledger at the beginning of a plan; the state lives in the fixture.
  plan_ledger& fresh() {
    now_.emplace(s.state());
    l.begin(*now_);
    return l;
  }
  static void expect(const objection& o, const std::string& what, std::int64_t wanted, std::int64_t have) {
    ASSERT_TRUE(o) << "no objection; expected: " << what;
    EXPECT_EQ(o.what, what);
    EXPECT_EQ(o.wanted, wanted) << what;
    EXPECT_EQ(o.have, have) << what;
    EXPECT_EQ(o.text(), what + " (wanted " + std::to_string(wanted) + ", have " + std::to_string(have) + ")");
  }
  static void accept(const objection& o) { EXPECT_FALSE(o) << o.text(); }

 private:
  std::optional<scheduler_state> now_;
};

TEST_F(ledger, run_objections) {
  const sequence_view& a = s.waiting(40);
  sequence_view& swapped = s.waiting(10);
  swapped.where = phase::swapped;
  fresh();
  expect(l.run(swapped, 1, 0), "sequence is swapped and not resumed", 1, 0);
  expect(l.run(a, 0, 0), "fewer than one token to run", 0, 1);
  expect(l.run(a, -3, 0), "fewer than one token to run", -3, 1);
  expect(l.run(a, 1, -2), "negative pad tokens", -2, 0);
  expect(l.run(a, 41, 0), "more tokens than are known and not computed", 41, 40);
  expect(l.run(a, 40, 25), "more rows than max_num_batched_tokens leaves", 65, 64);
  expect(l.run(a, 1, std::numeric_limits<std::int32_t>::max()), "more rows than max_num_batched_tokens leaves", (1LL << 31), 64);
  EXPECT_EQ(l.free_rows(), 64) << "what was objected to is not entered";
  EXPECT_EQ(l.free_blocks(), 10);
  EXPECT_EQ(l.free_sequences(), 4);
  accept(l.run(a, 40, 24));
  EXPECT_EQ(l.free_rows(), 0);
  EXPECT_EQ(l.free_blocks(), 7) << "40 tokens are three blocks; pads take none";
  EXPECT_EQ(l.free_sequences(), 3);
  expect(l.run(a, 1, 0), "sequence named twice", 2, 1);
}

TEST_F(ledger, run_within_blocks_and_sequences) {
  const sequence_view& runs = s.running(40, 32, 0);  // two blocks, both full
  const sequence_view& waits = s.waiting(30);
  s.kv.free_blocks = 1;
  fresh();
  expect(l.run(waits, 17, 0), "more KV blocks than are free", 2, 1);
  accept(l.run(runs, 8, 0));
  expect(l.run(waits, 1, 0), "more KV blocks than are free", 1, 0);
  s.kv.evictable_blocks = 1;
  fresh();
  accept(l.run(waits, 17, 0));
  s.kv.free_blocks = 9;
  s.lim.max_num_seqs = 1;
  fresh();
  expect(l.run(waits, 1, 0), "more sequences than max_num_seqs", 2, 1);
  accept(l.run(runs, 1, 0));
}

TEST_F(ledger, run_where_images_are_ready) {
  sequence_view& v = s.waiting(30);
  s.image(v, 4, 2);
  fresh();
  expect(l.run(v, 5, 0), "tokens whose image embeddings are not ready", 5, 4);
  accept(l.run(v, 4, 0));
  hand_made_state::edit(v, 0).tiles_started = hand_made_state::edit(v, 0).tiles_ready = 1;  // the second tile begins at 10
  fresh();
  EXPECT_EQ(l.ready_limit(v), 10);
  expect(l.run(v, 11, 0), "tokens whose image embeddings are not ready", 11, 10);
  accept(l.run(v, 7, 0));  // ends inside the first tile
  hand_made_state::edit(v, 0).state = image_state::consumed;
  fresh();
  EXPECT_EQ(l.ready_limit(v), 30);
}

TEST_F(ledger, run_does_not_cut_an_atomic_image) {
  sequence_view& v = s.waiting(30);
  image_view& image = s.image(v, 4, 2, true);  // positions 4 to 14
  image.tiles_started = image.tiles_ready = 1;
  fresh();
  EXPECT_EQ(l.ready_limit(v), 4) << "half of it is no use";
  image.tiles_started = image.tiles_ready = 2;
  image.state = image_state::ready;
  fresh();
  expect(l.run(v, 5, 0), "chunk ends inside an atomic image", 5, 15);
  expect(l.run(v, 14, 0), "chunk ends inside an atomic image", 14, 15);
  accept(l.run(v, 4, 0));
  fresh();
  accept(l.run(v, 15, 0));
}

TEST_F(ledger, encode_objections) {
  sequence_view& v = s.waiting(60);
  s.image(v, 0, 3);
  s.image(v, 20, 2);
  sequence_view& evicted = s.running(20, 3);
  s.image(evicted, 10, 1);
  fresh();
  expect(l.encode(v, -1, 0, 1, 0), "no such image", -1, 2);
  expect(l.encode(v, 2, 0, 1, 0), "no such image", 2, 2);
  expect(l.encode(v, 0, 0, 1, 1), "no such vision lane", 1, 1);
  expect(l.encode(v, 0, 0, 1, -1), "no such vision lane", -1, 1);
  expect(l.encode(v, 0, 1, 1, 0), "first tile is not the next one", 1, 0);
  expect(l.encode(v, 0, 0, 0, 0), "tile count out of range", 0, 3);
  expect(l.encode(v, 0, 0, 4, 0), "tile count out of range", 4, 3);
  expect(l.encode(v, 1, 0, 2, 0), "an earlier image is not encoded first", 1, 0);
  accept(l.encode(v, 0, 0, 2, 0));
  EXPECT_EQ(l.free_encoder_tokens(), 10);
  expect(l.encode(v, 0, 0, 1, 0), "image named twice", 2, 1);
  expect(l.encode(v, 1, 0, 2, 0), "an earlier image is not encoded first", 1, 0);
  accept(l.evict(evicted, eviction::recompute));
  expect(l.encode(evicted, 0, 0, 1, 0), "image of a sequence that the plan evicts or drops", 1, 0);
  fresh();
  accept(l.encode(v, 0, 0, 3, 0));
  expect(l.encode(v, 1, 0, 2, 0), "more tokens than max_encoder_tokens leaves", 10, 5);
  accept(l.encode(v, 1, 0, 1, 0));
  EXPECT_EQ(l.free_encoder_tokens(), 0);
  hand_made_state::edit(v, 0).state = image_state::consumed;
  fresh();
  expect(l.encode(v, 0, 0, 1, 0), "image is already consumed", 0, 0);
  accept(l.encode(v, 1, 0, 1, 0));
}

TEST_F(ledger, encoder_bytes_are_those_of_whole_images_and_counted_once) {
  sequence_view& v = s.waiting(60);
  s.image(v, 0, 3);
  s.image(v, 20, 2);
  s.encoder.free_bytes = 49;
  s.lim.max_encoder_tokens = 100;
  fresh();
  accept(l.encode(v, 0, 0, 3, 0));
  expect(l.encode(v, 1, 0, 1, 0), "more encoder cache bytes than can be had", 50, 49);
  hand_made_state::edit(v, 1).resident = true;
  fresh();
  accept(l.encode(v, 0, 0, 3, 0));
  accept(l.encode(v, 1, 0, 1, 0));
}

TEST_F(ledger, evict_resume_drop_and_empty_row_objections) {
  sequence_view& runs = s.running(40, 33, 0);  // three blocks
  s.image(runs, 35, 1);
  const sequence_view& waits = s.waiting(10);
  sequence_view& swapped = s.waiting(80);
  swapped.where = phase::swapped;
  swapped.computed_tokens = 64;  // four blocks
  s.kv.host_free_blocks = 2;
  s.kv.free_blocks = 3;
  s.lim.max_num_seqs = 1;
  fresh();
  expect(l.evict(waits, eviction::recompute), "only a running sequence can be evicted", 1, 0);
  expect(l.evict(runs, eviction::swap), "no host memory to swap to, in blocks", 3, 2);
  expect(l.resume(waits), "only a swapped sequence can be resumed", 1, 0);
  expect(l.resume(swapped), "more KV blocks than are free", 4, 3);
  accept(l.evict(runs, eviction::recompute));
  EXPECT_TRUE(l.evicts(runs));
  EXPECT_EQ(l.free_blocks(), 6);
  EXPECT_EQ(l.free_sequences(), 1);
  expect(l.evict(runs, eviction::recompute), "sequence named twice", 2, 1);
  expect(l.drop(runs), "sequence named twice", 2, 1);
  expect(l.run(runs, 1, 0), "sequence named twice", 2, 1);
  accept(l.resume(swapped));
  EXPECT_EQ(l.free_blocks(), 2);
  expect(l.resume(swapped), "sequence named twice", 2, 1);
  s.kv.free_blocks = 4;
  fresh();
  expect(l.resume(swapped), "more sequences than max_num_seqs", 2, 1);
  accept(l.drop(runs));
  accept(l.drop(waits));
  EXPECT_EQ(l.free_blocks(), 7) << "one that waits has none to give";
  EXPECT_EQ(l.free_sequences(), 1);
  expect(l.empty_rows(-1), "negative empty rows", -1, 0);
  expect(l.empty_rows(65), "more rows than max_num_batched_tokens leaves", 65, 64);
  accept(l.empty_rows(64));
  expect(l.empty_rows(1), "more rows than max_num_batched_tokens leaves", 1, 0);
  fresh();
  accept(l.encode(runs, 0, 0, 1, 0));
  expect(l.evict(runs, eviction::recompute), "sequence whose image the plan encodes", 1, 0);
  expect(l.drop(runs), "sequence whose image the plan encodes", 1, 0);
  accept(l.run(runs, 7, 0));
}

// Embeddings that one item of the plan would drop cannot be used by another.
TEST_F(ledger, a_plan_does_not_admit_whom_it_takes_embeddings_from) {
  encoder_cache cache({.bytes = 30}, [](std::int64_t n) {
    return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(n)], [](const std::byte* p) { delete[] p; });
  });
  sequence_view& old = s.waiting(30);
  image_view& wanted = s.image(old, 0, 3);
  sequence_view& young = s.waiting(30);
  image_view& held = s.image(young, 0, 1);
  const auto pixels = [](std::uint64_t key, std::int32_t tiles) {
    auto p = std::make_shared<pixel_tiles>();
    p->num_tiles = tiles;
    p->key = {0, key};
    return p;
  };
  cache.attach(pixels(1, 3), 30, {&old, &wanted});
  encoder_cache::entry& e = cache.attach(pixels(2, 1), 10, {&young, &held});
  ASSERT_TRUE(cache.reserve(e, young, {}));
  cache.start(e, 1);
  cache.complete(e);
  ASSERT_EQ(held.state, image_state::ready);
  s.encoder = {.free_bytes = 20, .total_bytes = 30, .tokens_in_flight = 0, .cache = &cache};
  fresh();
  accept(l.encode(old, 0, 0, 3, 0));
  expect(l.run(young, 5, 0), "more encoder cache bytes than can be had", 30, 20);
  EXPECT_FALSE(l.names(young));
  accept(l.run(old, 5, 0));
  fresh();
  accept(l.run(young, 5, 0));
  expect(l.encode(old, 0, 0, 3, 0), "more encoder cache bytes than can be had", 30, 20);

  // The same for a picture of which more is to be encoded: that asks for no bytes, but it stays where it is.
  sequence_view& half = s.waiting(30);
  image_view& begun = s.image(half, 0, 2);
  encoder_cache::entry& f = cache.attach(pixels(3, 2), 20, {&half, &begun});
  ASSERT_TRUE(cache.reserve(f, half, {}));
  cache.start(f, 1);
  cache.complete(f);
  s.encoder.free_bytes = 0;
  fresh();
  accept(l.encode(old, 0, 0, 3, 0));
  expect(l.encode(half, 0, 1, 1, 0), "more encoder cache bytes than can be had", 30, 10);
  fresh();
  accept(l.encode(half, 0, 1, 1, 0));
  expect(l.encode(old, 0, 0, 3, 0), "more encoder cache bytes than can be had", 30, 10);

  // Whoever the plan ends holds nothing, whichever is entered first.
  fresh();
  accept(l.encode(old, 0, 0, 3, 0));
  accept(l.drop(half));
  fresh();
  accept(l.drop(half));
  accept(l.drop(young));
  accept(l.encode(old, 0, 0, 3, 0));
}

TEST_F(ledger, begin_forgets_the_plan_before) {
  sequence_view& v = s.running(20, 3);
  s.image(v, 10, 1);
  fresh();
  accept(l.encode(v, 0, 0, 1, 0));
  accept(l.run(v, 5, 0));
  fresh();
  EXPECT_FALSE(l.names(v));
  EXPECT_EQ(l.ready_limit(v), 10);
  EXPECT_EQ(l.free_rows(), 64);
  accept(l.evict(v, eviction::recompute));
  fresh();
  EXPECT_FALSE(l.evicts(v));
}

TEST_F(ledger, check_plan_says_which_item) {
  const sequence_view& a = s.running(40, 33, 0);
  const sequence_view& b = s.waiting(10);
  std::string where;
  const auto verdict = [&](const step_plan& p) {
    const scheduler_state now = s.state();
    const objection o = check_plan(now, p, l, where);
    return o ? where + ": " + o.text() : "";
  };
  step_plan p;
  EXPECT_EQ(verdict(p), "");
  p.run = {{b.id, 10, 0}, {a.id, 7, 0}};
  EXPECT_EQ(verdict(p), "");
  p.run.push_back({seq_id{17}, 1, 0});
  EXPECT_EQ(verdict(p), "run[2]: sequence 17: sequence is not live (wanted 17, have 2)");
  p.run[2] = {b.id, 1, 0};
  EXPECT_EQ(verdict(p), "run[2]: sequence 2: sequence named twice (wanted 2, have 1)");
  p.run.pop_back();
  p.empty_rows = 48;
  EXPECT_EQ(verdict(p), "empty_rows: more rows than max_num_batched_tokens leaves (wanted 48, have 47)");
  p.empty_rows = 47;
  EXPECT_EQ(verdict(p), "");
  p.evict = {{a.id}};
  EXPECT_EQ(verdict(p), "run[1]: sequence 1: sequence named twice (wanted 2, have 1)") << "evictions come first";
  p.drop = {{b.id, "late"}};
  EXPECT_EQ(verdict(p), "run[0]: sequence 2: sequence named twice (wanted 2, have 1)");
  p.run.clear();
  EXPECT_EQ(verdict(p), "");
  p.encode = {{a.id, 0, 0, 1, 0}};
  EXPECT_EQ(verdict(p), "encode[0]: sequence 1: no such image (wanted 0, have 0)");
}

class builder : public ledger {
 protected:
  step_plan plan;
  // A builder for the state as it is; one at a time.
  plan_builder& start() {
    b_.reset();
    plan.clear();
    now_.emplace(s.state());
    return b_.emplace(*now_, plan, l);
  }

 private:
  std::optional<scheduler_state> now_;
  std::optional<plan_builder> b_;
};

TEST_F(builder, try_run_takes_what_there_is) {
  const sequence_view& a = s.waiting(40);
  EXPECT_EQ(start().try_run(a), 40);
  EXPECT_EQ(plan.run, (std::vector<run_item>{{a.id, 40, 0}}));
  EXPECT_EQ(start().try_run(a, 7), 7);
  EXPECT_EQ(start().try_run(a, 0), 0);
  EXPECT_EQ(start().try_run(a, -5), 0);
  EXPECT_TRUE(plan.empty());
  s.lim.max_num_batched_tokens = 30;
  EXPECT_EQ(start().try_run(a), 30) << "rows";
  s.kv.free_blocks = 1;
  EXPECT_EQ(start().try_run(a), 16) << "blocks";
  s.kv.free_blocks = 0;
  EXPECT_EQ(start().try_run(a), 0);
  s.kv.free_blocks = 9;
  s.lim.max_num_seqs = 0;
  EXPECT_EQ(start().try_run(a), 0) << "sequences";
  EXPECT_TRUE(plan.empty());
}

TEST_F(builder, try_run_enters_a_sequence_once_and_counts) {
  s.lim.max_num_batched_tokens = 50;
  const sequence_view& a = s.waiting(40);
  const sequence_view& c = s.waiting(40);
  plan_builder& b = start();
  EXPECT_EQ(b.try_run(a), 40);
  EXPECT_EQ(b.try_run(a), 0);
  EXPECT_EQ(b.try_run(c), 10);
  EXPECT_EQ(plan.run, (std::vector<run_item>{{a.id, 40, 0}, {c.id, 10, 0}}));
}

TEST_F(builder, try_run_uses_the_room_in_the_last_block) {
  const sequence_view& v = s.running(40, 20, 0);  // two blocks of 16: 12 slots are free in the second
  s.kv.free_blocks = 0;
  EXPECT_EQ(start().try_run(v), 12);
}

TEST_F(builder, try_run_stops_where_images_are_not_ready) {
  sequence_view& v = s.waiting(60);
  s.image(v, 4, 2);  // tiles at 4 and 10
  s.image(v, 20, 1);
  EXPECT_EQ(start().try_run(v), 4);
  plan_builder& b = start();
  EXPECT_EQ(b.try_encode(v, 0, 1), 1);
  EXPECT_EQ(b.try_run(v), 10) << "an in-step lane has the first tile in time";
  plan_builder& all = start();
  EXPECT_TRUE(all.try_encode_all(v));
  EXPECT_TRUE(all.ready(v));
  EXPECT_EQ(all.try_run(v), 60);
  s.lanes[0].in_step = false;
  plan_builder& beside = start();
  EXPECT_TRUE(beside.try_encode_all(v)) << "under way";
  EXPECT_FALSE(beside.ready(v));
  EXPECT_EQ(beside.try_run(v), 4) << "a lane beside the step has not";
}

TEST_F(builder, try_run_takes_an_atomic_image_whole_or_not_at_all) {
  sequence_view& v = s.waiting(60);
  image_view& image = s.image(v, 4, 2, true);  // 4 to 14
  image.tiles_started = image.tiles_ready = 2;
  image.state = image_state::ready;
  EXPECT_EQ(start().try_run(v, 14), 4);
  EXPECT_EQ(start().try_run(v, 15), 15);
  EXPECT_EQ(start().try_run(v, 3), 3);
  v.computed_tokens = 4;
  EXPECT_EQ(start().try_run(v, 10), 0);
  EXPECT_EQ(start().try_run(v, 11), 11);
}

TEST_F(builder, try_run_padded_is_all_or_nothing) {
  const sequence_view& a = s.waiting(10);
  plan_builder& b = start();
  EXPECT_FALSE(b.try_run_padded(a, 11, 0));
  EXPECT_FALSE(b.try_run_padded(a, 10, 55));
  EXPECT_TRUE(plan.empty());
  EXPECT_TRUE(b.try_run_padded(a, 10, 50));
  EXPECT_FALSE(b.try_empty_rows(5));
  EXPECT_TRUE(b.try_empty_rows(3));
  EXPECT_TRUE(b.try_empty_rows(1));
  EXPECT_EQ(plan.run, (std::vector<run_item>{{a.id, 10, 50}}));
  EXPECT_EQ(plan.empty_rows, 4);
}

TEST_F(builder, try_promise_keeps_room_for_the_longest_answers) {
  s.running(20, 16, 0, 30);                   // holds 1 block, may come to 49 tokens: 4 blocks, so 3 more
  const sequence_view& a = s.waiting(33, 0);  // no answer: 3 blocks
  const sequence_view& c = s.waiting(32, 1);  // the only token of the answer is not stored: 2 blocks
  const sequence_view& d = s.waiting(32, 2);  // 33 stored: 3 blocks
  s.kv.free_blocks = 8;
  plan_builder& b = start();
  EXPECT_TRUE(b.try_promise(a));
  EXPECT_FALSE(b.try_promise(d)) << "3 + 3 + 3 > 8";
  EXPECT_TRUE(b.try_promise(c)) << "a refusal is not counted";
  EXPECT_FALSE(b.try_promise(c));
  EXPECT_TRUE(plan.empty()) << "a promise runs nothing";
}

TEST_F(builder, try_encode_stays_within_the_budget) {
  sequence_view& v = s.waiting(60);
  s.image(v, 0, 3);
  s.image(v, 20, 3);
  s.lim.max_encoder_tokens = 24;  // four tiles and a rest
  plan_builder& b = start();
  EXPECT_FALSE(b.try_encode_all(v));
  EXPECT_EQ(plan.encode, (std::vector<encode_item>{{v.id, 0, 0, 3, 0}, {v.id, 1, 0, 1, 0}}));
  EXPECT_EQ(b.try_encode(v, 1), 0);
  for (const std::size_t i : {0U, 1U}) {
    image_view& image = hand_made_state::edit(v, i);
    image.tiles_started = i == 0 ? 3 : 1;
  }
  EXPECT_TRUE(start().try_encode_all(v));
  EXPECT_EQ(plan.encode, (std::vector<encode_item>{{v.id, 1, 1, 2, 0}})) << "goes on where it stopped";
}

TEST_F(builder, lacks_blocks_and_fits_whole) {
  sequence_view& v = s.running(20, 16, 0, 30);  // its block is full
  s.kv.free_blocks = 0;
  EXPECT_TRUE(start().lacks_blocks(v));
  s.kv.free_blocks = 1;
  EXPECT_FALSE(start().lacks_blocks(v));
  EXPECT_TRUE(start().fits_whole(v)) << "21 tokens are two blocks";
  v.prompt_tokens = 32;
  EXPECT_FALSE(start().fits_whole(v)) << "with its first answer token 33";
  v.max_new_tokens = 1;
  EXPECT_TRUE(start().fits_whole(v)) << "but that one is never stored if it is the last";
  s.image(v, 16, 3, true);  // the next 17 tokens go together
  v.prompt_tokens = 40;
  EXPECT_TRUE(start().lacks_blocks(v)) << "two blocks, not one";
  s.kv.free_blocks = 2;
  EXPECT_FALSE(start().lacks_blocks(v));
  s.kv.free_blocks = 0;
  plan_builder& b = start();
  EXPECT_TRUE(b.try_evict(v));
  EXPECT_FALSE(b.lacks_blocks(v)) << "whoever is evicted asks for nothing";
}

TEST_F(builder, evict_drop_and_resume_are_entered_if_possible) {
  const sequence_view& runs = s.running(20, 16);
  const sequence_view& waits = s.waiting(10);
  sequence_view& swapped = s.waiting(10);
  swapped.where = phase::swapped;
  swapped.computed_tokens = 5;
  plan_builder& b = start();
  EXPECT_FALSE(b.try_evict(waits));
  EXPECT_TRUE(b.try_evict(runs));
  EXPECT_FALSE(b.try_evict(runs));
  EXPECT_EQ(b.try_run(runs), 0);
  EXPECT_FALSE(b.try_resume(waits));
  EXPECT_TRUE(b.try_resume(swapped));
  EXPECT_TRUE(b.try_drop(waits, "too late"));
  EXPECT_FALSE(b.try_drop(waits, "again"));
  EXPECT_EQ(plan.evict, (std::vector<evict_item>{{runs.id, eviction::recompute}}));
  EXPECT_EQ(plan.resume, (std::vector<seq_id>{swapped.id}));
  EXPECT_EQ(plan.drop, (std::vector<drop_item>{{waits.id, "too late"}}));
}

}  // namespace
}  // namespace vlbatch::testing
