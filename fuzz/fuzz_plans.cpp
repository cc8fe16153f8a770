// SPDX-License-Identifier: Apache-2.0
// A policy that plans what the fuzzer says, legal or not, while requests come and are cancelled and a vision lane takes its time. An
// illegal plan changes nothing, limits hold, every request ends, every answer is the model's, and nothing stays behind. When the input is
// used up, everything is evicted once and `continuous` must bring the rest to an end.
#include <fuzzer/FuzzedDataProvider.h>

#include <deque>

#include "fuzz_support.hpp"
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"

namespace {

using namespace vlbatch;
using namespace vlbatch::fuzz;
using namespace vlbatch::testing;

// Time that only passes when somebody waits for it.
struct still_clock {
  time_point time = time_point{} + std::chrono::seconds(1);
  [[nodiscard]] time_point now() const { return time; }
  void wait_until(time_point t, wakeup&, std::uint64_t) {
    if (t != never) time = std::max(time, t);
  }
};
static_assert(engine_clock<still_clock>);

// A lane that is done when the fuzzer says so.
struct late_vision {
  FuzzedDataProvider* from = nullptr;
  static constexpr const char* name() { return "late"; }
  [[nodiscard]] static std::int32_t threads_beside(std::int32_t) { return 0; }

  template <class Model, class Clock>
  class lane {
   public:
    static constexpr bool in_step = false;
    lane(const Model& model, const late_vision& settings, const Clock& clock, std::int32_t threads, wakeup&)
        : model_(model), clock_(&clock), from_(settings.from), workspace_(model_.make_workspace(threads)) {}
    void start(tile_job job) { jobs_.push_back(std::move(job)); }
    void flush() {}
    void poll(std::vector<tile_done>& done) {
      std::size_t n = jobs_.size();
      if (from_->remaining_bytes() > 0 && n > 0) n = from_->ConsumeIntegralInRange<std::size_t>(0, n);
      encode_jobs(model_, workspace_, *clock_, std::span<const tile_job>(jobs_.data(), n), scratch_, done);
      jobs_.erase(jobs_.begin(), jobs_.begin() + static_cast<std::ptrdiff_t>(n));
    }
    [[nodiscard]] lane_view view() const { return {.in_step = false, .tiles_in_flight = static_cast<std::int32_t>(jobs_.size())}; }

