// SPDX-License-Identifier: Apache-2.0
// Scaling, cutting and normalising against transformers' Pillow-based Idefics3ImageProcessor; goldens by
// tests/golden/make_image_goldens.py.
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "unit/io/image_test_support.hpp"
#include "unit/model/idefics3/golden_support.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

namespace vb = vlbatch;
using vlbatch_tests::golden;
using vlbatch_tests::hash_of_floats;
using vlbatch_tests::settings_from;
using vlbatch_tests::test_picture;

namespace {

vb::idefics3_preprocessing small_settings() {
  vb::idefics3_preprocessing p;
  p.max_image_size_longest_edge = 96;
  p.size_longest_edge = 384;
  return p;
}

}  // namespace

TEST(idefics3_tiles, grids_equal_transformers) {
  const auto all = golden("idefics3.json");
  int checked = 0, impossible = 0;
  for (const auto& [name, rows] : all["grids"].items()) {
    const vb::idefics3_preprocessing settings = settings_from(all["configs"][name]);
    for (const auto& row : rows) {
      const auto width = row[0].get<std::int32_t>(), height = row[1].get<std::int32_t>();
      const vb::idefics3_tiling t = vb::idefics3_tiling_of(settings, width, height);
      if (row.size() == 2) {
        ++impossible;
        EXPECT_GE(std::min(t.full_width, t.full_height), settings.max_image_size_longest_edge);
        continue;
      }
      const vb::idefics3_tiling expected{row[2], row[3], row[4], row[5], {row[6], row[7]}};
      EXPECT_EQ(t, expected) << name << " " << width << "x" << height << ": resized " << t.resized_width << "x" << t.resized_height
                             << ", full " << t.full_width << "x" << t.full_height << ", grid " << t.grid.rows << "x" << t.grid.cols;
      ++checked;
    }
  }
  EXPECT_GT(checked, 800);
  EXPECT_LT(impossible, 20);
}

// Counts that are published for SmolVLM.
TEST(idefics3_tiles, smolvlm_tile_counts) {
  vb::idefics3_preprocessing p;
  p.max_image_size_longest_edge = 512;
  p.size_longest_edge = 2048;
  EXPECT_EQ(vb::idefics3_tiling_of(p, 96, 96).grid.num_tiles(), 17);
  EXPECT_EQ(vb::idefics3_tiling_of(p, 1600, 1067).grid.num_tiles(), 13);
  EXPECT_EQ(vb::idefics3_tiling_of(p, 1920, 1080).grid.num_tiles(), 13);
  EXPECT_EQ(vb::idefics3_tiling_of(p, 1000, 300).grid.num_tiles(), 9);
  p.do_image_splitting = false;
  EXPECT_EQ(vb::idefics3_tiling_of(p, 1600, 1067).grid, vb::image_grid{});
}

// An image that needs no cutting is one tile, never none.
TEST(idefics3_tiles, pictures_up_to_a_tile_are_one_tile_without_resizing) {
  vb::idefics3_preprocessing p = small_settings();
  p.do_resize = false;
  for (std::int32_t width = 1; width <= 96; ++width) {
    for (std::int32_t height = 1; height <= 96; ++height) {
      const vb::idefics3_tiling t = vb::idefics3_tiling_of(p, width, height);
      ASSERT_EQ(t.grid, vb::image_grid{}) << width << "x" << height;
      ASSERT_EQ(t.full_width, 96);
      ASSERT_EQ(t.full_height, 96);
    }
  }
  EXPECT_EQ(vb::idefics3_tiling_of(p, 97, 48).grid.num_tiles(), 3);
}

// Tiny sides and extreme ratios: whole tiles, at least one, never more than the longest edge has room for.
TEST(idefics3_tiles, r084_r096_every_side_and_ratio_gives_between_one_and_seventeen_tiles) {
  vb::idefics3_preprocessing p;
  p.max_image_size_longest_edge = 512;
  p.size_longest_edge = 2048;
  const auto check = [&](std::int32_t width, std::int32_t height) {
    const vb::idefics3_tiling t = vb::idefics3_tiling_of(p, width, height);
    ASSERT_GE(std::min(t.resized_width, t.resized_height), 1) << width << "x" << height;
    ASSERT_EQ(t.full_width, t.grid.cols * 512) << width << "x" << height;
    ASSERT_EQ(t.full_height, t.grid.rows * 512) << width << "x" << height;
    ASSERT_LE(std::max(t.grid.cols, t.grid.rows), 4) << width << "x" << height;
    ASSERT_GE(std::min(t.grid.cols, t.grid.rows), 1) << width << "x" << height;
    ASSERT_LE(t.grid.num_tiles(), 17) << width << "x" << height;
  };
  for (std::int32_t width = 1; width <= 60; ++width) {
    for (std::int32_t height = 1; height <= 60; ++height) check(width, height);
  }
  for (std::int32_t ratio = 1; ratio <= 1000; ++ratio) {
    for (const std::int32_t side : {1, 2, 16}) {
      check(side, side * ratio);
      check(side * ratio, side);
    }
  }
  for (const auto& [width, height] :
       std::vector<std::array<std::int32_t, 2>>{{257, 27}, {1, 1}, {27, 27}, {28, 27}, {1, 448}, {100, 2000}}) {
    const auto tiles = vb::idefics3_make_tiles(small_settings(), test_picture(width, height, 2));
    EXPECT_EQ(tiles->num_tiles, vb::idefics3_tiling_of(small_settings(), width, height).grid.num_tiles()) << width << "x" << height;
    EXPECT_EQ(tiles->values.size(), static_cast<std::size_t>(tiles->num_tiles) * 96 * 96 * 3) << width << "x" << height;
  }
}

