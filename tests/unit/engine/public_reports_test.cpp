// SPDX-License-Identifier: Apache-2.0
// Faults that users of other engines reported, as far as other tests do not have their input already: tests/README.md lists them by number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "parity/golden.hpp"
#include "support/fake_model.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using small_model = idefics3<cpu>;
const small_model& small() {
  static const small_model loaded = small_model::load(golden_model_folder("smolvlm-bf16-tied-sharded"));
  return loaded;
}

request question(std::shared_ptr<const image_buffer> picture, std::string text, std::int32_t tokens) {
  request r;
  r.messages = {{.role = "user", .parts = {}}};
  if (picture) r.messages[0].parts.emplace_back(image_part{std::move(picture)});
  r.messages[0].parts.emplace_back(text_part{std::move(text)});
  r.max_new_tokens = tokens;
  r.ignore_eos = true;
  return r;
}

std::vector<result> answers(const std::vector<request>& requests, const limits& lim, bool reuse = true) {
  engine e{small(), paged_kv{{.bytes = 0, .blocks = 300, .block_size = 16}}, continuous{lim}, parts<inline_vision>{},
           engine_options{.threads = 1, .encoder_cache = {.reuse = reuse}}};
  return e.generate(requests);
}

void expect_equal(const std::vector<result>& a, const std::vector<result>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].outcome, status::finished) << a[i].reason;
    EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
    EXPECT_EQ(a[i].prompt_tokens, b[i].prompt_tokens) << i;
  }
}

// 10: greedy answers changed with the batch size; 25: with 32 prompts or more pictures and placeholders got out of step.
TEST(public_reports, r010_r025_calls_of_1_31_32_33_and_64_pictures_of_mixed_sizes_equal_single_calls) {
  std::vector<request> all;
  for (int i = 0; i < 64; ++i)
    all.push_back(question(golden_picture(i, 20 + i * 7 % 90, 10 + i * 11 % 70), "Picture number " + std::to_string(i), 3));
  std::vector<result> alone;
  for (const request& r : all) alone.push_back(answers({r}, {.max_num_seqs = 1}).front());
  for (const std::size_t n : {1U, 31U, 32U, 33U, 64U}) {
    expect_equal(answers({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n)}, {.max_num_seqs = 64}),
                 {alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(n)});
  }
}

// 32: pictures that differ in one patch were taken for each other.
TEST(public_reports, r032_pictures_that_differ_in_one_patch_are_told_apart_under_concurrency) {
  std::vector<request> all;
  for (int i = 0; i < 32; ++i) {
    auto p = std::make_shared<image_buffer>(*golden_picture(1, 64, 64));
    for (std::size_t y = 0; y < 8; ++y) {
      for (std::size_t x = 0; x < 8; ++x)
        p->pixels[((y + static_cast<std::size_t>(i / 8 * 8)) * 64 + x + static_cast<std::size_t>(i % 8 * 8)) * 3] ^= 255;
    }
    all.push_back(question(p, "Which way out?", 3));
  }
  expect_equal(answers(all, {.max_num_seqs = 32}, true), answers(all, {.max_num_seqs = 32}, false));
}

// 130, 132, 142: rows with and without sampling in one batch.
TEST(public_reports, r130_r132_r142_seeded_and_greedy_rows_in_one_batch_keep_to_themselves) {
  request greedy = question(nullptr, "Tell me more.", 8);
  request seeded = greedy;
  seeded.sampling = {.temperature = 0.8F, .seed = 42};
  const result greedy_alone = answers({greedy}, {}).front();
  const result seeded_alone = answers({seeded}, {}).front();
  EXPECT_NE(greedy_alone.tokens, seeded_alone.tokens);
  engine e{small(), paged_kv{{.bytes = 1 << 20}}, continuous{}, parts<inline_vision>{}, engine_options{.threads = 1}};
  for (int i = 0; i < 20; ++i) {
    request noise = greedy;
    noise.sampling = {.temperature = 1.5F, .seed = static_cast<std::uint64_t>(i)};
    const std::vector<result> r = e.generate(std::vector{noise, greedy, seeded});
    EXPECT_EQ(r[1].tokens, greedy_alone.tokens);
    EXPECT_EQ(r[2].tokens, seeded_alone.tokens);
  }
}

// 45: every slot was promised the whole cache, and on exhaustion all were aborted.
TEST(public_reports, r045_four_requests_of_600_tokens_share_a_cache_of_1024) {
  fake_model model;
  model.edit_info().max_positions = 1024;
  std::vector<request> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(ask(prompt(i, 399), 200));
  engine e{model, paged_kv{{.bytes = 0, .blocks = 64, .block_size = 16}}, continuous{limits{.max_num_seqs = 4}}};
  const std::vector<result> r = e.generate(requests);
  for (std::size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, 200)) << r[i].reason;
  EXPECT_GT(e.stats().preemptions, 0);
}