   private:
    Model model_;
    const Clock* clock_;
    FuzzedDataProvider* from_;
    typename Model::workspace workspace_;
    std::vector<tile_job> jobs_;
    std::vector<tile_input> scratch_;
  };
};

// All numbers that a policy can see, to tell whether something changed.
std::vector<std::int64_t> numbers_of(const scheduler_state& s) {
  std::vector<std::int64_t> out = {s.kv.free_blocks,      s.kv.evictable_blocks,      s.kv.total_blocks, s.encoder.free_bytes,
                                   s.encoder.total_bytes, s.encoder.tokens_in_flight, s.table.size(),    s.lanes[0].tiles_in_flight};
  for (const auto& queue : {s.waiting, s.running, s.swapped}) {
    out.push_back(-1);
    for (const seq_slot slot : queue) {
      const sequence_view& v = s.table[slot];
      out.insert(out.end(),
                 {static_cast<std::int64_t>(v.id), v.slot, v.prompt_tokens, v.cached_tokens, v.computed_tokens, v.in_flight_tokens,
                  v.generated_tokens, v.max_new_tokens, v.kv_blocks, v.releasable_blocks, v.preemptions, static_cast<std::int64_t>(v.where),
                  v.first_token.time_since_epoch().count(), v.last_token.time_since_epoch().count()});
      for (const image_view& i : v.images) {
        out.insert(out.end(), {i.first_position, i.num_tokens, i.num_tiles, i.tiles_ready, static_cast<std::int64_t>(i.state),
                               i.tiles_started, i.bytes, static_cast<std::int64_t>(i.resident)});
      }
    }
  }
  return out;
}

// What the invariants of docs/step_loop.md say about a state.
void check_state(const scheduler_state& s) {
  require(static_cast<std::int32_t>(s.running.size()) <= s.lim.max_num_seqs, "no more sequences run than max_num_seqs");
  require(s.kv.free_blocks >= 0 && s.kv.free_blocks <= s.kv.total_blocks, "free blocks are within the pool");
  require(s.encoder.free_bytes >= 0 && s.encoder.tokens_in_flight >= 0, "the encoder cache keeps its budget");
  require(s.table.size() == static_cast<std::int32_t>(s.waiting.size() + s.running.size() + s.swapped.size()),
          "a sequence is in one queue");
  std::int32_t held = 0;
  for (const auto& queue : {s.waiting, s.running}) {
    for (const seq_slot slot : queue) {
      const sequence_view& v = s.table[slot];
      require(v.where == (queue.data() == s.waiting.data() ? phase::waiting : phase::running), "a sequence knows its queue");
      require(v.computed_tokens >= 0 && v.computed_tokens <= v.prompt_tokens + v.generated_tokens, "computed tokens are known tokens");
      require(v.generated_tokens <= v.max_new_tokens, "no answer is too long");
      require(v.where == phase::running || v.kv_blocks == 0, "who waits holds no blocks");
      require(v.kv_blocks >= s.kv.blocks_for(v.computed_tokens), "stored tokens have blocks");
      held += v.kv_blocks;
      for (const image_view& i : v.images) {
        require(i.tiles_ready >= 0 && i.tiles_ready <= i.tiles_started && i.tiles_started <= i.num_tiles,
                "tiles are started before they are ready");
      }
    }
  }
  require(held + s.kv.free_blocks == s.kv.total_blocks, "every block is free or held");
}

// What the policy saw last, for whoever drives the engine. The engine owns the policy.
struct last_seen {
  std::vector<std::int64_t> numbers;
  bool exhausted = false;
};

struct fuzzed_policy {
  FuzzedDataProvider* from;
  last_seen* seen;
  vlbatch::limits bounds;
  continuous real{bounds};
  plan_ledger scratch{};
  bool evicted_all = false;
  static constexpr std::string_view name() { return "fuzzed_policy"; }
  [[nodiscard]] vlbatch::limits limits() const { return bounds; }

  void plan(const scheduler_state& s, step_plan& p) {
    check_state(s);
    seen->numbers = numbers_of(s);
    seen->exhausted = from->remaining_bytes() == 0;
    if (!seen->exhausted) return draw(s, p);
    // Two running sequences may wait for each other's pictures by now, which `continuous` alone never brings about.
    if (!std::exchange(evicted_all, true)) {
      for (const seq_slot slot : s.running) p.evict.push_back({s.table[slot].id});
      if (!p.evict.empty()) return;
    }
    real.plan(s, p);
  }

