// SPDX-License-Identifier: Apache-2.0
// When something goes wrong: nothing hangs, nothing else suffers, and the reason names the thing and both values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "support/fake_model.hpp"
#include "vlbatch/any_engine.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/run_loop.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const paged_kv pool{{.bytes = 0, .blocks = 64, .block_size = 16}};

// Plans what a test tells it to.
struct scripted {
  std::function<void(const scheduler_state&, step_plan&)> script;
  static constexpr std::string_view name() { return "scripted"; }
  [[nodiscard]] static vlbatch::limits limits() { return {.max_num_seqs = 2, .max_num_batched_tokens = 16, .max_encoder_tokens = 5}; }
  void plan(const scheduler_state& s, step_plan& p) { script(s, p); }
};

TEST(refusal, impossible_requests_are_refused_with_both_numbers_and_the_others_go_on) {
  fake_model model;
  engine e{model, paged_kv{{.bytes = 0, .blocks = 3, .block_size = 16}}, continuous{limits{.max_encoder_tokens = 12}}, parts<>{},
           engine_options{.encoder_cache = {.bytes = 2 * 5 * 4 * 4}}};
  auto outside = std::make_shared<prepared_request>(*prompt(3, 4));
  outside->tokens[2] = 97;
  const std::vector<request> requests = {ask(prompt(1, 4), 5),
                                         ask(prompt(2, 40), 9),                                       // 41 + 9 - 1 = 49 tokens of 48
                                         ask(outside, 3),                                             // token 97 of 97
                                         ask(prompt(4, 4, {picture(1), picture(2), picture(3)}), 3),  // 240 bytes of 160
                                         ask(std::make_shared<prepared_request>(), 3),                // nothing
                                         ask(prompt(5, 500), 30)};                                    // 531 positions of 512
  const std::vector<result> r = e.generate(requests);
  EXPECT_EQ(r[0].tokens, expected_tokens(*requests[0].prepared, 5));
  const std::vector<std::vector<std::string>> wanted = {
      {}, {"KV", "49", "48"}, {"vocabulary", "97"}, {"encoder cache", "240", "160"}, {"no tokens"}, {"positions", "531", "512"}};
  for (std::size_t i = 1; i < r.size(); ++i) {
    EXPECT_EQ(r[i].outcome, status::refused);
    for (const std::string& s : wanted[i]) EXPECT_THAT(r[i].reason, HasSubstr(s));
    EXPECT_TRUE(r[i].tokens.empty());
  }
  EXPECT_TRUE(e.idle());
}

TEST(refusal, a_request_of_exactly_the_pool_runs) {
  fake_model model;
  engine e{model, paged_kv{{.bytes = 0, .blocks = 3, .block_size = 16}}, continuous{}};
  const request r = ask(prompt(2, 40), 8);  // 41 + 8 - 1 = 48
  EXPECT_EQ(e.generate(std::vector{r})[0].tokens, expected_tokens(*r.prepared, 8));
  engine c{model, contiguous_kv{{.bytes = 0, .sequences = 2, .tokens_per_sequence = 48}}, continuous{}};
  EXPECT_EQ(c.generate(std::vector{r})[0].tokens, expected_tokens(*r.prepared, 8));
  const result longer = c.generate(std::vector{ask(prompt(2, 40), 9)})[0];
  EXPECT_EQ(longer.outcome, status::refused);
  EXPECT_THAT(longer.reason, HasSubstr("49"));
}

