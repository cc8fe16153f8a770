// SPDX-License-Identifier: Apache-2.0
// What tests/golden/make_model_goldens.py wrote: conversations, and what transformers computes for them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "vlbatch/core/request.hpp"
#include "vlbatch/io/safetensors.hpp"

namespace vlbatch::testing {

/// The picture that the script draws for the same arguments.
inline std::shared_ptr<const image_buffer> golden_picture(std::int32_t seed, std::int32_t width, std::int32_t height) {
  auto p = std::make_shared<image_buffer>();
  p->width = width;
  p->height = height;
  for (std::int32_t y = 0; y < height; ++y) {
    for (std::int32_t x = 0; x < width; ++x) {
      for (std::int32_t c = 0; c < 3; ++c) {
        const std::int32_t v = (x * (3 + seed) + y * (5 + 2 * c) + ((x * y) >> 3) * (c + 1) + seed * 37) & 255;
        p->pixels.push_back(static_cast<std::uint8_t>(x < width / 2 ? v : 255 - v));
      }
    }
  }
  return p;
}

/// One conversation and its reference.
struct golden_case {
  std::string name;
  request ask;
  std::int32_t prompt_tokens = 0;
  std::vector<std::int32_t> ids;    // prompt, then greedy tokens
  std::vector<float> gaps;          // between the two highest logits, one a greedy step
  std::vector<std::uint8_t> tiles;  // [tiles, side, side, 3]; empty without images
  std::vector<float> embeddings;    // [tiles * per_tile, hidden]
  std::vector<float> logits;        // [ids.size(), vocab]
  float range = 0.0F;               // highest minus lowest of logits
};

/// Folder of a model: the random ones hold their goldens themselves.
inline std::string golden_model_folder(const std::string& name) {
  const std::string root = VLBATCH_SOURCE_DIR;
  return name == "tiny-vlm" ? root + "/models/tiny-vlm" : root + "/tests/golden/models/" + name;
}

/// All cases of a model.
inline std::vector<golden_case> load_goldens(const std::string& name) {
  const std::string folder = std::string(VLBATCH_SOURCE_DIR) + "/tests/golden/models/" + name;
  std::ifstream file(folder + "/golden.json");
  const nlohmann::json about = nlohmann::json::parse(file);
  const checkpoint stored = checkpoint::open_file(folder + "/golden.safetensors");
  const auto floats = [&](const std::string& tensor) {
    std::vector<float> values;
    if (const tensor_view* t = stored.find(tensor)) {
      values.resize(static_cast<std::size_t>(t->elements));
      t->copy_to(values);
    }
    return values;
  };
  std::vector<golden_case> cases;
  for (const auto& [key, c] : about.at("cases").items()) {
    golden_case g;
    g.name = key;
    for (const auto& m : c.at("messages")) {
      message turn{.role = m.at("role"), .parts = {}};
      for (const auto& part : m.at("parts")) {
        if (part.contains("text")) {
          turn.parts.emplace_back(text_part{part.at("text")});
        } else {
          const auto& a = part.at("image");
          turn.parts.emplace_back(image_part{golden_picture(a.at(0), a.at(1), a.at(2))});
        }
      }
      g.ask.messages.push_back(std::move(turn));
    }
    g.prompt_tokens = c.at("prompt_tokens");
    g.gaps = c.at("gaps").get<std::vector<float>>();
    for (const float id : floats(key + ".ids")) g.ids.push_back(static_cast<std::int32_t>(id));
    if (const tensor_view* t = stored.find(key + ".tiles")) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(t->data);
      g.tiles.assign(bytes, bytes + t->elements);
    }
    g.embeddings = floats(key + ".embeddings");
    g.logits = floats(key + ".logits");
    const auto [low, high] = std::minmax_element(g.logits.begin(), g.logits.end());
    g.range = *high - *low;
    cases.push_back(std::move(g));
  }
  return cases;
}

}  // namespace vlbatch::testing
