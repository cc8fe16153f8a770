// SPDX-License-Identifier: Apache-2.0
// Writes a seeded random checkpoint in Hugging Face layout: a model of a real shape for benchmarks, where none may be downloaded.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/machine.hpp"

#include "vlbatch/model/idefics3/random_checkpoint.hpp"

namespace vb = vlbatch;

namespace {

struct options {
  std::string shape, out;
  std::string type = "bf16";
  std::string splitting;
  std::uint64_t seed = 0;
  std::int32_t shards = 1;
  bool force = false, quiet = false, json = false;
};

// A line that is written over on a terminal, and nothing elsewhere: the summary at the end says it all.
void show_progress(const std::string& shape, std::int64_t done, std::int64_t total) {
  fmt::print(stderr, "\r{}: {:3d} % of {} MiB made", shape, 100 * done / total, total >> 20U);
  if (done == total) fmt::print(stderr, "\n");
  std::fflush(stderr);
}

int make(const options& o) {
  const auto began = std::chrono::steady_clock::now();
  vb::random_checkpoint_shape shape = vb::named_checkpoint_shape(o.shape);
  if (!o.splitting.empty()) shape.config.preprocessing.do_image_splitting = o.splitting == "on";
  vb::random_checkpoint_options how{
      .seed = o.seed, .type = o.type == "f32" ? vb::dtype::f32 : vb::dtype::bf16, .shards = o.shards, .overwrite = o.force};
  if (!o.quiet && isatty(fileno(stderr)) != 0)
    how.progress = [&](std::int64_t done, std::int64_t total) { show_progress(o.shape, done, total); };
  const vb::random_checkpoint_report made = vb::write_random_checkpoint(shape, o.out, how);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (o.json) {
    const nlohmann::json j = {{"shape", o.shape},
                              {"out", o.out},
                              {"seed", o.seed},
                              {"dtype", o.type},
                              {"parameters", made.parameters},
                              {"weight_bytes", made.weight_bytes},
                              {"files", made.files},
                              {"seconds", seconds}};
    fmt::print("{}\n", j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("{}: {} with {:.1f} M random parameters (seed {}, {}), {:.1f} MB of weights in {} file{}, made in {:.1f} s\n", o.out,
               o.shape, static_cast<double>(made.parameters) / 1e6, o.seed, o.type, static_cast<double>(made.weight_bytes) / 1e6,
               made.files, made.files == 1 ? "" : "s", seconds);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  options o;
  std::vector<std::string> shapes(vb::checkpoint_shape_names().begin(), vb::checkpoint_shape_names().end());
  CLI::App app{
      "Writes a seeded random checkpoint of the Idefics3 / SmolVLM family in Hugging Face layout. It has the shape, size and speed of the "
      "real "
      "model, and answers nonsense.\nExit code: 0 written, 2 bad arguments or the folder cannot be written."};
  app.add_option("--shape", o.shape, "which shape")->required()->check(CLI::IsMember(shapes));
  app.add_option("--out", o.out, "folder to write; made if need be")->required();
  app.add_option("--seed", o.seed, "same seed, same bytes, on every machine")
      ->check(vlbatch::programs::whole_number)
      ->capture_default_str();
  app.add_option("--dtype", o.type, "number type of the weights")->check(CLI::IsMember({"bf16", "f32"}))->capture_default_str();
  app.add_option("--shards", o.shards, "number of safetensors files; one is in memory at a time")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--splitting", o.splitting, "cut pictures into tiles: on or off; default: as the real model, tiny off")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_flag("--force", o.force, "write into a folder that is not empty; weight files there are removed first");
  app.add_flag("--json", o.json, "print the summary as JSON");
  app.add_flag("-q,--quiet", o.quiet, "no progress");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return vlbatch::programs::finish("vlbatch-make-model", app.exit(e) == 0 ? 0 : 2);
  }
  try {
    return vlbatch::programs::finish("vlbatch-make-model", make(o));
  } catch (const std::exception& e) {
    fmt::print(stderr, "vlbatch-make-model: {}\n", e.what());
    return 2;
  }
}
