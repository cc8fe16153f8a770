// SPDX-License-Identifier: Apache-2.0
// Twenty thousand requests of every kind through a small pool: nothing stays behind, nothing stops, memory does not grow.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

// Memory that lies in RAM, in bytes; 0 where the system does not tell.
std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0;
  std::int64_t resident = 0;
  return file >> all >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;  // they keep freed memory for a while
#else
constexpr bool sanitized = false;
#endif

// Requests of one soak; VLBATCH_SOAK overrides it.
int how_many() {
  const char* text = std::getenv("VLBATCH_SOAK");
  return text != nullptr ? std::max(std::atoi(text), 64) : 20000;
}

enum class fate { normal, cancelled, bad_picture, bad_logits, bad_text, bad_reader, impossible };
constexpr std::int32_t block = 16;
constexpr std::uint8_t bad_value = 13;  // of a picture that cannot be encoded
constexpr std::int32_t bad_token = 0;   // that gives NaN; no prompt and no answer has it

struct drawn {
  request what;
  fate end;
  int cancel_at;  // tokens; -1: at submission
};

drawn draw(std::mt19937& random) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  constexpr int lengths[] = {1, block - 1, block, block + 1, 2 * block};
  constexpr int answers[] = {0, 1, 2, block - 1, block, block + 1, 24};
  std::vector<std::shared_ptr<const pixel_tiles>> pictures;
  for (int n = below(3); n > 0; --n) pictures.push_back(picture(static_cast<std::uint8_t>(20 + below(5)), 1 + below(2)));
  drawn d{.what = {}, .end = below(3) == 0 ? static_cast<fate>(1 + below(6)) : fate::normal, .cancel_at = below(8) - 1};
  if (d.end == fate::bad_picture) pictures.push_back(picture(bad_value, 1 + below(2)));
  auto p = std::make_shared<prepared_request>(*prompt(below(1000), lengths[below(5)], pictures, 1 + below(3)));
  if (d.end == fate::bad_logits) p->tokens.back() = bad_token;
  d.what = ask(p, d.end == fate::normal ? answers[below(7)] : 24);
  if (d.end == fate::impossible) d.what.max_new_tokens = 400;
  if (d.end == fate::bad_text) {
    d.what.prepared = nullptr;
    d.what.messages = {{.role = "user", .parts = {text_part{"oh!"}}}};
  }
  if (d.end == fate::bad_reader) d.what.on_token = [](const token_event& e) { e.index == 2 ? throw std::runtime_error("gone") : void(); };
  if (d.end == fate::normal && below(3) == 0) d.what.sampling = {.repetition_penalty = 1.2F, .temperature = 0.8F, .seed = random()};
  return d;
}

template <class Policy, class Vision, class Kv>
void soak(Kv kv, std::uint32_t seed) {
  fake_model model;
  model.control().fail_tile_value = bad_value;
  model.control().nan_token = bad_token;
  const limits lim{.max_num_seqs = 6, .max_num_batched_tokens = 48, .max_encoder_tokens = 20};
  engine e{model, std::move(kv), Policy{lim}, parts<Vision>{},
           engine_options{.threads = 2, .encoder_cache = {.bytes = 8 * fake_model::per_tile * fake_model::hidden * 4}}};
  std::mt19937 random(seed);
  const int total = how_many();
  struct live_request {
    drawn d;
    seq_id id;
  };
  std::vector<live_request> live;
  int submitted = 0;
  std::int64_t half_way = 0;
  int idle_steps = 0;  // since something ended
  while (submitted < total || !live.empty()) {
    for (int n = static_cast<int>(random() % 4); n > 0 && submitted < total && live.size() < 64; --n, ++submitted) {
      live_request r{.d = draw(random), .id = {}};
      r.id = e.submit(r.d.what);
      if (r.d.end == fate::cancelled && r.d.cancel_at < 0) e.cancel(r.id);
      live.push_back(std::move(r));
    }
    if (!live.empty()) e.step();
    for (const live_request& r : live) {
      if (r.d.end != fate::cancelled || r.d.cancel_at < 0) continue;
      const sequence_view* v = e.state().table.find(r.id);
      if (v != nullptr && v->generated_tokens >= r.d.cancel_at) e.cancel(r.id);
    }
    ++idle_steps;
    std::erase_if(live, [&](const live_request& r) {
      const std::optional<result> got = e.take(r.id);
      if (!got) return false;
      idle_steps = 0;
      switch (r.d.end) {
        case fate::normal:
          EXPECT_EQ(got->outcome, status::finished) << got->reason;
          if (r.d.what.sampling == sampling_params{}) {
            EXPECT_EQ(got->tokens, expected_tokens(*r.d.what.prepared, r.d.what.max_new_tokens));
          }
          break;
        case fate::cancelled:
          EXPECT_TRUE(got->outcome == status::cancelled || got->outcome == status::finished) << got->reason;
          break;
        case fate::impossible:
          EXPECT_EQ(got->outcome, status::refused);
          break;
        default:
          EXPECT_EQ(got->outcome, status::failed) << static_cast<int>(r.d.end);
      }
      return true;
    });
    ASSERT_LT(idle_steps, 20000) << "no request ends: " << live.size() << " live";
    ASSERT_FALSE(::testing::Test::HasFailure());
    if (half_way == 0 && submitted >= total / 2) half_way = resident_bytes();
  }
  EXPECT_TRUE(e.idle());
  EXPECT_EQ(e.kv().usage().blocks_used, 0);
  EXPECT_EQ(e.kv().usage().sequences, 0);
  if (std::is_same_v<Policy, continuous>) {
    EXPECT_GT(e.stats().preemptions, 0) << "the pool is no small one";
  }
  EXPECT_EQ(e.state().table.size(), 0);
  while (e.state().lanes[0].tiles_in_flight > 0) e.step();  // of pictures whose requests ended before them
  e.core().cache.clear_unused();
  EXPECT_EQ(e.core().cache.used_bytes(), 0);
  if (!sanitized && total >= 20000) {
    EXPECT_LE(resident_bytes() - half_way, 1 << 20) << "bytes more than half-way";
  }
}

// Room for the largest request: 32 + 2 tokens a tile... at most 34 + 4 * 6 + 2 + 24, and little more.
paged_kv small_pool() { return paged_kv{{.bytes = 0, .blocks = 8, .block_size = block}}; }
contiguous_kv few_slots() { return contiguous_kv{{.bytes = 0, .sequences = 2, .tokens_per_sequence = 128}}; }

TEST(soak, sequential) { soak<sequential, inline_vision>(small_pool(), 1); }
TEST(soak, static_batching) { soak<static_batching, async_vision>(small_pool(), 2); }
TEST(soak, padded_static) { soak<padded_static, inline_vision>(few_slots(), 3); }
TEST(soak, continuous) { soak<continuous, inline_vision>(small_pool(), 4); }
TEST(soak, continuous_with_a_lane_beside_it) { soak<continuous, async_vision>(small_pool(), 5); }

}  // namespace
}  // namespace vlbatch::testing
