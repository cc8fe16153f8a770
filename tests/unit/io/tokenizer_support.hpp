// SPDX-License-Identifier: Apache-2.0
// Tokenizers that the tests of several files use.
#pragma once

#include <fstream>
#include <string>

#include "support/files.hpp"
#include "vlbatch/io/tokenizer.hpp"

namespace vlbatch::testing {

/// The committed tokenizer.json: a small vocabulary with the control tokens of SmolVLM.
inline const nlohmann::json& trained_tokenizer() {
  static const nlohmann::json j = read_json(golden_text("tokenizer.json"));
  return j;
}

inline tokenizer load_tokenizer(const nlohmann::json& j) {
  const temporary_folder folder;
  return tokenizer::load(folder.write("tokenizer.json", j));
}

/// The vocabulary and merges of GPT-2 out of \p folder, as a tokenizer.json.
inline nlohmann::json gpt2_tokenizer(const std::string& folder) {
  nlohmann::json j = trained_tokenizer();
  j["added_tokens"] = nlohmann::json::array();
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}, {"trim_offsets", true}};
  j["model"]["vocab"] = read_json(folder + "/vocab.json");
  nlohmann::json merges = nlohmann::json::array();
  std::ifstream lines(folder + "/merges.txt");
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) merges.push_back(line);  // the first line is "#version: 0.2", which older files carry along
  }
  j["model"]["merges"] = merges;
  return j;
}

}  // namespace vlbatch::testing