TEST(refusal, fields_out_of_range_name_the_field) {
  fake_model model;
  engine e{model, pool, continuous{}};
  const auto expect = [&](auto edit, const char* field) {
    request r = ask(prompt(1, 3), 3);
    edit(r);
    try {
      e.submit(r);
      ADD_FAILURE() << field;
    } catch (const invalid_argument& x) {
      EXPECT_THAT(x.what(), HasSubstr(field));
    }
    EXPECT_EQ(e.generate(std::vector{r})[0].outcome, status::refused);  // the list call does not throw away the others
  };
  expect([](request& r) { r.max_new_tokens = -5; }, "max_new_tokens");
  expect([](request& r) { r.sampling.temperature = -1.0F; }, "temperature");
  expect([](request& r) { r.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); }, "temperature");
  expect([](request& r) { r.sampling.temperature = std::numeric_limits<float>::infinity(); }, "temperature");
  expect([](request& r) { r.sampling.top_k = -1; }, "top_k");
  expect([](request& r) { r.sampling.top_p = 1.5F; }, "top_p");
  expect([](request& r) { r.sampling.top_p = std::numeric_limits<float>::quiet_NaN(); }, "top_p");
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, -0.1F, 1.1F}) expect([&](request& r) { r.sampling.min_p = bad; }, "min_p");
  for (const float bad : {nan, infinity, 0.0F, -1.0F})
    expect([&](request& r) { r.sampling.repetition_penalty = bad; }, "repetition_penalty");
  for (const float bad : {nan, infinity, -infinity}) {
    expect([&](request& r) { r.sampling.frequency_penalty = bad; }, "frequency_penalty");
    expect([&](request& r) { r.sampling.presence_penalty = bad; }, "presence_penalty");
  }
  for (const float bad : {nan, infinity}) expect([&](request& r) { r.sampling.logit_bias = {{1, bad}}; }, "logit_bias");
  expect([](request& r) { r.sampling.top_logprobs = -1; }, "top_logprobs");
  expect([](request& r) { r.prepared = nullptr; }, "messages");
  expect([](request& r) { r.messages.push_back({}); }, "messages");
  EXPECT_TRUE(e.idle());
}

TEST(refusal, sampling_beyond_the_vocabulary_names_both_numbers) {
  fake_model model;
  engine e{model, pool, continuous{}};
  for (const std::int32_t token : {-1, fake_model::vocab}) {
    request r = ask(prompt(1, 3), 3);
    r.sampling.logit_bias = {{token, 1.0F}};
    const result got = e.generate(std::vector{r})[0];
    EXPECT_EQ(got.outcome, status::refused);
    EXPECT_THAT(got.reason, AllOf(HasSubstr("logit_bias"), HasSubstr(std::to_string(token)), HasSubstr(std::to_string(fake_model::vocab))));
  }
  request r = ask(prompt(1, 3), 3);
  r.sampling.top_logprobs = fake_model::vocab + 1;
  EXPECT_THAT(e.generate(std::vector{r})[0].reason, AllOf(HasSubstr("top_logprobs is 98"), HasSubstr("97")));
  r.sampling.top_logprobs = fake_model::vocab;
  const result got = e.generate(std::vector{r})[0];
  EXPECT_EQ(got.outcome, status::finished);
  EXPECT_EQ(got.top_logprobs.size(), 3U * fake_model::vocab);
}

// What is banned is never generated, and a request whose every token is banned fails alone.
TEST(sampling, a_ban_of_everything_fails_that_request_alone) {
  fake_model model;
  engine e{model, pool, continuous{}};
  request all = ask(prompt(1, 3), 3);
  for (std::int32_t t = 0; t < fake_model::vocab; ++t) all.sampling.logit_bias.push_back({t, -std::numeric_limits<float>::infinity()});
  const request other = ask(prompt(2, 3), 5);
  request some = other;
  some.sampling.logit_bias = {{expected_tokens(*other.prepared, 1)[0], -std::numeric_limits<float>::infinity()}};
  const std::vector<result> got = e.generate(std::vector{other, all, some});
  EXPECT_EQ(got[0].tokens, expected_tokens(*other.prepared, 5));
  EXPECT_EQ(got[1].outcome, status::failed);
  EXPECT_THAT(got[1].reason, HasSubstr("logits of token 0"));
  EXPECT_EQ(got[2].outcome, status::finished);
  for (const std::int32_t t : got[2].tokens) EXPECT_NE(t, some.sampling.logit_bias[0].token);
}

TEST(refusal, impossible_engines_are_refused_at_construction) {
  fake_model model;
  EXPECT_THROW((engine{model, paged_kv{{.bytes = 10}}, continuous{}}), invalid_argument);
  EXPECT_THROW((paged_kv{{.block_size = 8}}), invalid_argument);
  EXPECT_THROW((paged_kv{{.block_size = 512}}), invalid_argument);
  EXPECT_THROW((engine{model, pool, continuous{limits{.max_num_seqs = 0}}}), invalid_argument);
  EXPECT_THROW((engine{model, pool, continuous{limits{.max_num_batched_tokens = 0}}}), invalid_argument);
}