TEST(idefics3_tiles, normalised_values_equal_transformers_bit_for_bit) {
  const auto all = golden("idefics3.json");
  EXPECT_GE(all["tables"].size(), 10U);
  for (const auto& [name, expected] : all["tables"].items()) {
    const auto table = vb::idefics3_normalised_values(settings_from(all["configs"][name]));
    EXPECT_EQ(vlbatch_tests::sha256_of(table.data(), sizeof(table)), expected.get<std::string>()) << name;
  }
}

TEST(idefics3_tiles, pixel_values_equal_transformers_bit_for_bit) {
  const auto all = golden("idefics3.json");
  std::set<std::string> configs;
  for (const auto& row : all["pixels"]) {
    const auto name = row[0].get<std::string>();
    const auto width = row[1].get<std::int32_t>(), height = row[2].get<std::int32_t>();
    const auto tiles =
        vb::idefics3_make_tiles(settings_from(all["configs"][name]), test_picture(width, height, row[3].get<std::uint32_t>()));
    ASSERT_EQ(tiles->num_tiles, row[4].get<std::int32_t>() * row[5].get<std::int32_t>() + 1) << name << " " << width << "x" << height;
    ASSERT_EQ(tiles->width, row[6].get<std::int32_t>());
    ASSERT_EQ(tiles->height, tiles->width);
    ASSERT_EQ(tiles->values.size(), static_cast<std::size_t>(tiles->num_tiles * tiles->height * tiles->width * 3));
    EXPECT_EQ(hash_of_floats(*tiles), row[7].get<std::string>()) << name << " " << width << "x" << height;
    configs.insert(name);
  }
  EXPECT_EQ(configs.size(), all["configs"].size());
}

TEST(idefics3_tiles, every_option_changes_the_key) {
  const vb::image_buffer picture = test_picture(30, 20, 2);
  std::vector<std::function<void(vb::idefics3_preprocessing&, vb::image_decode_options&)>> changes = {
      [](auto& p, auto&) { p.do_convert_rgb = false; },
      [](auto& p, auto&) { p.do_resize = false; },
      [](auto& p, auto&) { p.size_longest_edge = 385; },
      [](auto& p, auto&) { p.resample = 3; },
      [](auto& p, auto&) { p.do_image_splitting = false; },
      [](auto& p, auto&) { p.max_image_size_longest_edge = 48; },
      [](auto& p, auto&) { p.do_rescale = false; },
      [](auto& p, auto&) { p.rescale_factor = 1.0 / 254.0; },
      [](auto& p, auto&) { p.do_normalize = false; },
      [](auto& p, auto&) { p.image_mean[2] = 0.4; },
      [](auto& p, auto&) { p.image_std[0] = 0.4; },
      [](auto&, auto& d) { d.composite_alpha = true; },
      [](auto&, auto& d) { d.apply_exif_orientation = true; },
      [](auto&, auto& d) { d.background[1] = 0; },
  };
  const auto key_after = [&](const auto& change) {
    vb::idefics3_preprocessing p = small_settings();
    vb::image_decode_options d;
    change(p, d);
    const vb::content_key key = vb::idefics3_make_tiles(p, picture, d)->key;
    return std::pair(key.high, key.low);
  };
  std::set<std::pair<std::uint64_t, std::uint64_t>> keys = {key_after([](auto&, auto&) {})};
  for (const auto& change : changes) keys.insert(key_after(change));
  EXPECT_EQ(keys.size(), changes.size() + 1);
}

TEST(idefics3_tiles, one_different_byte_changes_the_key_and_equal_content_does_not) {
  vb::image_buffer picture = test_picture(96, 96, 2);
  vb::idefics3_preprocessing p = small_settings();
  p.do_image_splitting = false;
  p.size_longest_edge = 96;  // nothing is scaled
  const auto first = vb::idefics3_make_tiles(p, picture), again = vb::idefics3_make_tiles(p, picture);
  EXPECT_TRUE(first->same_content(*again));
  EXPECT_EQ(first->values, picture.pixels);
  picture.pixels[12345] ^= 1;
  const auto other = vb::idefics3_make_tiles(p, picture);
  EXPECT_FALSE(first->same_content(*other));
  EXPECT_FALSE(first->key == other->key);
}

TEST(idefics3_tiles, impossible_arguments_are_refused_with_both_values) {
  const auto reason = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const vb::error& e) {
      return e.what();
    }
    return "";
  };
  const vb::idefics3_preprocessing p = small_settings();
  EXPECT_EQ(reason([&] { static_cast<void>(vb::idefics3_tiling_of(p, 0, 7)); }), "a picture of 0 x 7 pixels, expected at least 1 x 1");
  vb::idefics3_preprocessing wide = p;
  wide.max_image_size_longest_edge = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reason([&] { static_cast<void>(vb::idefics3_tiling_of(wide, 7, 7)); }),
            "a longest edge of 2147483647 pixels, expected 1 to 1048576");
  vb::image_decode_options d;
  d.max_pixels = 100000;
  EXPECT_EQ(reason([&] { static_cast<void>(vb::idefics3_make_tiles(p, test_picture(7, 7, 2), d)); }),
            "a picture of 7 x 7 pixels would be scaled to 384 x 384, at most 100000 pixels allowed");
}
