// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/files.hpp"
#include "unit/io/image_test_support.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

namespace vb = vlbatch;
using vlbatch_tests::file_bytes;
using vlbatch_tests::golden_folder;
using vlbatch_tests::test_picture;

namespace {

// Byte-level tokenizer without merges: token id = place of the byte in the order of its printable spelling.
constexpr std::int32_t first_control = 256;
const std::vector<std::string>& controls() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out = {"<|im_start|>", "<end_of_utterance>", "<fake_token_around_image>", "<image>", "<global-img>"};
    for (int r = 1; r <= 6; ++r) {
      for (int c = 1; c <= 6; ++c) out.push_back("<row_" + std::to_string(r) + "_col_" + std::to_string(c) + ">");
    }
    return out;
  }();
  return names;
}
constexpr std::int32_t start_id = first_control, end_id = first_control + 1, fake_id = first_control + 2, image_id = first_control + 3,
                       global_id = first_control + 4;

vb::tokenizer byte_tokenizer() {
  nlohmann::json vocab;
  std::int32_t next_code = 256;
  for (std::int32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const std::int32_t code = printable ? b : next_code++;
    std::string spelled;
    if (code < 128) {
      spelled = static_cast<char>(code);
    } else {
      spelled = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
    }
    vocab[spelled] = b;
  }
  nlohmann::json added = nlohmann::json::array();
  for (std::size_t i = 0; i < controls().size(); ++i) {
    const std::int32_t id = first_control + static_cast<std::int32_t>(i);
    added.push_back({{"id", id},
                     {"content", controls()[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
    vocab[controls()[i]] = id;
  }
  const nlohmann::json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json file = {{"version", "1.0"},
                               {"truncation", nullptr},
                               {"padding", nullptr},
                               {"added_tokens", added},
                               {"normalizer", nullptr},
                               {"pre_tokenizer", byte_level},
                               {"post_processor", nullptr},
                               {"decoder", byte_level},
                               {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  const vb::testing::temporary_folder temporary;
  return vb::tokenizer::load(temporary.write("tokenizer.json", file));
}

vb::idefics3_config small_config(bool splitting) {
  vb::idefics3_config c;
  c.source = "a folder";
  c.vision.image_size = 96;
  c.vision.patch_size = 16;
  c.scale_factor = 2;  // 3 x 3 tokens a tile
  c.text.vocab_size = first_control + static_cast<std::int32_t>(controls().size());
  c.image_token_id = image_id;
  c.eos_token_ids = {end_id};
  c.preprocessing.max_image_size_longest_edge = 96;
  c.preprocessing.size_longest_edge = 384;
  c.preprocessing.do_image_splitting = splitting;
  return c;
}

vb::idefics3_processor make_processor(bool splitting) { return {small_config(splitting), byte_tokenizer()}; }

vb::image_part pixels_part(std::int32_t width, std::int32_t height, std::uint32_t seed) {
  return {std::make_shared<const vb::image_buffer>(test_picture(width, height, seed))};
}
vb::image_part file_part(const std::string& name) { return {(golden_folder() / "files" / name).string()}; }

vb::request ask(std::vector<vb::message_part> parts) {
  vb::request r;
  r.messages.push_back({"user", std::move(parts)});
  return r;
}

template <class Error, class F>
std::string reason(F&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(idefics3_processor, a_single_tile_prompt_token_by_token) {
  const vb::idefics3_processor p = make_processor(false);
  const vb::prepared_request r = p.prepare(ask({pixels_part(50, 40, 2), vb::text_part{"Hi"}}));
  std::vector<std::int32_t> expected = {start_id};
  const auto text = [&](std::string_view s) { expected.insert(expected.end(), s.begin(), s.end()); };
  text("User:");
  expected.insert(expected.end(), {fake_id, global_id});
  expected.insert(expected.end(), 9, image_id);
  expected.push_back(fake_id);
  text("Hi");
  expected.push_back(end_id);
  text("\nAssistant:");
  EXPECT_EQ(r.tokens, expected);
  ASSERT_EQ(r.images.size(), 1U);
  EXPECT_EQ(r.images[0].first_position, 8);
  EXPECT_EQ(r.images[0].num_tokens, 9);
  EXPECT_EQ(r.images[0].tokens_per_tile, 9);
  EXPECT_EQ(r.images[0].tile_positions, (std::vector<std::int32_t>{8}));
  EXPECT_FALSE(r.images[0].atomic);
  EXPECT_TRUE(r.images[0].pixels->same_content(*vb::idefics3_make_tiles(p.config().preprocessing, test_picture(50, 40, 2), p.decoding())));
}

TEST(idefics3_processor, every_placeholder_belongs_to_its_picture) {
  const vb::idefics3_processor p = make_processor(true);
  const std::vector<std::pair<std::int32_t, std::int32_t>> sizes = {{200, 150}, {96, 96}, {300, 90}, {1, 1}};
  std::vector<vb::message_part> parts = {vb::text_part{"Compare "}};
  for (const auto& [width, height] : sizes) {
    parts.emplace_back(pixels_part(width, height, 2));
    parts.emplace_back(vb::text_part{"<image> and "});
  }
  const vb::prepared_request r = p.prepare(ask(parts));
  ASSERT_EQ(r.images.size(), sizes.size());
  std::vector<int> owners(r.tokens.size(), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const vb::prepared_image& image = r.images[i];
    const auto grid = vb::idefics3_tiling_of(p.config().preprocessing, sizes[i].first, sizes[i].second).grid;
    EXPECT_EQ(image.pixels->num_tiles, grid.num_tiles());
    ASSERT_EQ(image.tile_positions.size(), static_cast<std::size_t>(grid.num_tiles()));
    EXPECT_EQ(image.first_position, image.tile_positions.front());
    EXPECT_EQ(image.first_position + image.num_tokens, image.tile_positions.back() + 9);
    for (const std::int32_t at : image.tile_positions) {
      for (std::int32_t k = 0; k < 9; ++k) ++owners[static_cast<std::size_t>(at + k)];
    }
  }
  for (std::size_t i = 0; i < owners.size(); ++i) {
    ASSERT_EQ(owners[i], r.tokens[i] == image_id ? 1 : 0) << "position " << i;
  }
}

TEST(idefics3_processor, text_alone_has_no_image_and_empty_text_is_legal) {
  const vb::idefics3_processor p = make_processor(true);
  EXPECT_TRUE(p.prepare(ask({vb::text_part{"Hello"}})).images.empty());
  const vb::prepared_request r = p.prepare(ask({vb::text_part{""}}));
  EXPECT_TRUE(r.images.empty());
  EXPECT_FALSE(r.tokens.empty());
  EXPECT_NE(reason<vb::invalid_argument>([&] { static_cast<void>(p.prepare(ask({}))); }), "");
  EXPECT_NE(reason<vb::invalid_argument>([&] { static_cast<void>(p.prepare(vb::request{})); }), "");
}

TEST(idefics3_processor, path_bytes_and_pixels_give_the_same_tiles) {
  const vb::idefics3_processor p = make_processor(true);
  const std::string path = (golden_folder() / "files/png_2_8.png").string();
  const auto tiles = [&](vb::image_part part) { return p.prepare(ask({std::move(part)})).images.at(0).pixels; };
  const auto from_path = tiles({path});
  const auto from_bytes = tiles({std::make_shared<const std::vector<std::byte>>(file_bytes(path))});
  const auto from_pixels = tiles({std::make_shared<const vb::image_buffer>(vb::load_image(path))});
  EXPECT_TRUE(from_path->same_content(*from_bytes));
  EXPECT_TRUE(from_path->same_content(*from_pixels));
}

TEST(idefics3_processor, a_picture_that_occurs_twice_is_scaled_once) {
  const vb::idefics3_processor p = make_processor(true);
  const vb::image_part a = pixels_part(20, 30, 2), b = file_part("jpeg_420.jpg");
  const vb::prepared_request r = p.prepare(ask({a, b, a, b, pixels_part(20, 30, 2)}));
  ASSERT_EQ(r.images.size(), 5U);
  EXPECT_EQ(r.images[0].pixels, r.images[2].pixels);
  EXPECT_EQ(r.images[1].pixels, r.images[3].pixels);
  EXPECT_NE(r.images[0].pixels, r.images[1].pixels);
  EXPECT_NE(r.images[0].pixels, r.images[4].pixels);
  EXPECT_TRUE(r.images[0].pixels->same_content(*r.images[4].pixels));
}

TEST(idefics3_processor, files_are_turned_upright_and_shown_over_white_unless_told_otherwise) {
  const vb::idefics3_processor p = make_processor(false), plain(small_config(false), byte_tokenizer(), {});
  for (const std::string name : {"jpeg_exif_6.jpg", "png_6_8_holes.png", "webp_lossless_alpha.webp"}) {
    const std::string path = (golden_folder() / "files" / name).string();
    const auto by_default = p.prepare(ask({file_part(name)})).images.at(0).pixels;
    const auto as_stored = plain.prepare(ask({file_part(name)})).images.at(0).pixels;
    EXPECT_EQ(by_default->values, vb::idefics3_make_tiles(p.config().preprocessing, vb::load_image(path, p.decoding()))->values) << name;
    EXPECT_EQ(as_stored->values, vb::idefics3_make_tiles(p.config().preprocessing, vb::load_image(path))->values) << name;
    EXPECT_NE(by_default->values, as_stored->values) << name;
  }
}

TEST(idefics3_processor, unusable_pictures_are_named) {
  const vb::idefics3_processor p = make_processor(true);
  const auto why = [&](vb::image_part part) {
    return reason<vb::error>([&] { static_cast<void>(p.prepare(ask({pixels_part(4, 4, 2), std::move(part)}))); });
  };
  EXPECT_PRED2(has, why({std::string("no/such/picture.png")}), "no/such/picture.png");
  EXPECT_PRED2(has, why(file_part("refused_gif.gif")), "refused_gif.gif");
  EXPECT_PRED2(has, why({std::shared_ptr<const std::vector<std::byte>>()}), "image 1 of the request");
  EXPECT_PRED2(has, why({std::shared_ptr<const vb::image_buffer>()}), "image 1 of the request");
  EXPECT_PRED2(has, why({std::make_shared<const std::vector<std::byte>>()}), "\"image 1 of the request\": is empty");
  EXPECT_PRED2(has, why({std::make_shared<const vb::image_buffer>()}), "image 1 of the request: is 0 x 0 pixels");
  EXPECT_PRED2(has, why({std::make_shared<const vb::image_buffer>(vb::image_buffer{2, 2, std::vector<std::uint8_t>(11)})}),
               "11 bytes of pixels, expected 12");
}

TEST(idefics3_processor, a_prepared_request_passes_unchanged) {
  const vb::idefics3_processor p = make_processor(true);
  vb::request r;
  r.prepared =
      std::make_shared<const vb::prepared_request>(p.prepare(ask({pixels_part(9, 9, 2), vb::text_part{"?"}, pixels_part(90, 30, 2)})));
  const vb::prepared_request again = p.prepare(r);
  EXPECT_EQ(again.tokens, r.prepared->tokens);
  ASSERT_EQ(again.images.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.images[i].pixels, r.prepared->images[i].pixels);
    EXPECT_EQ(again.images[i].tile_positions, r.prepared->images[i].tile_positions);
  }
  r.messages.push_back({"user", {vb::text_part{"both"}}});
  EXPECT_EQ(reason<vb::invalid_argument>([&] { static_cast<void>(p.prepare(r)); }),
            "request has 1 messages and a prepared prompt, expected one or the other");
}

TEST(idefics3_processor, a_prepared_request_that_contradicts_itself_is_refused_with_both_values) {
  const vb::idefics3_processor p = make_processor(true);
  const vb::prepared_request good = p.prepare(ask({vb::text_part{"A"}, pixels_part(90, 30, 2), vb::text_part{"?"}, pixels_part(9, 9, 2)}));
  const auto vocabulary = p.config().text.vocab_size;
  const auto change_tiles = [](vb::prepared_request& r, auto&& change) {
    auto copy = std::make_shared<vb::pixel_tiles>(*r.images[1].pixels);
    change(*copy);
    r.images[1].pixels = copy;
  };
  struct bad_case {
    std::function<void(vb::prepared_request&)> change;
    std::string text;
  };
  const std::string size = std::to_string(good.tokens.size());
  const std::vector<bad_case> cases = {
      {[](auto& r) { r = {}; }, "has 0 tokens, expected at least 1"},
      {[&](auto& r) { r.tokens[2] = vocabulary; },
       "token 2 is " + std::to_string(vocabulary) + ", the vocabulary has " + std::to_string(vocabulary)},
      {[](auto& r) { r.tokens[0] = -1; }, "token 0 is -1"},
      {[](auto& r) { r.images[1].pixels = nullptr; }, "image 1: has no pixels"},
      {[&](auto& r) { change_tiles(r, [](auto& t) { t.num_tiles = 0; }); }, "has 0 tiles"},
      {[&](auto& r) { change_tiles(r, [](auto& t) { t.width = 95; }); }, "tiles are 95 x 96 pixels, the vision tower takes 96 x 96"},
      {[&](auto& r) { change_tiles(r, [](auto& t) { t.values.pop_back(); }); }, "has 470015 bytes of pixels, expected 470016 for 17 tiles"},
      {[](auto& r) { r.images[1].tokens_per_tile = 8; }, "has 8 tokens a tile, the model has 9"},
      {[](auto& r) { r.images[1].tile_positions.pop_back(); }, "has 16 tile positions for 17 tiles"},
      {[](auto& r) { r.images[1].tile_positions[0] = -5; }, "image 1: tile 0 begins at position -5, expected at least"},
      {[](auto& r) { std::swap(r.images[1].tile_positions[0], r.images[1].tile_positions[1]); }, "tile 1 begins at position"},
      {[](auto& r) { std::swap(r.images[0], r.images[1]); }, "image 1: tile 0 begins at position"},
      {[](auto& r) { r.images[1].tile_positions.back() = 1 << 30; }, "tile 16 ends at position 1073741833, the prompt has " + size},
      {[](auto& r) { r.images[1].tile_positions[0] -= 1; }, "tile 0 covers token"},
      {[](auto& r) { r.images[1].first_position += 1; }, "first position is "},
      {[](auto& r) { r.images[1].num_tokens += 1; }, "positions, its tiles cover "},
      {[](auto& r) { r.tokens[1] = image_id; }, "placeholder tokens, its images have"},
      {[](auto& r) { r.images.pop_back(); }, "placeholder tokens, its images have"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    vb::prepared_request bad = good;
    cases[i].change(bad);
    vb::request r;
    r.prepared = std::make_shared<const vb::prepared_request>(std::move(bad));
    EXPECT_PRED2(has, reason<vb::invalid_argument>([&] { static_cast<void>(p.prepare(r)); }), cases[i].text) << "case " << i;
  }
}

TEST(idefics3_processor, tiles_that_the_vision_tower_cannot_take_are_refused) {
  vb::idefics3_config c = small_config(true);
  c.preprocessing.max_image_size_longest_edge = 128;
  EXPECT_EQ(reason<vb::model_error>([&] { vb::idefics3_processor p(c, byte_tokenizer()); }),
            "a folder: max_image_size.longest_edge is 128, vision_config.image_size is 96, expected the same");
}

TEST(idefics3_processor, copies_share_and_threads_agree) {
  std::vector<vb::prepared_request> results(4);
  {
    const vb::idefics3_processor original = make_processor(true);
    std::vector<std::jthread> threads;
    for (vb::prepared_request& result : results) {
      threads.emplace_back([p = original, &result] {
        for (int i = 0; i < 5; ++i) result = p.prepare(ask({file_part("jpeg_420_progressive.jpg"), vb::text_part{"What is it?"}}));
      });
    }
    EXPECT_EQ(&original.text(), &vb::idefics3_processor(original).text());
  }
  for (const vb::prepared_request& r : results) {
    EXPECT_EQ(r.tokens, results[0].tokens);
    EXPECT_TRUE(r.images.at(0).pixels->same_content(*results[0].images.at(0).pixels));
  }
}