TEST(length, zero_one_and_the_context_limit) {
  for (const std::int32_t n : {0, 1, 2, 495, 496}) {
    fake_model model;
    engine e{model, pool, continuous{}};
    const request r = ask(prompt(7, 15), n);
    const result got = e.generate(std::vector{r})[0];
    EXPECT_EQ(got.outcome, status::finished) << got.reason;
    EXPECT_EQ(got.finish, finish_reason::length);
    EXPECT_EQ(got.tokens, expected_tokens(*r.prepared, n));
    EXPECT_EQ(e.kv().usage().blocks_used, 0);
  }
}

TEST(plan_validation, an_illegal_plan_is_refused_whole_and_the_engine_goes_on) {
  fake_model model;
  using state = const scheduler_state&;
  const auto first = [](state s) { return s.table[s.waiting[0]].id; };
  const std::vector<std::pair<std::function<void(state, step_plan&)>, const char*>> cases = {
      {[&](state s, step_plan& p) {
         p.run.push_back({first(s), 99});
       },
       "run[0]"},
      {[&](state s, step_plan& p) {
         p.run.push_back({first(s), 0});
       },
       "fewer than one token"},
      {[&](state s, step_plan& p) {
         p.run.push_back({first(s), 1, -1});
       },
       "negative pad"},
      {[&](state s, step_plan& p) {
         p.run = {{first(s), 1}, {first(s), 1}};
       },
       "named twice (wanted 2, have 1)"},
      {[&](state s, step_plan& p) {
         p.run = {{first(s), 3, 20}};
       },
       "max_num_batched_tokens"},
      {[](state, step_plan& p) {
         p.run.push_back({seq_id{12345}, 1});
       },
       "sequence 12345: sequence is not live"},
      {[&](state s, step_plan& p) { p.evict.push_back({first(s)}); }, "only a running sequence"},
      {[&](state s, step_plan& p) { p.resume.push_back(first(s)); }, "only a swapped sequence"},
      {[&](state s, step_plan& p) {
         p.encode.push_back({first(s), 1, 0, 1});
       },
       "no such image (wanted 1, have 1)"},
      {[&](state s, step_plan& p) {
         p.encode.push_back({first(s), 0, 1, 1});
       },
       "first tile is not the next one"},
      {[&](state s, step_plan& p) {
         p.encode.push_back({first(s), 0, 0, 1, 4});
       },
       "no such vision lane"},
      {[&](state s, step_plan& p) {
         p.encode.push_back({first(s), 0, 0, 2});
       },
       "tile count out of range"},
      {[&](state s, step_plan& p) {
         p.run.push_back({first(s), 6});
       },
       "embeddings are not ready (wanted 6, have 5)"},
      {[](state, step_plan& p) { p.empty_rows = -1; }, "negative empty rows"},
      {[](state, step_plan& p) { p.empty_rows = 17; }, "empty_rows"},
      {[&](state s, step_plan& p) {
         for (const seq_slot w : s.waiting) p.run.push_back({s.table[w].id, 1});
       },
       "max_num_seqs (wanted 3, have 2)"},
  };
  for (const auto& [script, text] : cases) {
    engine e{model, pool, scripted{script}, parts<>{}, engine_options{.preparation_threads = 0}};
    for (int i = 0; i < 3; ++i) e.submit(ask(prompt(i, 4, {picture(1)}), 2));
    try {
      e.step();
      ADD_FAILURE() << text;
    } catch (const policy_error& x) {
      EXPECT_THAT(x.what(), HasSubstr(text));
      EXPECT_THAT(x.what(), HasSubstr("scripted"));
    }
    EXPECT_EQ(e.state().waiting.size(), 3U);  // intact
    EXPECT_EQ(e.kv().usage().blocks_used, 0);
    EXPECT_EQ(model.control().forwards, 0);
  }
}

