// SPDX-License-Identifier: Apache-2.0
// The configuration files of a folder with 0 bytes between them: config.json, preprocessor_config.json, processor_config.json,
// generation_config.json. An empty one is absent.
#include "vlbatch/model/idefics3/config.hpp"

#include <algorithm>
#include <cmath>

#include "fuzz_support.hpp"
#include "vlbatch/model/idefics3/processor.hpp"
#include "vlbatch/model/idefics3/prompt_format.hpp"

namespace {

using namespace vlbatch;
using namespace vlbatch::fuzz;

const tokenizer& text() {
  static const tokenizer t = tokenizer::load(VLBATCH_SOURCE_DIR "/models/tiny-vlm/tokenizer.json");
  return t;
}

void use(const idefics3_config& c) {
  require(c.vision.head_dim() * c.vision.num_attention_heads == c.vision.hidden_size, "heads divide the width");
  require(c.tokens_per_tile() >= 1, "a tile has embedding rows");
  require(std::int64_t{c.tokens_per_tile()} * c.scale_factor * c.scale_factor == c.vision.num_patches(), "the connector keeps all patches");
  require(c.text.head_dim % 2 == 0 && c.text.num_attention_heads % c.text.num_key_value_heads == 0, "rotary pairs and grouped heads");
  require(c.image_token_id >= 0 && c.image_token_id < c.text.vocab_size, "the placeholder is a token");
  require(!c.eos_token_ids.empty(), "answers can end");
  for (const std::int32_t id : c.eos_token_ids) require(id >= 0 && id < c.text.vocab_size, "end tokens are tokens");
  for (const auto& [width, height] : {std::pair{1, 1}, {640, 480}, {3, 4000}, {16384, 1}}) {
    const idefics3_tiling t = idefics3_tiling_of(c.preprocessing, width, height);
    require(t.full_width >= 1 && t.full_height >= 1 && t.resized_width >= 1 && t.resized_height >= 1, "a picture keeps both sides");
    require(t.grid.rows >= 0 && t.grid.cols >= 0 && (t.grid.rows == 0) == (t.grid.cols == 0), "a grid has both sides or none");
    const std::int32_t tile = c.preprocessing.max_image_size_longest_edge;
    require(t.grid.rows == 0 || (t.grid.rows * tile == t.full_height && t.grid.cols * tile == t.full_width), "tiles fill the picture");
  }
  for (const auto& channel : idefics3_normalised_values(c.preprocessing)) {
    for (const float v : channel) require(!std::isnan(v), "pixels are numbers");
  }
  tolerate([&] { static_cast<void>(idefics3_prompt_format(text(), c)); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const folder where;
  const std::vector<std::string_view> parts = cut(text_of(data, size), 4);
  static constexpr const char* names[] = {"config.json", "preprocessor_config.json", "processor_config.json", "generation_config.json"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    i < parts.size() && !parts[i].empty() ? where.write(names[i], parts[i]) : where.remove(names[i]);
  }
  tolerate([&] {
    const idefics3_config c = idefics3_config::load(where.path());
    require(c == idefics3_config::load(where.path()), "a folder has one meaning");
    use(c);
  });
  return 0;
}
