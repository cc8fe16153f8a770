// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "io/image_resample.hpp"
#include "unit/io/image_test_support.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/image.hpp"

namespace vb = vlbatch;
using vlbatch_tests::sha256_of;
using vlbatch_tests::test_picture;

TEST(image_support, sha256_matches_the_published_examples) {
  EXPECT_EQ(sha256_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1000000, 'a');
  EXPECT_EQ(sha256_of(million.data(), million.size()), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(image_resample, equals_pillow_for_every_filter_over_the_sweep) {
  const std::map<std::string, vb::resample_filter> filters = {
      {"nearest", vb::resample_filter::nearest}, {"lanczos", vb::resample_filter::lanczos}, {"bilinear", vb::resample_filter::bilinear},
      {"bicubic", vb::resample_filter::bicubic}, {"box", vb::resample_filter::box},         {"hamming", vb::resample_filter::hamming}};
  std::map<std::string, int> seen;
  int vertical_first = 0;
  for (const auto& row : vlbatch_tests::golden("resample.json")) {
    const auto width = row[0].get<std::int32_t>(), height = row[1].get<std::int32_t>();
    const auto to_width = row[3].get<std::int32_t>(), to_height = row[4].get<std::int32_t>();
    const auto name = row[5].get<std::string>();
    const vb::image_buffer picture = test_picture(width, height, row[2].get<std::uint32_t>());
    const vb::image_buffer out = vb::resize_image(picture, to_width, to_height, filters.at(name));
    ASSERT_EQ(out.width, to_width);
    ASSERT_EQ(out.height, to_height);
    EXPECT_EQ(sha256_of(out).substr(0, 32), row[6].get<std::string>())
        << width << "x" << height << " to " << to_width << "x" << to_height << " " << name;
    const vb::image_buffer before = vb::resize_image(picture, to_width, to_height, filters.at(name), vb::resample_order::pillow_12);
    EXPECT_EQ(sha256_of(before).substr(0, 32), row.back().get<std::string>())
        << width << "x" << height << " to " << to_width << "x" << to_height << " " << name << ", horizontal first";
    vertical_first += row.size() > 7 ? 1 : 0;
    ++seen[name];
  }
  EXPECT_GE(vertical_first, 20);
  EXPECT_EQ(seen.size(), filters.size());
  for (const auto& [name, count] : seen) EXPECT_GE(count, 100) << name;
}

TEST(image_resample, an_even_picture_stays_even_at_every_size) {
  for (const auto filter : {vb::resample_filter::nearest, vb::resample_filter::lanczos, vb::resample_filter::bilinear,
                            vb::resample_filter::bicubic, vb::resample_filter::box, vb::resample_filter::hamming}) {
    for (std::int32_t size = 1; size <= 70; size += 3) {
      vb::image_buffer gray{37, 23, std::vector<std::uint8_t>(37 * 23 * 3, 201)};
      const vb::image_buffer out = vb::resize_image(gray, size, 71 - size, filter);
      ASSERT_EQ(std::count(out.pixels.begin(), out.pixels.end(), 201), static_cast<std::ptrdiff_t>(out.pixels.size()))
          << size << " filter " << static_cast<int>(filter);
    }
  }
}

// Thin stripes shrink to their mean: the filter widens with the factor.
TEST(image_resample, shrinking_averages_stripes) {
  vb::image_buffer stripes{512, 4, {}};
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 512; ++x) stripes.pixels.insert(stripes.pixels.end(), 3, static_cast<std::uint8_t>(x % 2 == 0 ? 0 : 255));
  }
  for (const auto filter :
       {vb::resample_filter::lanczos, vb::resample_filter::bilinear, vb::resample_filter::bicubic, vb::resample_filter::box}) {
    const vb::image_buffer out = vb::resize_image(stripes, 128, 4, filter);
    const auto [low, high] = std::minmax_element(out.pixels.begin() + 30, out.pixels.begin() + 350);  // away from the edges
    EXPECT_GE(*low, 120) << static_cast<int>(filter);
    EXPECT_LE(*high, 136) << static_cast<int>(filter);
  }
}