TEST(plan_validation, more_blocks_than_are_free) {
  fake_model model;
  scripted greedy{[](const scheduler_state& s, step_plan& p) {
    for (const seq_slot w : s.waiting) p.run.push_back({s.table[w].id, 5});
  }};
  engine e{model, paged_kv{{.bytes = 0, .blocks = 1, .block_size = 16}}, greedy, parts<>{}, engine_options{.preparation_threads = 0}};
  e.submit(ask(prompt(1, 4), 2));
  e.submit(ask(prompt(2, 4), 2));
  EXPECT_THROW(e.step(), policy_error);
}

TEST(stall, a_policy_that_plans_nothing_is_named_and_nothing_is_lost) {
  fake_model model;
  bool lazy = true;
  continuous real;
  scripted p{[&](const scheduler_state& s, step_plan& plan) {
    if (!lazy) real.plan(s, plan);
  }};
  engine e{model, pool, p, parts<>{}, engine_options{.preparation_threads = 0}};
  const request r = ask(prompt(1, 4), 4);
  const seq_id id = e.submit(r);
  try {
    e.step();
    ADD_FAILURE();
  } catch (const policy_stalled& x) {
    EXPECT_THAT(x.what(), HasSubstr("1 waiting"));
  }
  lazy = false;
  e.run_until_idle();
  EXPECT_EQ(e.take(id)->tokens, expected_tokens(*r.prepared, 4));
}

TEST(stall, a_run_loop_tells_whoever_waits) {
  fake_model model;
  engine e{model, pool, scripted{[](const scheduler_state&, step_plan&) {}}};
  run_loop loop(e);
  const seq_id id = e.submit(ask(prompt(1, 4), 4));
  EXPECT_THROW(static_cast<void>(e.wait(id)), policy_stalled);
  EXPECT_FALSE(loop.alive());
}

TEST(stall, wake_at_and_later_arrivals_are_waited_for) {
  fake_model model;
  continuous real;
  const wall_clock clock;
  const time_point start = clock.now() + std::chrono::milliseconds(30);
  scripted p{[&](const scheduler_state& s, step_plan& plan) { s.now < start ? void(plan.wake_at = start) : real.plan(s, plan); }};
  engine e{model, pool, p, parts<>{}, engine_options{.preparation_threads = 0}};
  request r = ask(prompt(1, 4), 4);
  r.arrival = start + std::chrono::milliseconds(20);
  const result got = e.generate(std::vector{ask(prompt(2, 4), 4), r})[1];
  EXPECT_EQ(got.tokens, expected_tokens(*r.prepared, 4));
  EXPECT_GE(got.when.first_token, *r.arrival);
  EXPECT_EQ(got.when.arrival, *r.arrival);
}

TEST(model_failure, a_forward_that_throws_fails_the_requests_of_its_step_alone) {
  for (const bool unknown : {false, true}) {
    fake_model model;
    model.control().fail_forward_at = 3;
    model.control().unknown_exception = unknown;
    engine e{model, pool, sequential{}};
    std::vector<request> requests;
    for (int i = 0; i < 4; ++i) requests.push_back(ask(prompt(i, 5), 3));
    const std::vector<result> r = e.generate(requests);
    EXPECT_EQ(r[1].outcome, status::failed);
    EXPECT_THAT(r[1].reason, HasSubstr(unknown ? "unknown exception" : "device lost"));
    for (const std::size_t i : {0U, 2U, 3U}) EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, 3));
    EXPECT_EQ(e.kv().usage().blocks_used, 0);
  }
}

TEST(model_failure, a_picture_that_cannot_be_encoded_fails_its_requests_alone) {
  fake_model model;
  model.control().fail_tile_value = 13;
  const auto check = [&](auto vision) {
    engine e{model, pool, continuous{limits{.max_num_seqs = 4, .max_encoder_tokens = 60}}, parts<decltype(vision)>{}};
    const auto bad = picture(13, 2);
    std::vector<request> requests = {ask(prompt(1, 5, {picture(1)}), 3), ask(prompt(2, 5, {bad}), 3), ask(prompt(3, 5, {picture(2, 2)}), 3),
                                     ask(prompt(4, 5, {picture(1), bad}), 3)};
    for (int twice = 0; twice < 2; ++twice) {
      const std::vector<result> r = e.generate(requests);
      for (const std::size_t i : {0U, 2U}) EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, 3)) << r[i].reason;
      for (const std::size_t i : {1U, 3U}) {
        EXPECT_EQ(r[i].outcome, status::failed);
        EXPECT_THAT(r[i].reason, HasSubstr("bad tile"));
      }
    }
    EXPECT_EQ(e.kv().usage().blocks_used, 0);
    e.core().cache.clear_unused();
    EXPECT_EQ(e.core().cache.used_bytes(), 0);
  };
  check(inline_vision{});
  check(async_vision{});
}