  void draw(const scheduler_state& s, step_plan& p) {
    const auto small = [&](int low, int high) { return from->ConsumeIntegralInRange(low, high); };
    const int how = small(0, 7);
    if (how < 2) return real.plan(s, p);
    if (how == 2) return draw_legal(s, p);
    const auto whose = [&]() -> seq_id {
      const int n = small(0, 31);
      const auto pick = [n](std::span<const seq_slot> list) { return list[static_cast<std::size_t>(n) / 2 % list.size()]; };
      if (n % 2 == 0 && !s.running.empty()) return s.table[pick(s.running)].id;
      if (n < 30 && !s.waiting.empty()) return s.table[pick(s.waiting)].id;
      return seq_id{static_cast<std::uint64_t>(n)};
    };
    const auto number = [&](int low, int high) { return small(0, 15) == 15 ? from->ConsumeIntegral<std::int32_t>() : small(low, high); };
    for (int items = small(0, 5); items > 0; --items) {
      switch (small(0, 10)) {
        case 0:
          p.evict.push_back({whose(), small(0, 7) == 7 ? eviction::swap : eviction::recompute});
          break;
        case 1:
          small(0, 3) == 0 ? p.resume.push_back(whose()) : p.drop.push_back({whose(), "because"});
          break;
        case 2:
          p.empty_rows = number(-1, 30);
          break;
        case 3:
          p.wake_at = time_point(duration(from->ConsumeIntegral<std::int64_t>()));
          break;
        case 4:
        case 5:
        case 6: {
          encode_item e{whose(), number(0, 2), 0, number(1, 2), small(0, 15) == 15 ? number(-1, 1) : 0};
          const sequence_view* v = s.table.find(e.id);  // mostly the tile that is next
          if (v != nullptr && e.image >= 0 && static_cast<std::size_t>(e.image) < v->images.size() && small(0, 7) != 7) {
            e.first_tile = v->images[static_cast<std::size_t>(e.image)].tiles_started;
          } else {
            e.first_tile = number(-1, 2);
          }
          p.encode.push_back(e);
          break;
        }
        default:
          p.run.push_back({whose(), number(1, 26), small(0, 7) == 7 ? number(-1, 9) : 0});
      }
    }
  }

