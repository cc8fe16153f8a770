// SPDX-License-Identifier: Apache-2.0
// Offline strategies: one benchmark a (policy, vision lane, KV cache, max_num_seqs), manual time = makespan of the list. See README.md
// beside this file.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>

#include "common/workload.hpp"
#include "vlbatch/vlbatch.hpp"

namespace vb = vlbatch;
using namespace vlbatch::literals;

namespace {

struct bench_input {
  vb::idefics3<vb::cpu> model;
  vb::programs::workload work;
};

template <class Policy, class Kv, class Vision>
void run_list(benchmark::State& state, const bench_input& in, Kv kv, std::int32_t max_num_seqs) {
  const vb::limits bounds{
      .max_num_seqs = max_num_seqs, .max_num_batched_tokens = 512, .max_encoder_tokens = 16 * in.model.info().tokens_per_tile};
  vb::engine e{in.model, std::move(kv), Policy{bounds}, vb::parts<Vision>{},
               vb::engine_options{.encoder_cache = {.bytes = 256_MiB, .reuse = false}}};
  benchmark::DoNotOptimize(e.generate(std::span(in.work.requests).first(1)));
  const vb::wall_clock clock;
  const vb::engine_stats before = e.stats();
  for (auto _ : state) {
    const vb::time_point began = clock.now();
    const auto results = e.generate(in.work.requests);
    state.SetIterationTime(vb::to_seconds(clock.now() - began));
    for (const vb::result& r : results) {
      if (r.outcome != vb::status::finished) state.SkipWithError(r.reason.c_str());
    }
  }
  const vb::engine_stats s = e.stats() - before;
  const auto requests = static_cast<double>(in.work.requests.size()) * static_cast<double>(state.iterations());
  state.counters["req_per_s"] = benchmark::Counter(requests, benchmark::Counter::kIsRate);
  state.counters["tok_per_s"] = benchmark::Counter(static_cast<double>(s.output_tokens), benchmark::Counter::kIsRate);
  state.counters["rows_per_step"] = static_cast<double>(s.rows) / static_cast<double>(std::max<std::int64_t>(s.steps, 1));
  state.counters["pad_and_empty"] =
      static_cast<double>(s.pad_tokens + s.empty_rows) / static_cast<double>(std::max<std::int64_t>(s.rows, 1));
  state.counters["plan_us_per_step"] = 1e6 * vb::to_seconds(s.plan_time) / static_cast<double>(std::max<std::int64_t>(s.steps, 1));
}

template <class Policy, class Vision>
void register_kinds(const bench_input& in) {
  for (const std::int32_t seqs : {1, 4, 16, 64}) {
    if (std::is_same_v<Policy, vb::sequential> && seqs != 1) continue;
    const auto add = [&](auto kv) {
      const std::string name = fmt::format("{}/{}/{}/max_num_seqs:{}", Policy::name(), Vision::name(), kv.name(), seqs);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&in, kv, seqs](benchmark::State& s) { run_list<Policy, decltype(kv), Vision>(s, in, kv, seqs); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    };
    add(vb::paged_kv{{.bytes = 64_MiB}});
    add(vb::contiguous_kv{{.bytes = 128_MiB, .tokens_per_sequence = 256}});
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc > 3 || (argc > 1 && std::string(argv[1]).rfind("--", 0) == 0)) {
    fmt::print(stderr, "usage: bench_engine [benchmark options] [MODEL_FOLDER [REQUESTS]]\n");
    return 2;
  }
  const std::string folder = argc > 1 ? argv[1] : "models/tiny-vlm";
  const std::int32_t requests = argc > 2 ? std::atoi(argv[2]) : 64;
  try {
    const bench_input in{vb::idefics3<vb::cpu>::load(folder),
                         vb::programs::load_workload(folder + "/eval/manifest.json", requests, vb::programs::pairs::distinct)};
    register_kinds<vb::sequential, vb::inline_vision>(in);
    register_kinds<vb::static_batching, vb::inline_vision>(in);
    register_kinds<vb::padded_static, vb::inline_vision>(in);
    register_kinds<vb::continuous, vb::inline_vision>(in);
    register_kinds<vb::continuous, vb::async_vision>(in);
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_engine: {}\n", e.what());
    return 2;
  }
  return 0;
}