TEST(model_failure, logits_that_are_not_finite_fail_one_request) {
  fake_model model;
  model.control().nan_token = 33;
  engine e{model, pool, continuous{}};
  auto poisoned = std::make_shared<prepared_request>(*prompt(2, 6));
  poisoned->tokens.back() = 33;
  auto clean = std::make_shared<prepared_request>(*prompt(1, 6));
  const std::vector<request> requests = {ask(clean, 2), ask(poisoned, 4)};
  const std::vector<result> r = e.generate(requests);
  EXPECT_EQ(r[0].tokens, expected_tokens(*clean, 2));
  EXPECT_EQ(r[1].outcome, status::failed);
  EXPECT_THAT(r[1].reason, HasSubstr("not finite"));
}

TEST(preparation, a_request_that_cannot_be_prepared_fails_alone) {
  for (const std::int32_t threads : {0, 1, 3}) {
    fake_model model;
    engine e{model, pool, continuous{}, parts<>{}, engine_options{.preparation_threads = threads}};
    const auto says = [](std::string text) {
      request r;
      r.messages = {{.role = "user", .parts = {text_part{std::move(text)}}}};
      r.max_new_tokens = 3;
      return r;
    };
    const std::vector<result> r = e.generate(std::vector{says("hello"), says("oh!"), says("there")});
    EXPECT_EQ(r[0].outcome, status::finished);
    EXPECT_EQ(r[1].outcome, status::failed);
    EXPECT_THAT(r[1].reason, HasSubstr("'!'"));
    EXPECT_EQ(r[2].outcome, status::finished);
    EXPECT_NE(r[0].when.prepared, never);
    EXPECT_LE(r[0].when.prepare_start, r[0].when.prepared);
    EXPECT_LE(r[0].when.prepared, r[0].when.first_scheduled);
    EXPECT_LE(r[0].when.first_scheduled, r[0].when.first_token);
    EXPECT_LE(r[0].when.first_token, r[0].when.last_token);
    EXPECT_LE(r[0].when.last_token, r[0].when.finished);
  }
}

TEST(callbacks, tokens_stream_in_order_and_pieces_make_the_text) {
  fake_model model;
  engine e{model, pool, continuous{limits{.max_num_seqs = 3}}};
  std::vector<std::string> streamed(6);
  std::vector<std::vector<std::int32_t>> tokens(6);
  std::vector<request> requests;
  for (std::size_t i = 0; i < 6; ++i) {
    request r = ask(prompt(static_cast<std::int32_t>(i), 5), 9);
    r.on_token = [&, i](const token_event& t) {
      EXPECT_EQ(t.index, static_cast<std::int32_t>(tokens[i].size()));
      tokens[i].push_back(t.token);
      streamed[i] += t.text;
    };
    requests.push_back(r);
  }
  const std::vector<result> r = e.generate(requests);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(tokens[i], r[i].tokens);
    EXPECT_EQ(streamed[i], r[i].text);
  }
}

TEST(callbacks, one_that_throws_fails_its_request_alone) {
  fake_model model;
  engine e{model, pool, continuous{}};
  std::vector<request> requests = {ask(prompt(1, 5), 6), ask(prompt(2, 5), 6), ask(prompt(3, 5), 6)};
  int count = 0;
  requests[1].on_token = [&](const token_event&) {
    if (++count == 3) throw std::runtime_error("reader went away");
  };
  requests[2].on_finish = [](const result&) { throw 7; };
  const std::vector<result> r = e.generate(requests);
  EXPECT_EQ(r[0].tokens, expected_tokens(*requests[0].prepared, 6));
  EXPECT_EQ(r[1].outcome, status::failed);
  EXPECT_THAT(r[1].reason, HasSubstr("reader went away"));
  EXPECT_EQ(r[1].tokens.size(), 3U);
  EXPECT_EQ(r[2].outcome, status::failed);
  EXPECT_THAT(r[2].reason, HasSubstr("on_finish"));
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
}

