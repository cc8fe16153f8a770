// SPDX-License-Identifier: Apache-2.0
// Times the tokenisation of one text. bench/compare_tokenizer.py sets the `tokenizers` package beside it.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "vlbatch/io/tokenizer.hpp"

namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw std::runtime_error("cannot read " + path);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Tokenises a text on one thread, again and again; prints JSON: bytes, ids, the seconds of each repeat."};
  std::string tokenizer_file;
  std::string text_file;
  int repeats = 5;
  app.add_option("tokenizer", tokenizer_file, "a tokenizer.json")->required()->check(CLI::ExistingFile);
  app.add_option("text", text_file, "a text, UTF-8")->required()->check(CLI::ExistingFile);
  app.add_option("--repeats", repeats, "times to tokenise it")->capture_default_str()->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  try {
    const auto tokenizer = vlbatch::tokenizer::load(tokenizer_file);
    const std::string text = read_text(text_file);
    std::vector<std::int32_t> ids;
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
      ids.clear();
      const auto began = std::chrono::steady_clock::now();
      tokenizer.encode(text, vlbatch::tokenizer::special_tokens::parse, ids);
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    std::puts(nlohmann::json{{"bytes", text.size()}, {"ids", ids}, {"seconds", seconds}}.dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_tokenizer: %s\n", e.what());
    return 1;
  }
  return 0;
}