  // Arbitrary and legal: whatever is tried enters only if the whole plan stays possible.
  void draw_legal(const scheduler_state& s, step_plan& p) {
    plan_builder b(s, p, scratch);
    for (int items = from->ConsumeIntegralInRange(1, 8); items > 0 && s.table.size() > 0; --items) {
      const std::size_t n = from->ConsumeIntegral<std::uint8_t>();
      const std::size_t waiting = s.waiting.size();
      const std::size_t i = n % (waiting + s.running.size());
      const sequence_view& v = b[i < waiting ? s.waiting[i] : s.running[i - waiting]];
      switch (from->ConsumeIntegralInRange(0, 5)) {
        case 0:
          b.try_encode_all(v);
          break;
        case 1:
          if (!v.images.empty()) b.try_encode(v, static_cast<std::int32_t>(n % v.images.size()), 1);
          break;
        case 2:
          b.try_evict(v);
          break;
        case 3:
          if (n % 8 == 0) b.try_drop(v, "because");
          break;
        default:
          b.try_run(v, static_cast<std::int32_t>(n % 24) + 1);
      }
    }
  }
};

template <class Vision, class Kv>
void drive(FuzzedDataProvider& from, Vision vision, Kv kv) {
  using parts_type = parts<Vision, default_sampler, still_clock>;
  static const fake_model model;
  last_seen seen;
  const limits bounds{.max_num_seqs = from.ConsumeIntegralInRange(1, 4),
                      .max_num_batched_tokens = from.ConsumeIntegralInRange(4, 40),
                      .max_encoder_tokens = fake_model::per_tile * from.ConsumeIntegralInRange(1, 4)};
  const std::int64_t tile_bytes = fake_model::per_tile * fake_model::hidden * 4;
  engine e{model, std::move(kv), fuzzed_policy{&from, &seen, bounds}, parts_type{.vision = vision},
           engine_options{.threads = 1,
                          .preparation_threads = 0,
                          .encoder_cache = {.bytes = tile_bytes * from.ConsumeIntegralInRange(1, 6),
                                            .reuse = from.ConsumeIntegralInRange(0, 3) != 0}}};
  struct asked {
    request what;
    seq_id id;
    bool cancelled = false;
  };
  std::vector<asked> all;
  const auto submit_one = [&] {
    std::vector<std::shared_ptr<const pixel_tiles>> pictures;
    for (int k = from.ConsumeIntegralInRange(0, 2); k > 0; --k) {
      pictures.push_back(picture(static_cast<std::uint8_t>(from.ConsumeIntegralInRange(1, 3)), from.ConsumeIntegralInRange(1, 2)));
    }
    const bool atomic = from.ConsumeIntegralInRange(0, 3) == 0;
    request r = ask(prompt(static_cast<std::int32_t>(all.size()), from.ConsumeIntegralInRange(0, 30), pictures, 1, atomic),
                    from.ConsumeIntegralInRange(0, 12));
    if (from.ConsumeIntegralInRange(0, 7) == 7) r.arrival = time_point{} + std::chrono::seconds(from.ConsumeIntegralInRange(0, 9));
    const seq_id id = e.submit(r);
    all.push_back({std::move(r), id});
  };
  for (int n = from.ConsumeIntegralInRange(1, 5); n > 0; --n) submit_one();
  int after_the_end = 0;
  const auto step = [&] {
    seen.numbers.clear();
    try {
      e.step();
    } catch (const policy_error& x) {
      require(!seen.exhausted, "the plans of `continuous` are legal");
      require(std::string_view(x.what()).find("fuzzed_policy") != std::string_view::npos, "an illegal plan names its policy");
      require(numbers_of(e.state()) == seen.numbers, "an illegal plan changes nothing");
    } catch (const policy_stalled&) {
      require(!seen.exhausted, "`continuous` does not stall");
      require(numbers_of(e.state()) == seen.numbers, "a stall changes nothing");
    }
    check_state(e.state());
    if (seen.exhausted) require(++after_the_end < 2000, "`continuous` brings every request to an end");
  };
  while (!e.idle()) {
    if (from.remaining_bytes() > 0 && from.ConsumeIntegralInRange(0, 15) == 15) {
      asked& a = all[from.ConsumeIntegralInRange<std::size_t>(0, all.size() - 1)];
      e.cancel(a.id);
      a.cancelled = true;
    }
    if (all.size() < 12 && from.remaining_bytes() > 0 && from.ConsumeIntegralInRange(0, 15) == 15) submit_one();
    step();
  }
  for (asked& a : all) {
    const std::optional<result> r = e.take(a.id);
    require(r.has_value(), "every request has a result");
    require(!e.take(a.id).has_value(), "and one only");
    const std::vector<std::int32_t> expected = expected_tokens(*a.what.prepared, a.what.max_new_tokens);
    if (r->outcome == status::finished) {
      require(r->tokens == expected, "an answer is the model's");
    } else {
      require(r->outcome == status::dropped || r->outcome == status::refused || (a.cancelled && r->outcome == status::cancelled),
              "a request ends as somebody wanted");
      require(r->tokens.size() <= expected.size() && std::equal(r->tokens.begin(), r->tokens.end(), expected.begin()),
              "what a request got before it ended is the model's");
    }
  }
  // Tiles of requests that are gone may still be under way.
  for (int i = 0; i < 5000 && e.state().lanes[0].tiles_in_flight > 0; ++i) step();
  require(e.state().lanes[0].tiles_in_flight == 0 && e.state().encoder.tokens_in_flight == 0, "nothing is under way");
  require(e.kv().usage().blocks_used == 0 && e.kv().usage().sequences == 0 && e.kv().usage().tokens_stored == 0, "no block is used");
  require(e.state().table.size() == 0, "no sequence is live");
  require(e.stats().failed_reserves == 0, "a legal plan has its blocks");
  e.core().cache.clear_unused();
  require(e.core().cache.used_bytes() == 0, "no embedding is kept");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider from(data, size);
  const bool contiguous = from.ConsumeIntegralInRange(0, 3) == 0;
  const bool late = from.ConsumeBool();
  const std::int32_t blocks = from.ConsumeIntegralInRange(2, 6);
  const auto with = [&](auto vision) {
    if (contiguous) {
      drive(from, vision, contiguous_kv{{.bytes = 0, .sequences = blocks / 2, .tokens_per_sequence = 64}});
    } else {
      drive(from, vision, paged_kv{{.bytes = 0, .blocks = blocks, .block_size = 16}});
    }
  };
  late ? with(late_vision{&from}) : with(inline_vision{});
  return 0;
}