TEST(callbacks, results_with_on_finish_are_not_kept) {
  fake_model model;
  engine e{model, pool, continuous{}};
  request r = ask(prompt(1, 5), 2);
  int calls = 0;
  r.on_finish = [&](const result& x) { calls += x.outcome == status::finished ? 1 : 100; };
  const seq_id id = e.submit(r);
  e.run_until_idle();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(e.take(id).has_value());
}

TEST(cancel, in_every_phase) {
  fake_model model;
  model.control().encode_us = 2000;
  engine e{model, pool, sequential{limits{.max_num_batched_tokens = 4}}, parts<async_vision>{}};
  request later = ask(prompt(9, 5), 4);
  later.arrival = wall_clock{}.now() + std::chrono::hours(1);
  const seq_id future = e.submit(later);
  e.cancel(future);
  const seq_id encoding = e.submit(ask(prompt(1, 9, {picture(1)}), 40));
  while (e.state().lanes[0].tiles_in_flight == 0) e.step();
  e.cancel(encoding);
  const seq_id waiting = e.submit(ask(prompt(2, 9), 40));
  const seq_id survivor = e.submit(ask(prompt(3, 9), 5));
  const seq_id running = e.submit(ask(prompt(0, 9), 40));
  e.cancel(waiting);
  e.run_until_idle();
  EXPECT_EQ(e.take(future)->outcome, status::cancelled);
  EXPECT_EQ(e.take(encoding)->outcome, status::cancelled);
  EXPECT_EQ(e.take(waiting)->outcome, status::cancelled);
  EXPECT_EQ(e.take(survivor)->tokens, expected_tokens(*prompt(3, 9), 5));
  EXPECT_EQ(e.take(running)->outcome, status::finished);
  const seq_id decoding = e.submit(ask(prompt(0, 9), 40));
  while (e.stats().output_tokens < 5 + 40 + 3) e.step();
  e.cancel(decoding);
  e.cancel(decoding);        // twice is no error
  e.cancel(seq_id{424242});  // unknown is no error
  e.run_until_idle();
  const result r = *e.take(decoding);
  EXPECT_EQ(r.outcome, status::cancelled);
  EXPECT_GE(r.tokens.size(), 3U);  // what was there is not thrown away
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
}

TEST(stop_strings, the_answer_ends_before_the_stop_and_nothing_is_lost) {
  fake_model model;
  engine e{model, pool, continuous{}};
  const auto p = prompt(5, 6);
  const result whole = e.generate(std::vector{ask(p, 20)})[0];
  ASSERT_EQ(whole.text.size(), 20U);
  request r = ask(p, 20);
  r.stop = {"", "never there", whole.text.substr(7, 3)};
  std::string streamed;
  r.on_token = [&](const token_event& t) { streamed += t.text; };
  const result cut = e.generate(std::vector{r})[0];
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(r.stop[2])));
  EXPECT_EQ(cut.finish, finish_reason::stop);
  EXPECT_EQ(streamed, cut.text);
  r.stop = {whole.text.substr(18, 2) + "x"};  // held back at the end, and text after all
  streamed.clear();
  const result held = e.generate(std::vector{r})[0];
  EXPECT_EQ(held.text, whole.text);
  EXPECT_EQ(streamed, whole.text);
  EXPECT_EQ(held.finish, finish_reason::length);
}

TEST(encoder_sharing, a_picture_used_twice_is_encoded_once_and_only_if_sharing_is_on) {
  for (const bool reuse : {true, false}) {
    fake_model model;
    engine e{model, pool, continuous{limits{.max_num_seqs = 8, .max_encoder_tokens = 100}}, parts<async_vision>{},
             engine_options{.encoder_cache = {.reuse = reuse}}};
    std::vector<request> requests;
    for (int i = 0; i < 12; ++i) requests.push_back(ask(prompt(i, 3, {picture(5)}), 3));
    const std::vector<result> r = e.generate(requests);
    for (std::size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, 3));
    EXPECT_EQ(model.control().tiles, reuse ? 1 : 12);
    EXPECT_EQ(e.core().cache.used_bytes(), reuse ? 5 * 4 * 4 : 0);
  }
}

