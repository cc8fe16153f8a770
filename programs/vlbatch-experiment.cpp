// SPDX-License-Identifier: Apache-2.0
// The seed experiment: the same requests under every strategy, vision lane and KV cache.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>

#include "common/experiment.hpp"
#include "common/machine.hpp"
#include "common/workload.hpp"
#include "vlbatch/observe/observers.hpp"
#include "vlbatch/vlbatch.hpp"

namespace vb = vlbatch;
using namespace vlbatch::programs;
using namespace vlbatch::literals;

namespace {

using model_type = vb::idefics3<vb::cpu>;
using recorders = vb::observers<vb::latency_recorder, vb::timeline_recorder>;

struct options {
  std::string model = "models/tiny-vlm";
  std::string manifest;
  std::string pair_kind = "distinct";
  std::int32_t requests = 200;
  std::int32_t repeats = 3;
  std::vector<std::string> policies = {"sequential", "static", "padded_static", "continuous"};
  std::vector<std::string> visions = {"inline", "async"};
  std::vector<std::string> kvs = {"contiguous", "paged"};
  bool no_encoder_cache_rows = false;
  vb::limits bounds{.max_num_seqs = 16, .max_num_batched_tokens = 512, .max_encoder_tokens = 0};
  std::int32_t threads = 0;
  std::int32_t lane_threads = 1;
  std::int64_t kv_mib = 64;
  std::string level = "best";
  bool f32 = false;
  std::string report, json;
  bool quiet = false;
};

// Names become types here and nowhere else.
vb::any_engine make_engine(const model_type& model, const configuration& c, const options& o, const recorders& watch) {
  const vb::engine_options settings{
      .threads = o.threads, .preparation_threads = 1, .encoder_cache = {.bytes = 256_MiB, .reuse = c.encoder_cache}};
  const auto with_vision = [&](auto kv, auto policy) {
    if (c.vision == "async") {
      vb::parts<vb::async_vision, vb::default_sampler, vb::wall_clock, recorders> p{.vision = {.threads = o.lane_threads}, .watch = watch};
      return vb::any_engine::make(model, std::move(kv), std::move(policy), std::move(p), settings);
    }
    vb::parts<vb::inline_vision, vb::default_sampler, vb::wall_clock, recorders> p{.watch = watch};
    return vb::any_engine::make(model, std::move(kv), std::move(policy), std::move(p), settings);
  };
  const auto with_kv = [&](auto policy) {
    if (c.kv == "paged") return with_vision(vb::paged_kv{{.bytes = o.kv_mib << 20U}}, std::move(policy));
    return with_vision(vb::contiguous_kv{{.bytes = o.kv_mib << 20U}}, std::move(policy));
  };
  if (c.policy == "sequential") return with_kv(vb::sequential{o.bounds});
  if (c.policy == "static") return with_kv(vb::static_batching{o.bounds});
  if (c.policy == "padded_static") return with_kv(vb::padded_static{o.bounds});
  return with_kv(vb::continuous{o.bounds});
}

outcome run(const model_type& model, const configuration& c, const options& o, const workload& w,
            std::vector<std::vector<std::int32_t>>& reference) {
  vb::latency_recorder latency;
  const vb::timeline_recorder timeline;
  vb::any_engine engine = make_engine(model, c, o, recorders{latency, timeline});
  // A request of its own warms memory and threads up; what it did is taken off the counts.
  static_cast<void>(engine.generate(std::span(w.requests).first(1)));
  latency.clear();
  const vb::engine_stats before = engine.stats();
  outcome out;
  out.began = vb::wall_clock{}.now();
  const std::vector<vb::result> results = engine.generate(w.requests);
  out.makespan_s = vb::to_seconds(vb::wall_clock{}.now() - out.began);
  out.stats = engine.stats() - before;
  out.encode_s = vb::to_seconds(out.stats.encode_time);
  out.latency = latency.summary();
  out.kv_peak_blocks = engine.usage().peak_blocks_used;
  for (const vb::timeline_row& r : timeline.rows()) {
    if (r.arrival >= out.began) out.timeline.push_back(r);
  }
  if (reference.empty()) {
    for (const vb::result& r : results) reference.push_back(r.tokens);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const vb::result& r = results[i];
    if (r.outcome == vb::status::finished) {
      ++out.completed;
    } else {
      ++(r.outcome == vb::status::dropped ? out.dropped : out.failed);
      if (out.first_failure.empty()) out.first_failure = fmt::format("request {}: {}: {}", i, vb::name_of(r.outcome), r.reason);
    }
    out.output_tokens += static_cast<std::int64_t>(r.tokens.size());
    const std::size_t first = r.text.find_first_not_of(' ');
    const std::string said = first == std::string::npos ? std::string() : r.text.substr(first);
    if (!w.answers[i].empty() && said == w.answers[i]) ++out.correct;
    if (r.outcome == vb::status::finished && r.tokens == reference[i]) ++out.identical;
  }
  return out;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.flush();
  if (!out) throw vb::file_error(path + ": cannot be written");
}

int experiment(const options& given, const std::string& command) {
  options o = given;
  const bool progress = !o.quiet;
  const auto say = [&](const std::string& s) {
    if (progress) fmt::print(stderr, "{}\n", s);
  };
  // What cannot be written is found before the work is done.
  if (!o.report.empty() && o.report == o.json) throw vb::invalid_argument(fmt::format("--report and --json are both {}", o.report));
  for (const std::string& path : {o.report, o.json == "-" ? std::string() : o.json}) {
    if (!path.empty() && !std::ofstream(path, std::ios::app)) throw vb::file_error(path + ": cannot be written");
  }
  say(fmt::format("loading {}", o.model));
  const vb::cpu device = device_at(o.level);
  const model_type model =
      model_type::load(o.model, {.device = device, .format = o.f32 ? vb::weight_format::f32 : vb::weight_format::as_stored});
  if (o.bounds.max_encoder_tokens == 0) o.bounds.max_encoder_tokens = std::max(16 * model.info().tokens_per_tile, 1);
  if (o.threads == 0) o.threads = static_cast<std::int32_t>(std::max(std::thread::hardware_concurrency(), 1U));
  const workload w = load_workload(o.manifest.empty() ? o.model + "/eval/manifest.json" : o.manifest, o.requests,
                                   o.pair_kind == "same" ? pairs::same : pairs::distinct);

  std::vector<experiment_row> rows;
  for (const std::string& p : o.policies) {
    for (const std::string& v : o.visions) {
      for (const std::string& k : o.kvs) rows.push_back({{p, v, k, false}, {}});
    }
  }
  if (!o.no_encoder_cache_rows) {
    const auto known = [](const std::vector<std::string>& v, const char* s) { return std::find(v.begin(), v.end(), s) != v.end(); };
    for (const char* p : {"sequential", "continuous"}) {
      if (known(o.policies, p)) rows.push_back({{p, o.visions.back(), o.kvs.back(), true}, {}});
    }
  }
  std::vector<std::vector<std::int32_t>> reference;
  std::string failure;
  const std::size_t total = rows.size() * static_cast<std::size_t>(o.repeats);
  std::size_t done = 0;
  for (std::int32_t repeat = 0; repeat < o.repeats; ++repeat) {  // interleaved, so that a busy minute of the machine hits every row
    for (experiment_row& r : rows) {
      r.runs.push_back(run(model, r.what, o, w, reference));
      const outcome& last = r.runs.back();
      if (failure.empty()) failure = last.first_failure;
      say(fmt::format("[{}/{}] {}: {:.2f} s, {:.1f} requests/s", ++done, total, r.what.label(), last.makespan_s, last.requests_per_s()));
    }
  }
  const experiment_header header{.model = model.info().name,
                                 .workload = w.name,
                                 .machine = machine_description(),
                                 .git = git_description(),
                                 .command = command,
                                 .requests = o.requests,
                                 .seed = 0,
                                 .bounds = o.bounds,
                                 .threads = o.threads,
                                 .level = std::string(vb::name_of(device.level())) + (o.f32 ? " f32" : "")};
  say("");
  if (o.json == "-") {
    fmt::print("{}", as_json(rows, header));
  } else {
    fmt::print("{}", as_table(rows, header));
    if (!o.json.empty()) write_file(o.json, as_json(rows, header));
  }
  if (!o.report.empty()) {
    write_file(o.report, as_html(rows, header));
    say(fmt::format("\nthe picture: {}", o.report));
  }
  if (!failure.empty()) {
    fmt::print(stderr, "vlbatch-experiment: not every request finished; the first: {}\n", failure);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app{
      "Runs the same (prompt, image) requests under every batching strategy, vision lane and KV cache, and shows by how much and why one "
      "call with the list "
      "is faster than one call after another."};
  app.option_defaults()->always_capture_default();
  app.add_option("--model", o.model, "model folder (Hugging Face layout)");
  app.add_option("--workload", o.manifest, "manifest of rows {image, prompt, answer, max_new_tokens}; default: MODEL/eval/manifest.json");
  app.add_option("--pairs", o.pair_kind, "same: one prompt and image again and again; distinct: all rows in turn")
      ->check(CLI::IsMember({"same", "distinct"}));
  app.add_option("-n,--requests", o.requests, "how many requests")->check(CLI::Range(1, 1000000));
  app.add_option("--repeats", o.repeats, "runs of each configuration, interleaved")->check(CLI::Range(1, 1000));
  app.add_option("--policies", o.policies, "strategies, in this order")
      ->delimiter(',')
      ->check(CLI::IsMember({"sequential", "static", "padded_static", "continuous"}));
  app.add_option("--vision", o.visions, "vision lanes")->delimiter(',')->check(CLI::IsMember({"inline", "async"}));
  app.add_option("--kv", o.kvs, "KV caches")->delimiter(',')->check(CLI::IsMember({"contiguous", "paged"}));
  app.add_flag("--no-encoder-cache-rows", o.no_encoder_cache_rows, "leave out the rows with the encoder cache on");
  app.add_option("--max-num-seqs", o.bounds.max_num_seqs, "sequences at the same time")->check(CLI::Range(1, 4096));
  app.add_option("--max-num-batched-tokens", o.bounds.max_num_batched_tokens, "rows of a step")->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-encoder-tokens", o.bounds.max_encoder_tokens, "embedding rows encoded in a step; 0: 16 tiles")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--threads", o.threads, "threads of step and vision lane together; 0: all processors")->check(CLI::Range(0, 1024));
  app.add_option("--lane-threads", o.lane_threads, "of these, threads of an async vision lane")->check(CLI::Range(1, 1024));
  app.add_option("--kv-mib", o.kv_mib, "capacity of the KV cache, MiB")->check(CLI::Range(1, 1 << 20));
  app.add_option("--level", o.level, level_help);
  app.add_flag("--f32", o.f32, f32_help);
  app.add_option("--report", o.report, "write a self-contained HTML page with the timelines");
  app.add_option("--json", o.json, "write JSON to this file; -: to standard output instead of the table");
  app.add_flag("-q,--quiet", o.quiet, "no progress on standard error");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return finish("vlbatch-experiment", app.exit(e) == 0 ? 0 : 2);
  }
  std::string command = "vlbatch-experiment";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    return finish("vlbatch-experiment", experiment(o, command));
  } catch (const std::exception& e) {
    fmt::print(stderr, "vlbatch-experiment: {}\n", e.what());
    return 2;
  }
}
