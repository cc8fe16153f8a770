// SPDX-License-Identifier: Apache-2.0
// Answers one prompt with images from a model folder.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "common/machine.hpp"
#include "vlbatch/io/npy.hpp"
#include "vlbatch/vlbatch.hpp"

namespace vb = vlbatch;
using namespace vlbatch::literals;

namespace {

using model_type = vb::idefics3<vb::cpu>;

struct options {
  std::string model, prompt, system, dump_logits;
  std::vector<std::string> images;
  vb::request ask;
  bool f32 = false;
  std::string level = "best";
  std::int32_t threads = 0;
  bool verbose = false;
};

// Logits of every prompt position, computed without an engine: [positions, vocab].
void dump_logits(const model_type& model, const vb::request& ask, const std::string& path, std::int32_t threads) {
  const vb::prepared_request p = model.prepare(ask);
  auto work = model.make_workspace(threads);
  const auto tokens = static_cast<std::int32_t>(p.tokens.size());
  const vb::model_info& info = model.info();
  if (tokens > info.max_positions)
    throw vb::invalid_argument(fmt::format("the prompt has {} tokens, the model takes {}", tokens, info.max_positions));
  std::vector<std::shared_ptr<std::byte>> memory;
  std::vector<vb::injected_rows> injected;
  for (const vb::prepared_image& image : p.images) {
    std::vector<vb::tile_input> tiles;
    memory.push_back(model.allocate(std::int64_t{image.embedding_rows()} * info.hidden_size * 4));
    auto* base = reinterpret_cast<float*>(memory.back().get());
    for (std::int32_t t = 0; t < image.pixels->num_tiles; ++t) {
      float* rows = base + std::int64_t{t} * image.tokens_per_tile * info.hidden_size;
      tiles.push_back({image.pixels.get(), t, rows});
      injected.push_back({image.tile_positions[static_cast<std::size_t>(t)], image.tokens_per_tile, rows});
    }
    model.encode(work, tiles);
  }
  const std::vector<std::int32_t> begin = {0, tokens}, count = {tokens}, context = {0}, table = {0};
  std::vector<std::int32_t> positions(p.tokens.size());
  for (std::int32_t i = 0; i < tokens; ++i) positions[static_cast<std::size_t>(i)] = i;
  const auto kv_memory = model.allocate(info.kv.bytes_per_token() * tokens);
  const vb::paged_kv_view kv{
      .data = kv_memory.get(), .block_table = table.data(), .num_sequences = 1, .max_blocks = 1, .block_size = tokens, .shape = info.kv};
  const vb::forward_input in{.map = {.num_sequences = 1, .rows = tokens, .row_begin = begin, .num_tokens = count, .context = context},
                             .axes = 1,
                             .token_ids = p.tokens,
                             .positions = positions,
                             .images = injected,
                             .logit_rows = positions};
  model.wait(work, model.forward(work, in, kv));
  const vb::matrix_view<const float> logits = model.logits(work);
  for (std::int32_t r = 0; r < logits.rows; ++r) {
    if (!std::all_of(logits.row(r), logits.row(r) + logits.cols, [](float v) { return std::isfinite(v); }))
      throw vb::model_error(fmt::format("logits of prompt token {} are not finite", r));
  }
  vb::write_npy(path, logits);
  fmt::print(stderr, "wrote {}: float32 [{}, {}]\n", path, logits.rows, logits.cols);
}

int run(options& o) {
  if (o.prompt == "-") o.prompt.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  if (o.threads == 0) o.threads = static_cast<std::int32_t>(std::max(std::thread::hardware_concurrency(), 1U));
  const vb::wall_clock clock;
  const vb::time_point began = clock.now();
  const model_type model = model_type::load(
      o.model, {.device = vb::programs::device_at(o.level), .format = o.f32 ? vb::weight_format::f32 : vb::weight_format::as_stored});
  const vb::time_point loaded = clock.now();
  if (!o.system.empty()) o.ask.messages.push_back({.role = "system", .parts = {vb::text_part{o.system}}});
  vb::message user{.role = "user", .parts = {}};
  for (const std::string& path : o.images) user.parts.emplace_back(vb::image_part{path});
  user.parts.emplace_back(vb::text_part{o.prompt});
  o.ask.messages.push_back(std::move(user));
  if (!o.dump_logits.empty()) {
    dump_logits(model, o.ask, o.dump_logits, o.threads);
    return 0;
  }
  o.ask.on_token = [](const vb::token_event& t) {
    fmt::print("{}", t.text);
    std::fflush(stdout);
  };
  vb::engine e{model, vb::paged_kv{{.bytes = 1_GiB}},
               vb::continuous{{.max_num_seqs = 1, .max_num_batched_tokens = 512, .max_encoder_tokens = 4096}}, vb::parts<>{},
               vb::engine_options{.threads = o.threads, .encoder_cache = {.bytes = 1_GiB}}};
  const vb::result r = e.generate(std::span(&o.ask, 1)).front();
  fmt::print("\n");
  if (r.outcome != vb::status::finished) {
    fmt::print(stderr, "vlbatch-run: {}: {}\n", vb::name_of(r.outcome), r.reason);
    return 1;
  }
  if (o.verbose) {
    const double decode = vb::to_seconds(r.when.last_token - r.when.first_token);
    fmt::print(stderr, "load {:.2f} s, {} prompt tokens, first token after {}, {} tokens, {:.1f} tokens/s, ended by {}\n",
               vb::to_seconds(loaded - began), r.prompt_tokens,
               r.tokens.empty() ? "-" : fmt::format("{:.3f} s", vb::to_seconds(r.when.first_token - r.when.arrival)), r.tokens.size(),
               decode > 0 ? static_cast<double>(r.tokens.size() - 1) / decode : 0.0, vb::name_of(r.finish));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  CLI::App app{"Answers one prompt, with images, from a model folder in Hugging Face layout (Idefics3, SmolVLM). Streams the answer."};
  app.option_defaults()->always_capture_default();
  app.add_option("model", o.model, "model folder")->required();
  app.add_option("-p,--prompt", o.prompt, "the question; -: from standard input")->required();
  app.add_option("-i,--image", o.images, "picture file, before the text; may be given several times");
  app.add_option("--system", o.system, "system message");
  app.add_option("-n,--max-new-tokens", o.ask.max_new_tokens, "longest answer")->check(CLI::Range(0, 1 << 20));
  app.add_option("-t,--temperature", o.ask.sampling.temperature, "0: greedy");
  app.add_option("--top-k", o.ask.sampling.top_k, "0: all");
  app.add_option("--top-p", o.ask.sampling.top_p, "1: all");
  app.add_option("--min-p", o.ask.sampling.min_p, "0: all; else as a fraction of the likeliest");
  app.add_option("--repetition-penalty", o.ask.sampling.repetition_penalty, "1: none");
  app.add_option("--frequency-penalty", o.ask.sampling.frequency_penalty, "for each time that a token stands in the answer");
  app.add_option("--presence-penalty", o.ask.sampling.presence_penalty, "for tokens that stand in the answer");
  app.add_option("--seed", o.ask.sampling.seed, "of the sampling");
  app.add_option("--stop", o.ask.stop, "the answer ends before this text; may be given several times");
  app.add_flag("--ignore-eos", o.ask.ignore_eos, "go on to --max-new-tokens");
  app.add_flag("--f32", o.f32, vb::programs::f32_help);
  app.add_option("--level", o.level, vb::programs::level_help);
  app.add_option("--threads", o.threads, "0: all processors")->check(CLI::Range(0, 1024));
  app.add_option("--dump-logits", o.dump_logits, "write the logits of every prompt position to this .npy file instead of answering");
  app.add_flag("-v,--verbose", o.verbose, "timings on standard error");
  for (CLI::Option* list : {app.get_option("--image"), app.get_option("--stop")})  // one value each, brackets and all
    list->expected(1)->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.get_option("--seed")->check(vb::programs::whole_number);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return vb::programs::finish("vlbatch-run", app.exit(e) == 0 ? 0 : 2);
  }
  try {
    return vb::programs::finish("vlbatch-run", run(o));
  } catch (const std::exception& e) {
    fmt::print(stderr, "vlbatch-run: {}\n", e.what());
    return 2;
  }
}