TEST(encoder_sharing, equal_keys_with_different_content_do_not_hit) {
  fake_model model;
  engine e{model, pool, continuous{}};
  auto a = std::make_shared<pixel_tiles>(*picture(5));
  auto b = std::make_shared<pixel_tiles>(*picture(6));
  b->key = a->key;
  const std::vector<request> requests = {ask(prompt(1, 3, {a}), 3), ask(prompt(1, 3, {b}), 3)};
  const std::vector<result> r = e.generate(requests);
  EXPECT_EQ(r[0].tokens, expected_tokens(*requests[0].prepared, 3));
  EXPECT_EQ(r[1].tokens, expected_tokens(*requests[1].prepared, 3));
  EXPECT_EQ(model.control().tiles, 2);
}

TEST(threads, submit_and_cancel_from_many_threads_beside_a_run_loop) {
  fake_model model;
  model.control().encode_us = 50;
  engine e{model, pool, continuous{limits{.max_num_seqs = 6, .max_num_batched_tokens = 64}}, parts<async_vision>{},
           engine_options{.preparation_threads = 2}};
  std::atomic<int> wrong{0};
  {
    run_loop loop(e);
    std::vector<std::thread> users;
    for (int u = 0; u < 4; ++u) {
      users.emplace_back([&, u] {
        for (int i = 0; i < 25; ++i) {
          const auto p = prompt(u * 100 + i, 3 + i % 9,
                                i % 2 == 0 ? std::vector<std::shared_ptr<const pixel_tiles>>{picture(static_cast<std::uint8_t>(i))}
                                           : std::vector<std::shared_ptr<const pixel_tiles>>{});
          const seq_id id = e.submit(ask(p, 6));
          if (i % 5 == 4) e.cancel(id);
          const result r = e.wait(id);
          if (i % 5 == 4 ? r.outcome != status::cancelled && r.outcome != status::finished : r.tokens != expected_tokens(*p, 6)) ++wrong;
        }
      });
    }
    std::vector<request> list(10, ask(prompt(1, 4), 5));
    for (const result& r : e.generate(list)) wrong += r.tokens == expected_tokens(*list[0].prepared, 5) ? 0 : 1;
    for (std::thread& t : users) t.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(e.idle());
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
  EXPECT_THROW(static_cast<void>(e.wait(seq_id{1})), error);  // nobody steps any more: an error, not a hang
}

TEST(any_engine, is_the_same_engine_behind_one_type) {
  fake_model model;
  std::vector<any_engine> engines;
  engines.push_back(any_engine::make(model, pool, continuous{}, parts<async_vision>{}));
  engines.push_back(any_engine::make(model, contiguous_kv{{.bytes = 0, .sequences = 2}}, sequential{}));
  EXPECT_EQ(engines[0].policy() + engines[0].kv() + engines[0].vision(), "continuouspagedasync");
  EXPECT_EQ(engines[1].policy() + engines[1].kv() + engines[1].vision(), "sequentialcontiguousinline");
  for (any_engine& e : engines) {
    const request r = ask(prompt(4, 8, {picture(2)}), 7);
    EXPECT_EQ(e.generate(std::vector{r})[0].tokens, expected_tokens(*r.prepared, 7));
    const seq_id id = e.submit(r);
    while (!e.idle()) e.step();
    EXPECT_EQ(e.take(id)->tokens, expected_tokens(*r.prepared, 7));
    EXPECT_EQ(e.usage().blocks_used, 0);
  }
}

TEST(weights, one_model_serves_two_engines_at_once) {
  fake_model model;
  std::atomic<int> wrong{0};
  const auto work = [&](int seed) {
    engine e{model, pool, continuous{}};
    for (int i = 0; i < 20; ++i) {
      const request r = ask(prompt(seed + i, 6, {picture(static_cast<std::uint8_t>(i))}), 5);
      wrong += e.generate(std::vector{r})[0].tokens == expected_tokens(*r.prepared, 5) ? 0 : 1;
    }
  };
  std::thread other(work, 1000);
  work(0);
  other.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace vlbatch::testing