TEST(image_resample, weighted_rows_are_those_of_the_plain_loop_at_every_length) {
  const vb::image_buffer noise = test_picture(64, 20, 1);
  const std::ptrdiff_t stride = 64 * 3;
  std::vector<std::int32_t> weights;
  for (int t = 0; t < 20; ++t) weights.push_back((t % 3 == 1 ? -1 : 1) * ((t * 7919) % 600000));
  for (const std::size_t n : {0UL, 1UL, 2UL, 3UL, 7UL, 15UL, 16UL, 17UL, 31UL, 33UL, 63UL, 64UL, 65UL, 100UL, 191UL}) {
    for (const std::int32_t count : {0, 1, 2, 5, 20}) {
      std::vector<std::uint8_t> out(n + 1, 77);
      vb::io_detail::weighted_rows(noise.pixels.data(), stride, weights.data(), count, n, out.data());
      for (std::size_t i = 0; i < n; ++i) {
        std::int64_t sum = 1 << (vb::io_detail::weight_bits - 1);
        for (std::int32_t t = 0; t < count; ++t) {
          sum += static_cast<std::int64_t>(noise.pixels[static_cast<std::size_t>(t * stride) + i]) * weights[static_cast<std::size_t>(t)];
        }
        ASSERT_EQ(out[i], std::clamp<std::int64_t>(sum >> vb::io_detail::weight_bits, 0, 255))
            << "n " << n << " count " << count << " i " << i;
      }
      ASSERT_EQ(out[n], 77) << "wrote beyond its end";
    }
  }
}

TEST(image_resample, impossible_sizes_are_refused_with_their_values) {
  const vb::image_buffer picture = test_picture(4, 3, 2);
  for (const auto& [width, height] :
       std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 5}, {5, 0}, {-1, 5}, {5, std::numeric_limits<std::int32_t>::min()}}) {
    try {
      static_cast<void>(vb::resize_image(picture, width, height, vb::resample_filter::lanczos));
      FAIL() << width << "x" << height;
    } catch (const vb::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find(std::to_string(width) + " x " + std::to_string(height)), std::string::npos) << e.what();
    }
  }
  EXPECT_THROW(static_cast<void>(vb::resize_image(picture, 2, 2, static_cast<vb::resample_filter>(6))), vb::invalid_argument);
  EXPECT_THROW(static_cast<void>(vb::resize_image(picture, 4, 3, static_cast<vb::resample_filter>(-1))), vb::invalid_argument);
  EXPECT_THROW(static_cast<void>(vb::resize_image(vb::image_buffer{}, 2, 2, vb::resample_filter::box)), vb::invalid_argument);
  EXPECT_THROW(static_cast<void>(vb::resize_image(vb::image_buffer{2, 2, std::vector<std::uint8_t>(11)}, 2, 2, vb::resample_filter::box)),
               vb::invalid_argument);
}

TEST(image_crop, cuts_the_rectangle_and_nothing_outside) {
  const vb::image_buffer picture = test_picture(9, 7, 1);
  const vb::image_buffer part = vb::crop_image(picture, 2, 3, 4, 2);
  ASSERT_EQ(part.width, 4);
  ASSERT_EQ(part.height, 2);
  ASSERT_EQ(part.pixels.size(), 24U);
  for (std::size_t y = 0; y < 2; ++y) {
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(part.pixels[y * 12 + i], picture.pixels[((y + 3) * 9 + 2) * 3 + i]);
  }
  EXPECT_EQ(vb::crop_image(picture, 0, 0, 9, 7), picture);
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  for (const auto& r : std::vector<std::array<std::int32_t, 4>>{
           {-1, 0, 2, 2}, {0, -1, 2, 2}, {0, 0, 10, 1}, {0, 0, 1, 8}, {8, 0, 2, 1}, {0, 0, 0, 1}, {most, 0, most, 1}, {1, 1, most, most}}) {
    EXPECT_THROW(static_cast<void>(vb::crop_image(picture, r[0], r[1], r[2], r[3])), vb::invalid_argument)
        << r[0] << " " << r[1] << " " << r[2] << " " << r[3];
  }
}
