// SPDX-License-Identifier: Apache-2.0
// One thing goes wrong at every place where it can, one place a run: the state afterwards is a documented one (docs/step_loop.md), other
// requests are unharmed, memory comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/kv/statistics_adaptor.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

using ::testing::HasSubstr;

constexpr limits lim{.max_num_seqs = 3, .max_num_batched_tokens = 24, .max_encoder_tokens = 20};
paged_kv pool() { return paged_kv{{.bytes = 0, .blocks = 6, .block_size = 16}}; }
engine_options settings() {
  return {.threads = 2, .preparation_threads = 0, .encoder_cache = {.bytes = 5 * fake_model::per_tile * fake_model::hidden * 4}};
}

std::vector<request> some_requests() {
  std::vector<request> all;
  for (int i = 0; i < 7; ++i) {
    std::vector<std::shared_ptr<const pixel_tiles>> pictures;
    for (int k = 0; k < i % 3; ++k) pictures.push_back(picture(static_cast<std::uint8_t>(i % 4 + k), 1 + k));
    all.push_back(ask(prompt(i, 3 + 7 * i % 20, pictures), 1 + 5 * i % 13));
  }
  return all;
}

void expect_right(const result& r, const request& q) {
  EXPECT_EQ(r.outcome, status::finished) << r.reason;
  EXPECT_EQ(r.tokens, expected_tokens(*q.prepared, q.max_new_tokens));
}

template <class Engine>
void expect_empty(Engine& e) {
  EXPECT_TRUE(e.idle());
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
  EXPECT_EQ(e.kv().usage().sequences, 0);
  EXPECT_EQ(e.state().table.size(), 0);
  while (e.state().lanes[0].tiles_in_flight > 0) e.step();  // of a picture whose request was cancelled
  e.core().cache.clear_unused();
  EXPECT_EQ(e.core().cache.used_bytes(), 0);
}

template <class T>
class faults : public ::testing::Test {};
using policies = ::testing::Types<sequential, static_batching, padded_static, continuous>;
TYPED_TEST_SUITE(faults, policies);

TYPED_TEST(faults, every_reservation_fails_once) {
  const std::vector<request> requests = some_requests();
  for (std::int64_t at = 0;; ++at) {
    engine e{fake_model(), statistics_adaptor{pool()}, TypeParam{lim}, parts<async_vision>{}, settings()};
    e.kv().fail_reserves(at, 1);
    const std::vector<result> results = e.generate(requests);
    for (std::size_t i = 0; i < results.size(); ++i) expect_right(results[i], requests[i]);
    expect_empty(e);
    ASSERT_FALSE(this->HasFailure()) << "reservation " << at;
    if (e.kv().statistics().failed_reserves == 0) return;  // there are not so many
    ASSERT_LT(at, 5000);
  }
}

// The model's memory: the KV cache at construction, embeddings later.
TYPED_TEST(faults, every_allocation_fails_once) {
  const std::vector<request> requests = some_requests();
  for (int at = 0;; ++at) {
    fake_model model;
    model.control().fail_allocation_at = at;
    const auto make = [&] {
      return std::make_unique<engine<fake_model, paged_kv, TypeParam, parts<async_vision>>>(model, pool(), TypeParam{lim},
                                                                                            parts<async_vision>{}, settings());
    };
    if (at == 0) {
      EXPECT_ANY_THROW(make());
      continue;
    }
    const auto e = make();
    const std::vector<result> results = e->generate(requests);
    int failed = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].outcome != status::failed) {
        expect_right(results[i], requests[i]);
        continue;
      }
      ++failed;
      EXPECT_THAT(results[i].reason, HasSubstr("encode: "));
      EXPECT_FALSE(requests[i].prepared->images.empty());
    }
    expect_empty(*e);
    ASSERT_FALSE(this->HasFailure()) << "allocation " << at;
    if (model.control().allocations <= at) return;
    EXPECT_GT(failed, 0) << "allocation " << at;
    expect_right(e->generate(requests).back(), requests.back());  // the next list finds memory
  }
}

template <class Real>
struct policy_that_throws {
  Real real{lim};
  std::shared_ptr<int> plans = std::make_shared<int>(0);
  int at = 0;
  static constexpr std::string_view name() { return "policy_that_throws"; }
  vlbatch::limits limits() const { return lim; }
  void plan(const scheduler_state& s, step_plan& p) {
    real.plan(s, p);
    if ((*plans)++ == at) throw std::runtime_error("policy: out of ideas");
  }
};