// 47: an empty prompt hung the server.
TEST(public_reports, r047_empty_and_blank_texts_are_answered) {
  for (const char* text : {"", " ", "  \n"}) {
    const result r = answers({question(nullptr, text, 3)}, {}).front();
    EXPECT_EQ(r.outcome, status::finished) << r.reason;
    EXPECT_EQ(r.tokens.size(), 3U);
  }
}

// 50: two pictures, an encoder budget that holds one: a livelock.
TEST(public_reports, r050_two_pictures_of_more_than_half_the_encoder_cache_are_refused_at_once_or_finish) {
  fake_model model;
  constexpr std::int64_t a_tile = fake_model::per_tile * fake_model::hidden * 4;
  const request two = ask(prompt(1, 3, {picture(1, 3), picture(2, 3)}), 4);
  for (const std::int64_t tiles : {5, 6}) {
    engine e{model, paged_kv{{.bytes = 0, .blocks = 20, .block_size = 16}}, continuous{limits{.max_num_batched_tokens = 12}},
             parts<async_vision>{}, engine_options{.threads = 2, .encoder_cache = {.bytes = tiles * a_tile}}};
    const result r = e.generate(std::vector{two})[0];
    if (tiles < 6) {
      EXPECT_EQ(r.outcome, status::refused);
      EXPECT_THAT(r.reason, AllOf(HasSubstr(std::to_string(6 * a_tile)), HasSubstr(std::to_string(5 * a_tile))));
    } else {
      EXPECT_EQ(r.tokens, expected_tokens(*two.prepared, 4)) << r.reason;
    }
  }
}

// 53, 54: after a preemption the answer was incomplete, or its own tokens were forgotten; the stream repeated itself.
TEST(public_reports, r053_r054_the_stream_of_a_preempted_request_has_no_gap_and_no_repetition) {
  fake_model model;
  std::vector<request> requests;
  std::vector<std::string> streamed(4);
  std::vector<std::int32_t> next(4, 0);
  for (int i = 0; i < 4; ++i) {
    requests.push_back(ask(prompt(i, 14), 40));
    requests.back().on_token = [&, i = static_cast<std::size_t>(i)](const token_event& t) {
      EXPECT_EQ(t.index, next[i]++);
      streamed[i] += t.text;
    };
  }
  engine e{model, paged_kv{{.bytes = 0, .blocks = 6, .block_size = 16}}, continuous{limits{.max_num_seqs = 4}}};
  const std::vector<result> r = e.generate(requests);
  std::int32_t preempted = 0;
  for (std::size_t i = 0; i < r.size(); ++i) {
    EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, 40));
    EXPECT_EQ(streamed[i], r[i].text);
    preempted += r[i].preemptions > 0 ? 1 : 0;
  }
  EXPECT_GE(preempted, 2);
  EXPECT_GT(e.stats().recomputed_tokens, 5);
}

// 57: one token, or none, alone and among others.
TEST(public_reports, r057_answers_of_one_token_and_of_none_among_others) {
  fake_model model;
  engine e{model, paged_kv{{.bytes = 0, .blocks = 40, .block_size = 16}}, continuous{limits{.max_num_seqs = 8}}};
  for (const std::int32_t n : {0, 1}) {
    std::vector<request> requests;
    for (int i = 0; i < 8; ++i) requests.push_back(ask(prompt(i, 10), i == 3 ? n : 9));
    const std::vector<result> r = e.generate(requests);
    for (std::size_t i = 0; i < r.size(); ++i) {
      EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, requests[i].max_new_tokens));
      EXPECT_EQ(r[i].finish, finish_reason::length);
    }
    EXPECT_EQ(e.kv().usage().blocks_used, 0);
  }
}

// 67: all running requests cancelled between two steps.
TEST(public_reports, r067_thirty_two_running_requests_are_cancelled_at_once) {
  fake_model model;
  engine e{model, paged_kv{{.bytes = 0, .blocks = 128, .block_size = 16}}, continuous{limits{.max_num_seqs = 32}}};
  std::vector<seq_id> ids;
  for (int i = 0; i < 32; ++i) ids.push_back(e.submit(ask(prompt(i, 5), 40)));
  while (e.state().running.size() < 32) e.step();
  for (const seq_id id : ids) e.cancel(id);
  e.run_until_idle();
  for (const seq_id id : ids) EXPECT_EQ(e.take(id)->outcome, status::cancelled);
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
}

