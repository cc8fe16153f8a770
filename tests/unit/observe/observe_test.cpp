// SPDX-License-Identifier: Apache-2.0
// Latencies and timelines of runs made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vlbatch/observe/latency_recorder.hpp"
#include "vlbatch/observe/observers.hpp"
#include "vlbatch/observe/timeline.hpp"

namespace vlbatch {

static void PrintTo(const timeline_segment& s, std::ostream* out) {
  const auto ms = [](time_point t) { return static_cast<double>(t.time_since_epoch().count()) * 1e-6; };
  *out << name_of(s.what) << " " << ms(s.begin) << ".." << ms(s.end);
}

namespace {

using ::testing::ElementsAre;

time_point at_ms(double ms) { return time_point(duration(static_cast<std::int64_t>(ms * 1e6))); }

sequence_view view_of(std::uint64_t id, time_point last) {
  sequence_view v;
  v.id = seq_id{id};
  v.last_token = last;
  return v;
}

result ended(std::uint64_t id, time_point arrival, time_point first, time_point last, status s = status::finished) {
  result r;
  r.id = seq_id{id};
  r.outcome = s;
  r.when.arrival = arrival;
  r.when.first_token = first;
  r.when.last_token = last;
  r.when.finished = last;
  return r;
}

// A request that arrives at \p arrival and has its tokens at \p tokens.
void run(latency_recorder& r, std::uint64_t id, double arrival, const std::vector<double>& tokens, status s = status::finished) {
  for (const double t : tokens) r.on_token(view_of(id, at_ms(t)));
  r.on_finish(ended(id, at_ms(arrival), tokens.empty() ? never : at_ms(tokens.front()), tokens.empty() ? never : at_ms(tokens.back()), s));
}

TEST(latency_recorder, the_worked_example) {
  latency_recorder r;
  std::vector<double> tokens;
  for (int i = 0; i < 11; ++i) tokens.push_back(1500 + 10 * i);
  run(r, 1, 1000, tokens);
  const latencies l = r.summary();
  EXPECT_DOUBLE_EQ(l.ttft.mean.value(), 500);
  EXPECT_DOUBLE_EQ(l.tpot.mean.value(), 10);
  EXPECT_DOUBLE_EQ(l.itl.mean.value(), 10);
  EXPECT_DOUBLE_EQ(l.itl.p90.value(), 10) << "ten intervals are enough for a p90";
  EXPECT_FALSE(l.itl.p99);
  EXPECT_DOUBLE_EQ(l.e2e.mean.value(), 600);
  EXPECT_DOUBLE_EQ(l.e2e.p50.value(), 600);
  EXPECT_FALSE(l.e2e.p90) << "one value";
}

TEST(latency_recorder, a_request_of_one_token_has_no_tpot_and_no_itl) {
  latency_recorder r;
  run(r, 1, 0, {70});
  EXPECT_DOUBLE_EQ(r.summary().ttft.mean.value(), 70);
  EXPECT_DOUBLE_EQ(r.summary().e2e.mean.value(), 70);
  EXPECT_EQ(r.summary().tpot, latency_summary{});
  EXPECT_EQ(r.summary().itl, latency_summary{});
}

TEST(latency_recorder, tpot_is_one_value_a_request_and_itl_is_pooled) {
  latency_recorder r;
  run(r, 1, 0, {100, 110});                 // TPOT 10, one interval
  run(r, 2, 0, {100, 130, 160, 190, 220});  // TPOT 30, four intervals
  EXPECT_DOUBLE_EQ(r.summary().tpot.mean.value(), 20);
  EXPECT_DOUBLE_EQ(r.summary().itl.mean.value(), 26) << "(10 + 4 * 30) / 5";
}

TEST(latency_recorder, tokens_of_several_requests_may_interleave) {
  latency_recorder r;
  for (const double t : {10.0, 20.0, 30.0}) {
    r.on_token(view_of(1, at_ms(t)));
    r.on_token(view_of(2, at_ms(t + 5)));
  }
  r.on_finish(ended(1, at_ms(0), at_ms(10), at_ms(30)));
  r.on_finish(ended(2, at_ms(0), at_ms(15), at_ms(35)));
  EXPECT_DOUBLE_EQ(r.summary().itl.mean.value(), 10);
  EXPECT_DOUBLE_EQ(r.summary().ttft.mean.value(), 12.5);
}

TEST(latency_recorder, counts_only_what_finished) {
  latency_recorder r;
  run(r, 1, 0, {50, 60}, status::cancelled);
  run(r, 2, 0, {}, status::refused);
  run(r, 3, 0, {50, 60}, status::failed);
  EXPECT_EQ(r.summary().ttft, latency_summary{});
  EXPECT_EQ(r.summary().e2e, latency_summary{});
  EXPECT_EQ(r.summary().itl, latency_summary{});
  run(r, 4, 0, {5});
  EXPECT_DOUBLE_EQ(r.summary().ttft.mean.value(), 5);
}

TEST(latency_recorder, copies_share_and_clear_forgets) {
  latency_recorder mine;
  latency_recorder engines = mine;
  run(engines, 1, 0, {5});
  EXPECT_DOUBLE_EQ(mine.summary().ttft.mean.value(), 5);
  mine.clear();
  EXPECT_EQ(engines.summary().ttft, latency_summary{});
}

TEST(summarise, percentiles_interpolate_and_need_enough_values) {
  EXPECT_EQ(summarise({}), latency_summary{});
  EXPECT_EQ(summarise({4.0}), (latency_summary{4.0, 4.0, {}, {}}));
  EXPECT_EQ(summarise({4.0, 1.0}), (latency_summary{2.5, 2.5, {}, {}}));
  std::vector<double> values;
  for (int i = 10; i >= 1; --i) values.push_back(i);
  EXPECT_EQ(summarise(values).p50, 5.5);
  EXPECT_NEAR(summarise(values).p90.value(), 9.1, 1e-12) << "place 0.9 * 9 = 8.1: between the 9th and the 10th";
  values.pop_back();
  EXPECT_FALSE(summarise(values).p90) << "nine values";
  values.assign(999, 1.0);
  EXPECT_FALSE(summarise(values).p99);
  values.push_back(1.0);
  EXPECT_EQ(summarise(values).p99, 1.0);
  for (int i = 0; i < 1000; ++i) values[static_cast<std::size_t>(i)] = i;
  EXPECT_NEAR(summarise(values).p99.value(), 989.01, 1e-9);
}

struct counting_observer {
  int tokens = 0;
  void on_token(const sequence_view&) { ++tokens; }
};
struct step_observer {
  std::int32_t rows = 0;
  void on_step(const step_report& r) { rows += r.rows; }
};

TEST(observers, each_hook_goes_to_all_that_have_it) {
  latency_recorder latency;
  observers<latency_recorder, null_observer, step_observer, counting_observer> all(latency, {}, {}, {});
  all.on_token(view_of(1, at_ms(3)));
  all.on_step({.rows = 5});
  all.on_evict(seq_id{1}, at_ms(4));
  all.on_finish(ended(1, at_ms(0), at_ms(3), at_ms(3)));
  EXPECT_DOUBLE_EQ(latency.summary().ttft.mean.value(), 3);
}

MATCHER_P3(segment, what, begin, end, "") { return arg.what == what && arg.begin == at_ms(begin) && arg.end == at_ms(end); }

step_report step(double begin, double end, std::span<const run_item> run, std::int32_t empty_rows = 0) {
  return {.launched = at_ms(begin), .computed = at_ms(end), .empty_rows = empty_rows, .run = run};
}

TEST(timeline_recorder, a_lockstep_run_made_by_hand) {
  timeline_recorder r;
  const run_item first[] = {{seq_id{1}, 6, 0}, {seq_id{2}, 2, 4}};  // the second one's prompt is padded to the first one's
  r.on_token(view_of(1, at_ms(20)));
  r.on_token(view_of(2, at_ms(20)));
  r.on_step(step(10, 20, first));
  const run_item second[] = {{seq_id{1}, 1, 0}, {seq_id{2}, 1, 0}};
  r.on_token(view_of(1, at_ms(25)));
  r.on_token(view_of(2, at_ms(25)));
  result one = ended(1, at_ms(1), at_ms(20), at_ms(25));
  one.when.prepare_start = at_ms(2);
  one.when.prepared = at_ms(4);
  one.when.encode_start = at_ms(5);
  one.when.encoded = at_ms(9);
  r.on_finish(one);
  r.on_step(step(20, 25, second));
  const run_item third[] = {{seq_id{2}, 1, 0}};
  r.on_token(view_of(2, at_ms(40)));
  r.on_finish(ended(2, at_ms(1), at_ms(20), at_ms(40)));
  r.on_step(step(25, 40, third, 1));  // one empty row: sequence 1 is computed on

  ASSERT_EQ(r.rows().size(), 2U);
  const timeline_row& a = r.rows()[0];
  EXPECT_EQ(a.id, seq_id{1});
  EXPECT_EQ(a.arrival, at_ms(1));
  EXPECT_EQ(a.finished, at_ms(25));
  EXPECT_THAT(a.segments,
              ElementsAre(segment(activity::waiting, 1, 25), segment(activity::preparing, 2, 4), segment(activity::encoding, 5, 9),
                          segment(activity::prefill, 10, 20), segment(activity::decode, 20, 25), segment(activity::padding, 25, 40)));
  EXPECT_THAT(r.rows()[1].segments,
              ElementsAre(segment(activity::waiting, 1, 40), segment(activity::padding, 10, 20), segment(activity::decode, 20, 40)));
}

TEST(timeline_recorder, steps_that_follow_each_other_are_one_stretch_and_a_pause_is_seen) {
  timeline_recorder r;
  const run_item prefill[] = {{seq_id{1}, 3, 0}};
  const run_item decode[] = {{seq_id{1}, 1, 0}};
  r.on_step(step(0, 5, prefill));
  r.on_step(step(5.1, 10, prefill));  // a second chunk
  r.on_token(view_of(1, at_ms(12)));
  r.on_step(step(10, 12, prefill));
  r.on_step(step(12, 14, decode));
  r.on_step(step(14.5, 16, decode));
  r.on_step(step(30, 32, decode));  // paused in between
  ASSERT_EQ(r.rows().size(), 1U);
  EXPECT_THAT(r.rows()[0].segments,
              ElementsAre(segment(activity::prefill, 0, 12), segment(activity::decode, 12, 16), segment(activity::decode, 30, 32)));
}

TEST(timeline_recorder, a_request_that_never_ran_has_a_row) {
  timeline_recorder r;
  timeline_recorder copy = r;
  result refused = ended(4, at_ms(3), never, never, status::refused);
  refused.when.finished = at_ms(7);
  copy.on_finish(refused);
  ASSERT_EQ(r.rows().size(), 1U);
  EXPECT_EQ(r.rows()[0].id, seq_id{4});
  EXPECT_THAT(r.rows()[0].segments, ElementsAre(segment(activity::waiting, 3, 7)));
}

TEST(timeline_recorder, who_ended_in_the_first_step_of_a_batch_is_padded_too) {
  timeline_recorder r;
  const run_item first[] = {{seq_id{1}, 2, 0}, {seq_id{2}, 2, 0}};
  r.on_token(view_of(1, at_ms(1)));
  r.on_finish(ended(1, at_ms(0), at_ms(1), at_ms(1)));
  r.on_token(view_of(2, at_ms(1)));
  r.on_step(step(0, 1, first));
  const run_item second[] = {{seq_id{2}, 1, 0}};
  r.on_step(step(1, 3, second, 1));
  EXPECT_THAT(r.rows()[0].segments,
              ElementsAre(segment(activity::waiting, 0, 1), segment(activity::prefill, 0, 1), segment(activity::padding, 1, 3)));
}

TEST(timeline_recorder, a_new_batch_does_not_pad_for_the_sequences_of_the_last_one) {
  timeline_recorder r;
  const run_item first[] = {{seq_id{1}, 1, 0}};
  r.on_token(view_of(1, at_ms(1)));
  r.on_finish(ended(1, at_ms(0), at_ms(1), at_ms(1)));
  r.on_step(step(0, 1, first));
  const run_item second[] = {{seq_id{2}, 4, 0}};
  r.on_step(step(1, 2, second, 4));
  EXPECT_THAT(r.rows()[0].segments, ElementsAre(segment(activity::waiting, 0, 1), segment(activity::prefill, 0, 1)));
}

}  // namespace
}  // namespace vlbatch
