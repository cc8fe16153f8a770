// SPDX-License-Identifier: Apache-2.0
// A policy that plans what the fuzzer says, legal or not: an illegal plan changes nothing, every request ends, every answer that is
// finished is the model's, and nothing stays behind.
#include <fuzzer/FuzzedDataProvider.h>

#include "fuzz_support.hpp"
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

using namespace vlbatch;
using namespace vlbatch::testing;

namespace {

constexpr limits bounds{.max_num_seqs = 3, .max_num_batched_tokens = 24, .max_encoder_tokens = 15};

struct fuzzed_policy {
  FuzzedDataProvider* from;
  continuous real{bounds};
  static constexpr std::string_view name() { return "fuzzed_policy"; }
  vlbatch::limits limits() const { return bounds; }

  void plan(const scheduler_state& s, step_plan& p) {
    if (from->remaining_bytes() == 0 || from->ConsumeIntegralInRange(0, 3) == 0) return real.plan(s, p);
    const auto small = [&](int low, int high) { return from->ConsumeIntegralInRange(low, high); };
    const auto whose = [&]() -> seq_id {
      const int n = small(0, 11);
      const auto pick = [n](std::span<const seq_slot> list) { return list[static_cast<std::size_t>(n) % list.size()]; };
      if (n % 2 == 0 && !s.running.empty()) return s.table[pick(s.running)].id;
      if (n < 11 && !s.waiting.empty()) return s.table[pick(s.waiting)].id;
      return seq_id{static_cast<std::uint64_t>(n)};
    };
    for (int items = small(0, 5); items > 0; --items) {
      switch (small(0, 9)) {
        case 0:
          p.evict.push_back({whose(), small(0, 3) == 0 ? eviction::swap : eviction::recompute});
          break;
        case 1:
          p.resume.push_back(whose());
          break;
        case 2:
          p.drop.push_back({whose(), "because"});
          break;
        case 3:
          p.empty_rows = small(-1, 30);
          break;
        case 4:
        case 5:
          p.encode.push_back({whose(), small(-1, 2), small(-1, 2), small(-1, 3), small(0, 7) == 7 ? 1 : 0});
          break;
        default:
          p.run.push_back({whose(), small(-1, 26), small(0, 7) == 7 ? small(-1, 9) : 0});
      }
    }
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fake_model model;
  FuzzedDataProvider from(data, size);
  engine e{model, paged_kv{{.bytes = 0, .blocks = 5, .block_size = 16}}, fuzzed_policy{&from}, parts<>{},
           engine_options{
               .threads = 1, .preparation_threads = 0, .encoder_cache = {.bytes = 4 * fake_model::per_tile * fake_model::hidden * 4}}};
  std::vector<request> requests;
  std::vector<seq_id> ids;
  for (int n = from.ConsumeIntegralInRange(1, 5); n > 0; --n) {
    std::vector<std::shared_ptr<const pixel_tiles>> pictures;
    for (int k = from.ConsumeIntegralInRange(0, 2); k > 0; --k)
      pictures.push_back(picture(static_cast<std::uint8_t>(from.ConsumeIntegralInRange(1, 3)), from.ConsumeIntegralInRange(1, 2)));
    requests.push_back(ask(prompt(n, from.ConsumeIntegralInRange(1, 30), pictures, 1, from.ConsumeIntegralInRange(0, 3) == 0),
                           from.ConsumeIntegralInRange(0, 12)));
    ids.push_back(e.submit(requests.back()));
  }
  int fruitless = 0;
  while (!e.idle()) {
    const auto waiting = e.state().waiting.size();
    const auto running = e.state().running.size();
    const std::int32_t blocks = e.kv().usage().blocks_used;
    const std::int64_t tokens = e.stats().output_tokens;
    const std::int64_t bytes = e.core().cache.used_bytes();
    const bool settled = waiting + running == static_cast<std::size_t>(e.outstanding());  // nobody is still at the door
    try {
      e.step();
    } catch (const policy_error& x) {
      FUZZ_REQUIRE(std::string_view(x.what()).find("fuzzed_policy") != std::string_view::npos);
      FUZZ_REQUIRE(e.stats().output_tokens == tokens);
      FUZZ_REQUIRE(e.kv().usage().blocks_used == blocks && e.core().cache.used_bytes() == bytes);
      FUZZ_REQUIRE(!settled || (e.state().waiting.size() == waiting && e.state().running.size() == running));
    } catch (const policy_stalled&) {
    }
    fruitless = e.stats().output_tokens > tokens ? 0 : fruitless + 1;
    FUZZ_REQUIRE(fruitless < 5000 || from.remaining_bytes() > 0);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::optional<result> r = e.take(ids[i]);
    FUZZ_REQUIRE(r.has_value());
    if (r->outcome == status::finished) {
      FUZZ_REQUIRE(r->tokens == expected_tokens(*requests[i].prepared, requests[i].max_new_tokens));
    } else {
      FUZZ_REQUIRE(r->outcome == status::dropped || r->outcome == status::refused);
    }
  }
  FUZZ_REQUIRE(e.kv().usage().blocks_used == 0 && e.kv().usage().sequences == 0);
  FUZZ_REQUIRE(e.state().table.size() == 0);
  e.core().cache.clear_unused();
  FUZZ_REQUIRE(e.core().cache.used_bytes() == 0);
  return 0;
}
