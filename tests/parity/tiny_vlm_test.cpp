// SPDX-License-Identifier: Apache-2.0
// The embedded model answers what transformers answered on the same folder, token for token, under every strategy, lane and cache.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "vlbatch/vlbatch.hpp"

namespace vlbatch::testing {
namespace {

const std::string folder = std::string(VLBATCH_SOURCE_DIR) + "/models/tiny-vlm";

nlohmann::json read(const std::string& name) {
  std::ifstream in(folder + "/eval/" + name);
  return nlohmann::json::parse(in);
}

struct evaluation {
  std::vector<request> requests;
  std::vector<std::vector<std::int32_t>> prompts;  // transformers' prompt ids
  std::vector<std::vector<std::int32_t>> tokens;   // transformers' answer, the end token left out
  std::vector<std::string> answers;
};

// Every \p stride-th row of the evaluation set.
evaluation load(std::size_t stride) {
  evaluation e;
  const nlohmann::json rows = read("manifest.json").at("rows");
  const nlohmann::json reference = read("reference.json").at("rows");
  for (std::size_t i = 0; i < rows.size(); i += stride) {
    request r;
    r.messages = {{.role = "user",
                   .parts = {image_part{folder + "/eval/" + rows[i].at("image").get<std::string>()},
                             text_part{rows[i].at("prompt").get<std::string>()}}}};
    r.max_new_tokens = rows[i].at("max_new_tokens");
    e.requests.push_back(std::move(r));
    e.prompts.push_back(reference[i].at("prompt_ids"));
    auto ids = reference[i].at("ids").get<std::vector<std::int32_t>>();
    ids.pop_back();  // <end_of_utterance>
    e.tokens.push_back(std::move(ids));
    e.answers.push_back(rows[i].at("answer"));
  }
  return e;
}

const idefics3<cpu>& model() {
  static const auto m = idefics3<cpu>::load(folder);
  return m;
}

template <class Policy, class Kv, class Vision>
std::vector<result> answer(const evaluation& e, Kv kv) {
  engine engine_under_test{model(), std::move(kv),
                           Policy{limits{.max_num_seqs = 8, .max_num_batched_tokens = 100, .max_encoder_tokens = 144}}, parts<Vision>{},
                           engine_options{.threads = 2}};
  return engine_under_test.generate(e.requests);
}

TEST(tiny_vlm, prompts_are_those_of_transformers) {
  const evaluation e = load(1);
  for (std::size_t i = 0; i < e.requests.size(); ++i) ASSERT_EQ(model().prepare(e.requests[i]).tokens, e.prompts[i]) << "row " << i;
}

TEST(tiny_vlm, answers_are_those_of_transformers_and_right) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const evaluation e = load(10);
#else
  const evaluation e = load(1);
#endif
  const std::vector<result> r = answer<continuous, paged_kv, async_vision>(e, paged_kv{{.bytes = 32_MiB}});
  std::size_t right = 0;
  for (std::size_t i = 0; i < r.size(); ++i) {
    ASSERT_EQ(r[i].outcome, status::finished) << r[i].reason;
    EXPECT_EQ(r[i].tokens, e.tokens[i]) << "row " << i;
    if (r[i].text == " " + e.answers[i]) ++right;
  }
  EXPECT_GE(right * 100, r.size() * 95);
}

TEST(tiny_vlm, every_strategy_lane_and_cache_gives_the_same_tokens) {
  const evaluation e = load(8);
  const auto same = [&](const std::vector<result>& r, const char* what) {
    for (std::size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].tokens, e.tokens[i]) << what << ", row " << i * 8;
  };
  const contiguous_kv contiguous{{.bytes = 0, .sequences = 8, .tokens_per_sequence = 200}};
  const paged_kv tight{{.bytes = 0, .blocks = 20, .block_size = 16}};  // 320 tokens for eight sequences of up to 150: evictions
  same(answer<sequential, contiguous_kv, inline_vision>(e, contiguous), "sequential, contiguous, inline");
  same(answer<static_batching, paged_kv, async_vision>(e, tight), "static, paged, async");
  same(answer<padded_static, contiguous_kv, inline_vision>(e, contiguous), "padded static, contiguous, inline");
  same(answer<padded_static, paged_kv, async_vision>(e, tight), "padded static, paged, async");
  same(answer<continuous, paged_kv, inline_vision>(e, tight), "continuous, paged, inline");
  same(answer<continuous, contiguous_kv, async_vision>(e, contiguous), "continuous, contiguous, async");
}

TEST(tiny_vlm, a_broken_picture_fails_one_request_by_name) {
  evaluation e = load(50);
  e.requests[1].messages[0].parts[0] = image_part{folder + "/config.json"};
  e.requests[2].messages[0].parts[0] = image_part{folder + "/eval/none.png"};
  const std::vector<result> r = answer<continuous, paged_kv, async_vision>(e, paged_kv{{.bytes = 32_MiB}});
  EXPECT_EQ(r[0].tokens, e.tokens[0]);
  EXPECT_EQ(r[1].outcome, status::failed);
  EXPECT_NE(r[1].reason.find("config.json"), std::string::npos) << r[1].reason;
  EXPECT_EQ(r[2].outcome, status::failed);
  EXPECT_NE(r[2].reason.find("none.png"), std::string::npos) << r[2].reason;
  EXPECT_EQ(r[3].tokens, e.tokens[3]);
}

}  // namespace
}  // namespace vlbatch::testing
