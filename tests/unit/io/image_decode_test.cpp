// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "io/image_formats.hpp"
#include "unit/io/image_test_support.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/image.hpp"

namespace vb = vlbatch;
namespace fs = std::filesystem;
using vlbatch_tests::file_bytes;
using vlbatch_tests::golden;
using vlbatch_tests::golden_folder;
using vlbatch_tests::sha256_of;

namespace {

vb::image_decode_options upright() {
  vb::image_decode_options o;
  o.apply_exif_orientation = true;
  return o;
}
vb::image_decode_options over_white() {
  vb::image_decode_options o;
  o.composite_alpha = true;
  return o;
}

std::string reason_for(const std::vector<std::byte>& bytes, const std::string& name, const vb::image_decode_options& options = {}) {
  try {
    static_cast<void>(vb::decode_image(bytes, name, options));
  } catch (const vb::image_error& e) {
    return e.what();
  }
  return "";
}

// Every entry of a table of goldens, relative to a folder. Returns how many pictures there were.
int check_all(const nlohmann::json& table, const fs::path& folder) {
  int pictures = 0;
  for (const auto& [name, expected] : table.items()) {
    SCOPED_TRACE(name);
    const std::string path = (folder / name).string();
    if (expected.contains("error")) {
      const std::string reason = reason_for(file_bytes(path), name);
      EXPECT_NE(reason.find(name), std::string::npos) << "text: " << reason;
      continue;
    }
    const vb::image_buffer picture = vb::load_image(path);
    EXPECT_EQ(picture.width, expected["width"]);
    EXPECT_EQ(picture.height, expected["height"]);
    EXPECT_EQ(sha256_of(picture), expected["rgb"]);
    const vb::image_buffer turned = vb::load_image(path, upright());
    EXPECT_EQ(turned.width, expected.value("upright_width", picture.width));
    EXPECT_EQ(sha256_of(turned), expected.value("upright", expected["rgb"].get<std::string>()));
    EXPECT_EQ(sha256_of(vb::load_image(path, over_white())), expected.value("over_white", expected["rgb"].get<std::string>()));
    ++pictures;
  }
  return pictures;
}

}  // namespace

TEST(image_decode, equals_pillow_on_our_own_files) { EXPECT_GE(check_all(golden("decode.json")["files"], golden_folder() / "files"), 80); }

TEST(image_decode, equals_pillow_on_the_samples) {
  const fs::path folder = vlbatch_tests::samples_folder();
  if (!fs::exists(folder)) GTEST_SKIP() << "no folder " << folder << " with other people's pictures";
  EXPECT_GE(check_all(golden("decode.json")["samples"], folder), 90);
}

TEST(image_decode, what_is_refused_says_why) {
  const auto reason = [](const std::string& name) { return reason_for(file_bytes(golden_folder() / "files" / name), name); };
  const auto has = [](const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; };
  EXPECT_PRED2(has, reason("refused_12_bits.jpg"), "precision 12");
  EXPECT_PRED2(has, reason("refused_animated.webp"), "animated");
  EXPECT_PRED2(has, reason("refused_gif.gif"), "GIF");
  EXPECT_PRED2(has, reason("refused_tiff.tiff"), "TIFF");
  EXPECT_PRED2(has, reason("refused_bmp.bmp"), "BMP");
  EXPECT_PRED2(has, reason("refused_huge.png"), "40000, at most 16384");
  EXPECT_PRED2(has, reason_for({}, "nothing"), "\"nothing\": is empty");
  using namespace std::string_literals;
  for (const auto& [name, head] : std::map<std::string, std::string>{{"GIF", "GIF87a\x01\0\x01\0"s},
                                                                     {"TIFF", "MM\0*\0\0\0\x08"s},
                                                                     {"JPEG XL", "\xFF\x0A\0\0"s},
                                                                     {"JPEG 2000", "\xFF\x4F\xFF\x51"s},
                                                                     {"AVIF or HEIC",
                                                                      "\0\0\0\x20"
                                                                      "ftypavif"s},
                                                                     {"PDF", "%PDF-1.7"},
                                                                     {"SVG", "<svg xmlns="}}) {
    const auto bytes = std::as_bytes(std::span(head));
    EXPECT_EQ(reason_for({bytes.begin(), bytes.end()}, "x"), "image \"x\": is " + name + ", supported are JPEG, PNG and WebP");
  }
  const std::string text = "no picture at all";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_PRED2(has, reason_for({bytes.begin(), bytes.end()}, "x"), "\"x\": is no JPEG, PNG or WebP");
}