TYPED_TEST(faults, every_plan_throws_once) {
  const std::vector<request> requests = some_requests();
  for (int at = 0;; ++at) {
    policy_that_throws<TypeParam> p{.at = at};
    engine e{fake_model(), pool(), p, parts<inline_vision>{}, settings()};
    std::vector<seq_id> ids;
    for (const request& r : requests) ids.push_back(e.submit(r));
    int thrown = 0;
    while (!e.idle()) {
      try {
        e.step();
      } catch (const std::runtime_error& x) {
        EXPECT_STREQ(x.what(), "policy: out of ideas");
        ++thrown;
      }
    }
    for (std::size_t i = 0; i < ids.size(); ++i) expect_right(*e.take(ids[i]), requests[i]);
    expect_empty(e);
    ASSERT_FALSE(this->HasFailure()) << "plan " << at;
    if (thrown == 0) return;
  }
}

TYPED_TEST(faults, every_request_is_cancelled_after_every_step) {
  const std::vector<request> requests = some_requests();
  for (std::size_t victim = 0; victim < requests.size(); ++victim) {
    for (int after = 0;; ++after) {
      engine e{fake_model(), pool(), TypeParam{lim}, parts<async_vision>{}, settings()};
      std::vector<seq_id> ids;
      for (const request& r : requests) ids.push_back(e.submit(r));
      for (int i = 0; i < after && !e.idle(); ++i) e.step();
      const bool late = e.idle();
      e.cancel(ids[victim]);
      e.run_until_idle();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const result r = *e.take(ids[i]);
        if (i != victim || r.outcome != status::cancelled) expect_right(r, requests[i]);
      }
      expect_empty(e);
      ASSERT_FALSE(this->HasFailure()) << "request " << victim << " after " << after << " steps";
      if (late) break;
    }
  }
}

TYPED_TEST(faults, destruction_after_every_step) {
  const std::vector<request> requests = some_requests();
  for (int after = 0;; ++after) {
    fake_model model;
    model.control().encode_us = 100;
    int finished = 0;
    {
      engine e{model, pool(), TypeParam{lim}, parts<async_vision>{}, settings()};
      for (request r : requests) {
        r.on_finish = [&](const result&) { ++finished; };
        e.submit(std::move(r));
      }
      for (int i = 0; i < after && !e.idle(); ++i) e.step();
      if (e.idle()) {
        EXPECT_EQ(finished, static_cast<int>(requests.size()));
        return;
      }
    }
    ASSERT_LT(after, 5000);
  }
}

struct sampler_that_throws {
  default_sampler real{};
  int calls = 0;
  int at = 0;
  sampled_token sample(std::span<const float> logits, const sampling_params& p, const sampling_context& c) {
    if (calls++ == at) throw std::runtime_error("sampler: no dice");
    return real.sample(logits, p, c);
  }
};

TYPED_TEST(faults, every_choice_of_a_token_throws_once) {
  const std::vector<request> requests = some_requests();
  for (int at = 0;; ++at) {
    engine e{fake_model(), pool(), TypeParam{lim}, parts<inline_vision, sampler_that_throws>{.vision = {}, .choose = {.at = at}},
             settings()};
    const std::vector<result> results = e.generate(requests);
    int failed = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].outcome == status::finished) {
        expect_right(results[i], requests[i]);
        continue;
      }
      ++failed;
      EXPECT_EQ(results[i].reason, "sample: sampler: no dice");
    }
    expect_empty(e);
    ASSERT_FALSE(this->HasFailure()) << "choice " << at;
    if (failed == 0) return;
    EXPECT_EQ(failed, 1);
  }
}

TYPED_TEST(faults, every_callback_throws_once) {
  const std::vector<request> requests = some_requests();
  for (std::size_t victim = 0; victim < requests.size(); ++victim) {
    for (int at = 0; at < requests[victim].max_new_tokens; ++at) {
      engine e{fake_model(), pool(), TypeParam{lim}, parts<inline_vision>{}, settings()};
      std::vector<request> asked = requests;
      asked[victim].on_token = [at](const token_event& t) { t.index == at ? throw 7 : void(); };
      const std::vector<result> results = e.generate(asked);
      for (std::size_t i = 0; i < results.size(); ++i) {
        if (i != victim) expect_right(results[i], requests[i]);
      }
      EXPECT_EQ(results[victim].outcome, status::failed);
      EXPECT_EQ(results[victim].tokens.size(), static_cast<std::size_t>(at) + 1);
      expect_empty(e);
      ASSERT_FALSE(this->HasFailure()) << "request " << victim << ", token " << at;
    }
  }
}

}  // namespace
}  // namespace vlbatch::testing