// 68: after a preemption the loop broke off early and starved all decoders.
TEST(public_reports, r068_while_others_are_preempted_every_running_sequence_decodes_in_every_step) {
  fake_model model;
  engine e{model, paged_kv{{.bytes = 0, .blocks = 9, .block_size = 16}},
           continuous{limits{.max_num_seqs = 6, .max_num_batched_tokens = 20}}, parts<>{}, engine_options{.preparation_threads = 0}};
  for (int i = 0; i < 12; ++i) e.submit(ask(prompt(i, 14), 50));
  while (!e.idle()) {
    std::map<seq_id, std::int32_t> before;
    const scheduler_state s = e.state();
    for (const seq_slot slot : s.running)
      if (s.table[slot].remaining() == 1) before[s.table[slot].id] = s.table[slot].generated_tokens;
    e.step();
    const scheduler_state after = e.state();
    for (const seq_slot slot : after.running) {
      const auto it = before.find(after.table[slot].id);
      if (it == before.end()) continue;
      EXPECT_EQ(after.table[slot].generated_tokens, it->second + 1);
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(e.stats().preemptions, 3);
}

// 70, 71: a destructor that waited for ever, for a worker that had nothing to do or held a request.
TEST(public_reports, r070_r071_an_engine_that_never_worked_or_holds_a_request_is_destroyed_at_once) {
  for (int i = 0; i < 50; ++i) {
    for (const bool busy : {false, true}) {
      fake_model model;
      model.control().encode_us = 200;
      engine e{model, paged_kv{{.bytes = 0, .blocks = 9, .block_size = 16}}, continuous{}, parts<async_vision>{},
               engine_options{.threads = 2, .preparation_threads = 2}};
      run_loop loop(e);
      if (busy) e.submit(ask(prompt(1, 4, {picture(1)}), 40));
    }
  }
}

// 73: prompts a little longer than a step.
TEST(public_reports, r073_prompts_around_the_length_of_a_step_finish) {
  for (const std::int32_t rows : {16, 24}) {
    fake_model model;
    engine e{model, paged_kv{{.bytes = 0, .blocks = 8, .block_size = 16}},
             continuous{limits{.max_num_seqs = 2, .max_num_batched_tokens = rows}}};
    std::vector<request> requests;
    for (int i = 0; i < 50; ++i) requests.push_back(ask(prompt(i, 5), 2));
    for (std::int32_t n = rows - 2; n <= rows + 8; ++n) requests.push_back(ask(prompt(n, n), 3));
    const std::vector<result> r = e.generate(requests);
    for (std::size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, requests[i].max_new_tokens));
  }
}

// 74: a picture with more tokens than a step takes ended the process.
TEST(public_reports, r074_a_picture_of_more_tokens_than_a_step_is_cut_or_refused_alone) {
  fake_model model;
  engine e{model, paged_kv{{.bytes = 0, .blocks = 8, .block_size = 16}},
           continuous{limits{.max_num_batched_tokens = 16, .max_encoder_tokens = 40}}};
  const std::vector<request> requests = {ask(prompt(1, 4), 5), ask(prompt(2, 4, {picture(1, 5)}), 5),
                                         ask(prompt(3, 4, {picture(2, 5)}, 1, true), 5), ask(prompt(4, 4), 5)};
  const std::vector<result> r = e.generate(requests);
  for (const std::size_t i : {0U, 1U, 3U}) EXPECT_EQ(r[i].tokens, expected_tokens(*requests[i].prepared, 5)) << r[i].reason;
  EXPECT_EQ(r[2].outcome, status::refused);
  EXPECT_THAT(r[2].reason, HasSubstr("max_num_batched_tokens"));
}

// 16, 13: counts of placeholders and of features came from different roundings.
TEST(public_reports, r013_r016_placeholders_and_features_are_as_many_for_every_size) {
  const std::int32_t per_tile = small().info().tokens_per_tile;
  for (std::int32_t width = 1; width <= 300; width += 23) {
    for (std::int32_t height = 1; height <= 300; height += 19) {
      const prepared_request p = small().prepare(question(golden_picture(1, width, height), "x", 1));
      ASSERT_EQ(p.images.size(), 1U);
      const auto placeholders = std::count(p.tokens.begin(), p.tokens.end(), small().config().image_token_id);
      ASSERT_EQ(placeholders, std::int64_t{p.images[0].pixels->num_tiles} * per_tile) << width << " x " << height;
      ASSERT_EQ(p.images[0].embedding_rows(), placeholders);
    }
  }
}

}  // namespace
}  // namespace vlbatch::testing