TEST(image_decode, limits_name_both_values) {
  for (const std::string name : {"jpeg_420.jpg", "webp_lossy.webp"}) {  // 53 x 37
    const auto file = file_bytes(golden_folder() / "files" / name);
    vb::image_decode_options options;
    options.max_width = 52;
    EXPECT_EQ(reason_for(file, name, options), "image \"" + name + "\": width is 53, at most 52 allowed");
    options = {};
    options.max_height = 36;
    EXPECT_EQ(reason_for(file, name, options), "image \"" + name + "\": height is 37, at most 36 allowed");
    options = {};
    options.max_pixels = 53 * 37 - 1;
    EXPECT_EQ(reason_for(file, name, options), "image \"" + name + "\": number of pixels is 1961, at most 1960 allowed");
    options.max_pixels = 53 * 37;
    EXPECT_EQ(reason_for(file, name, options), "");
    options.max_encoded_bytes = 100;
    EXPECT_EQ(reason_for(file, name, options),
              "image \"" + name + "\": has " + std::to_string(file.size()) + " bytes, at most 100 allowed");
  }
  vb::image_decode_options options;
  options.max_encoded_bytes = 100;
  EXPECT_THROW(static_cast<void>(vb::load_image((golden_folder() / "files/jpeg_420.jpg").string(), options)), vb::file_error);
}

TEST(image_decode, unreadable_paths_are_named) {
  for (const std::string path : {"no/such/file.png", "."}) {
    try {
      static_cast<void>(vb::load_image(path));
      FAIL() << path;
    } catch (const vb::file_error& e) {
      EXPECT_EQ(std::string(e.what()).rfind(path, 0), 0U) << e.what();
    }
  }
}

TEST(image_decode, transparent_pixels_show_the_background) {
  vb::image_decode_options options = over_white();
  options.background[0] = 10;
  options.background[1] = 200;
  options.background[2] = 30;
  for (const char* name : {"png_6_8_holes.png", "webp_lossless_alpha.webp"}) {
    const vb::image_buffer shown = vb::load_image((golden_folder() / "files" / name).string(), options);
    const std::uint8_t* hole = shown.pixels.data() + (5 * shown.width + 7) * 3;
    EXPECT_EQ(hole[0], 10) << name;
    EXPECT_EQ(hole[1], 200) << name;
    EXPECT_EQ(hole[2], 30) << name;
    const vb::image_buffer dropped = vb::load_image((golden_folder() / "files" / name).string());
    EXPECT_TRUE(std::equal(shown.pixels.begin() + 13 * shown.width * 3, shown.pixels.begin() + 14 * shown.width * 3,
                           dropped.pixels.begin() + 13 * shown.width * 3))
        << name << ": an opaque row";
  }
  // Half way between black and white.
  EXPECT_EQ(vb::io_detail::composite(0, 255, 128), 127);
  EXPECT_EQ(vb::io_detail::composite(255, 0, 128), 128);
  for (std::uint32_t v = 0; v < 256; ++v) {
    EXPECT_EQ(vb::io_detail::composite(v, 99, 255), v);
    EXPECT_EQ(vb::io_detail::composite(v, 99, 0), 99);
    for (std::uint32_t alpha = 0; alpha < 256; ++alpha) {
      const double exact = (v * alpha + 99.0 * (255 - alpha)) / 255.0;
      ASSERT_NEAR(vb::io_detail::composite(v, 99, alpha), exact, 0.51);
    }
  }
}

// A palette with transparencies, gray with alpha and RGBA: the same colours show the same picture.
TEST(image_decode, twins_of_a_transparent_picture_are_shown_alike) {
  for (const vb::image_decode_options& options : {vb::image_decode_options{}, over_white(), [] {
                                                    vb::image_decode_options o = over_white();
                                                    o.background[0] = 0;
                                                    o.background[1] = 77;
                                                    return o;
                                                  }()}) {
    const auto load = [&](const std::string& kind) {
      return vb::load_image((golden_folder() / "files" / ("png_twin_" + kind + ".png")).string(), options);
    };
    const vb::image_buffer rgba = load("rgba");
    EXPECT_EQ(load("palette"), rgba);
    EXPECT_EQ(load("gray"), rgba);
  }
}

