// SPDX-License-Identifier: Apache-2.0
// Tile counts, pixel values and token ids of whole requests against transformers' Idefics3Processor; goldens by
// tests/golden/make_image_goldens.py.
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "support/files.hpp"
#include "unit/io/image_test_support.hpp"
#include "unit/model/idefics3/golden_support.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

namespace vb = vlbatch;
using vlbatch_tests::golden;

namespace {

// transformers' load_image turns upright and drops alpha; 9 tokens a tile, as the goldens were made.
vb::idefics3_processor processor_of(const nlohmann::json& settings) {
  vb::tokenizer text = vb::tokenizer::load(vb::testing::golden_text("tokenizer.json"));
  vb::idefics3_config c;
  c.source = "goldens";
  c.preprocessing = vlbatch_tests::settings_from(settings);
  c.vision.image_size = c.preprocessing.max_image_size_longest_edge;
  c.vision.patch_size = c.vision.image_size / 6;
  c.scale_factor = 2;
  c.text.vocab_size = 1 << 20;
  c.image_token_id = text.find("<image>").value();
  vb::image_decode_options decoding;
  decoding.apply_exif_orientation = true;
  return {std::move(c), std::move(text), decoding};
}

// \p row: configuration, picture (one or two columns), rows, columns, hash of the pixel values, hash of the token ids.
void check_request(const vb::idefics3_processor& p, vb::image_part picture, const nlohmann::json& row) {
  SCOPED_TRACE(row.dump());
  vb::request r;
  r.messages.push_back({"user", {std::move(picture), vb::text_part{"What is it?"}}});
  const vb::prepared_request got = p.prepare(r);
  const std::size_t n = row.size();
  ASSERT_EQ(got.images.size(), 1U);
  const auto grid_tiles = row[n - 4].get<std::int32_t>() * row[n - 3].get<std::int32_t>();
  EXPECT_EQ(got.images[0].pixels->num_tiles, grid_tiles + 1);
  EXPECT_EQ(vlbatch_tests::hash_of_floats(*got.images[0].pixels).substr(0, 32), row[n - 2].get<std::string>());
  EXPECT_EQ(vlbatch_tests::sha256_of(got.tokens.data(), got.tokens.size() * sizeof(std::int32_t)).substr(0, 32),
            row[n - 1].get<std::string>());
}

}  // namespace

TEST(idefics3_requests, equal_transformers_over_a_sweep_of_sizes) {
  const auto all = golden("idefics3.json");
  std::map<std::string, int> seen;
  for (const std::string name : {"small", "small_single"}) {
    const vb::idefics3_processor p = processor_of(all["configs"][name]);
    for (const auto& row : all["prompts"]) {
      if (row[0] != name) continue;
      auto picture = vlbatch_tests::test_picture(row[1].get<std::int32_t>(), row[2].get<std::int32_t>(), 2);
      check_request(p, {std::make_shared<const vb::image_buffer>(std::move(picture))}, row);
      ++seen[name];
    }
  }
  EXPECT_GE(seen["small"], 20);
  EXPECT_GE(seen["small_single"], 20);
}

TEST(idefics3_requests, equal_transformers_on_all_samples_that_decode) {
  const std::filesystem::path folder = vlbatch_tests::samples_folder();
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no folder " << folder << " with other people's pictures";
  const auto all = golden("idefics3.json");
  std::map<std::string, int> seen;
  for (const std::string name : {"small", "small_single", "smolvlm"}) {
    const vb::idefics3_processor p = processor_of(all["configs"][name]);
    for (const auto& row : all["samples"]) {
      if (row[0] != name) continue;
      check_request(p, {(folder / row[1].get<std::string>()).string()}, row);
      ++seen[name];
    }
  }
  EXPECT_GE(seen["small"], 100);
  EXPECT_GE(seen["small_single"], 100);
  EXPECT_EQ(seen["smolvlm"], 1);
}