// The eight files show the same picture, stored in eight ways.
TEST(image_decode, all_orientations_are_turned_to_the_same_picture) {
  const vb::image_buffer first = vb::load_image((golden_folder() / "files/jpeg_exif_1.jpg").string(), upright());
  for (int orientation = 2; orientation <= 8; ++orientation) {
    const std::string name = "jpeg_exif_" + std::to_string(orientation) + ".jpg";
    const vb::image_buffer turned = vb::load_image((golden_folder() / "files" / name).string(), upright());
    ASSERT_EQ(turned.width, first.width) << name;
    ASSERT_EQ(turned.height, first.height) << name;
    double difference = 0;
    for (std::size_t i = 0; i < first.pixels.size(); ++i) difference += std::abs(first.pixels[i] - turned.pixels[i]);
    EXPECT_LT(difference / static_cast<double>(first.pixels.size()), 3.0) << name;
  }
}

TEST(image_decode, cmyk_is_near_its_rgb_twin) {
  const fs::path folder = vlbatch_tests::samples_folder() / "pillow";
  if (!fs::exists(folder)) GTEST_SKIP() << "no folder " << folder << " with other people's pictures";
  const vb::image_buffer cmyk = vb::load_image((folder / "pil_sample_cmyk.jpg").string());
  const vb::image_buffer rgb = vb::load_image((folder / "pil_sample_rgb.jpg").string());
  ASSERT_EQ(cmyk.pixels.size(), rgb.pixels.size());
  double same = 0, inverted = 0;
  for (std::size_t i = 0; i < rgb.pixels.size(); ++i) {
    same += std::abs(cmyk.pixels[i] - rgb.pixels[i]);
    inverted += std::abs(255 - cmyk.pixels[i] - rgb.pixels[i]);
  }
  EXPECT_LT(same * 4, inverted);
}

TEST(image_decode, exif_that_makes_no_sense_is_ignored) {
  const auto orientation = [](std::initializer_list<int> values) {
    std::vector<std::byte> bytes;
    for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
    return vb::io_detail::exif_orientation(bytes);
  };
  // One entry: tag 0x0112, type short, count 1, value 6; both byte orders.
  EXPECT_EQ(orientation({'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0}), 6);
  EXPECT_EQ(orientation({'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0}), 6);
  EXPECT_EQ(orientation({'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 4, 0, 0, 0, 1, 0, 0, 0, 6}), 6);  // type long
  EXPECT_EQ(orientation({}), 1);
  EXPECT_EQ(orientation({'I', 'I', 42, 0}), 1);
  EXPECT_EQ(orientation({'I', 'M', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0}), 1);          // byte order
  EXPECT_EQ(orientation({'I', 'I', 43, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0}), 1);          // mark
  EXPECT_EQ(orientation({'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 9, 0, 0, 0}), 1);          // value
  EXPECT_EQ(orientation({'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 2, 0, 1, 0, 0, 0, 6, 0, 0, 0}), 1);          // type
  EXPECT_EQ(orientation({'I', 'I', 42, 0, 255, 255, 255, 255, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0, 0}), 1);  // far away
  EXPECT_EQ(orientation({'I', 'I', 42, 0, 8, 0, 0, 0, 255, 255, 0x12, 1, 3, 0, 1, 0, 0, 0, 6, 0, 0}), 1);         // cut
}

TEST(image_decode, threads_do_not_disturb_each_other) {
  const auto good = file_bytes(golden_folder() / "files/jpeg_420_progressive.jpg");
  const auto png = file_bytes(golden_folder() / "files/png_6_8_interlaced.png");
  auto broken = good;
  broken.resize(good.size() / 2);
  const std::string jpeg_hash = sha256_of(vb::decode_image(good)), png_hash = sha256_of(vb::decode_image(png));
  std::vector<int> failures(4, 0);
  {
    std::vector<std::jthread> threads;
    for (int& failed : failures) {
      threads.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          failed += sha256_of(vb::decode_image(good)) == jpeg_hash ? 0 : 1;
          failed += reason_for(broken, "half").find("half") != std::string::npos ? 0 : 1;
          failed += sha256_of(vb::decode_image(png)) == png_hash ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(failures, std::vector<int>(4, 0));
}
