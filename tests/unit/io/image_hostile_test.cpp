// SPDX-License-Identifier: Apache-2.0
// Cut, damaged and lying files: a picture within the limits or an image_error that names the file, never more memory than is documented.
#include <malloc.h>

#include <array>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "unit/io/image_test_support.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/image.hpp"

namespace vb = vlbatch;
namespace fs = std::filesystem;
using vlbatch_tests::file_bytes;
using vlbatch_tests::golden_folder;
using vlbatch_tests::sha256_of;

namespace {

using bytes_t = std::vector<std::byte>;

bytes_t golden_file(const std::string& name) { return file_bytes(golden_folder() / "files" / name); }

// All but those that are there for their size.
std::vector<std::string> small_files() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(golden_folder() / "files")) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("large", 0) != 0 && name.rfind("bomb", 0) != 0) out.push_back(name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Why it was refused; empty: it was decoded, and keeps to the limits.
std::string outcome(const bytes_t& bytes, const std::string& name, const vb::image_decode_options& options) {
  try {
    const vb::image_buffer picture = vb::decode_image(bytes, name, options);
    vb::check_image(picture);
    EXPECT_LE(std::int64_t{picture.width} * picture.height, options.max_pixels) << name;
    return "";
  } catch (const vb::image_error& e) {
    EXPECT_NE(std::string(e.what()).find('"' + name + '"'), std::string::npos) << e.what();
    return e.what();
  }
}

vb::image_decode_options up_to(std::int64_t pixels) {
  vb::image_decode_options o;
  o.max_pixels = pixels;
  o.apply_exif_orientation = true;
  o.composite_alpha = true;
  return o;
}

// ---- Sizes in headers ----

void put_big_endian(bytes_t& to, std::size_t at, std::uint32_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to.at(at + i) = static_cast<std::byte>(value >> (8 * (count - 1 - i)));
}
void put_little_endian(bytes_t& to, std::size_t at, std::uint32_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to.at(at + i) = static_cast<std::byte>(value >> (8 * i));
}

std::uint32_t crc_of(std::span<const std::byte> data) {
  std::uint32_t crc = ~0U;
  for (const std::byte b : data) {
    crc ^= static_cast<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

std::size_t find(const bytes_t& in, std::initializer_list<int> values) {
  bytes_t wanted;
  for (const int v : values) wanted.push_back(static_cast<std::byte>(v));
  const auto at = std::search(in.begin(), in.end(), wanted.begin(), wanted.end());
  if (at == in.end()) throw std::runtime_error("a file of the goldens has another structure than expected");
  return static_cast<std::size_t>(at - in.begin());
}

struct liar {
  std::string name;
  std::uint32_t most;                                                  // largest side that the header can hold
  bool zero;                                                           // it can also hold 0
  std::function<void(bytes_t&, std::uint32_t, std::uint32_t)> resize;  // width, height
};

// A file of each kind of header, and how to make it claim another size.
std::vector<liar> liars() {
  const auto png = [](bytes_t& f, std::uint32_t w, std::uint32_t h) {
    put_big_endian(f, 16, w, 4);
    put_big_endian(f, 20, h, 4);
    put_big_endian(f, 29, crc_of(std::span(f).subspan(12, 17)), 4);
  };
  const auto jpeg = [](int marker) {
    return [marker](bytes_t& f, std::uint32_t w, std::uint32_t h) {
      const std::size_t at = find(f, {0xFF, marker, 0});
      put_big_endian(f, at + 5, h, 2);
      put_big_endian(f, at + 7, w, 2);
    };
  };
  const auto vp8 = [](bytes_t& f, std::uint32_t w, std::uint32_t h) {
    const std::size_t at = find(f, {0x9D, 0x01, 0x2A});
    put_little_endian(f, at + 3, w, 2);
    put_little_endian(f, at + 5, h, 2);
  };
  const auto vp8l = [](bytes_t& f, std::uint32_t w, std::uint32_t h) {
    const std::size_t at = find(f, {'V', 'P', '8', 'L'}) + 9;
    const std::uint32_t flags = static_cast<std::uint32_t>(f.at(at + 3)) & 0xF0U;
    put_little_endian(f, at, (w - 1) | (h - 1) << 14 | flags << 24, 4);
  };
  const auto vp8x = [](bytes_t& f, std::uint32_t w, std::uint32_t h) {
    const std::size_t at = find(f, {'V', 'P', '8', 'X'}) + 12;
    put_little_endian(f, at, w - 1, 3);
    put_little_endian(f, at + 3, h - 1, 3);
  };
  return {{"png_6_8.png", 0x7FFFFFFF, true, png},
          {"png_0_1_interlaced.png", 0x7FFFFFFF, true, png},
          {"png_3_4_alpha.png", 0x7FFFFFFF, true, png},
          {"jpeg_420.jpg", 65500, true, jpeg(0xC0)},
          {"jpeg_cmyk_progressive.jpg", 65500, true, jpeg(0xC2)},
          {"webp_lossy.webp", 16383, true, vp8},
          {"webp_lossless.webp", 16384, false, vp8l},
          {"webp_lossy_alpha.webp", 1 << 24, false, vp8x}};
}

// ---- Memory ----

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool memory_is_our_own = false;  // a sanitizer keeps what was freed, and shadows it
#else
constexpr bool memory_is_our_own = true;
#endif

std::int64_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  std::string word;
  std::int64_t kib = 0;
  while (in >> word) {
    if (word == key && in >> kib) return kib * 1024;
  }
  return 0;
}

// By how much resident memory grew at most since it was made. Nothing where that cannot be told.
class peak_memory {
 public:
  peak_memory() {
    malloc_trim(0);  // what earlier tests freed would serve again
    std::ofstream reset("/proc/self/clear_refs");
    reset << "5";
    if (memory_is_our_own && reset.flush()) before_ = status_bytes("VmRSS:");
  }
  [[nodiscard]] std::optional<std::int64_t> growth() const {
    if (before_ == 0) return std::nullopt;
    return status_bytes("VmHWM:") - before_;
  }

 private:
  std::int64_t before_ = 0;
};

}  // namespace

// Cut anywhere, a file gives an error that names it; never a crash, and never a picture that misses most of its data.
TEST(image_decode, truncated_files_are_errors) {
  const vb::image_decode_options options = up_to(1 << 20);
  std::set<std::string> kinds;
  for (const std::string& name : small_files()) {
    const bytes_t whole = golden_file(name);
    const std::size_t step = whole.size() < 2500 ? 1 : 7;
    for (std::size_t size = 0; size < whole.size(); size += step) {
      // Memory of its own: a sanitizer then sees a read behind the end.
      const bytes_t cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      const std::string reason = outcome(cut, name, options);
      if (size < whole.size() - 16) {
        ASSERT_NE(reason, "") << name << " cut to " << size << " of " << whole.size() << " bytes";
      }
    }
    kinds.insert(name.substr(name.find('.')));
  }
  EXPECT_GE(kinds.size(), 3U);
}

TEST(image_decode, damaged_files_give_a_picture_or_an_error) {
  vb::image_decode_options options = up_to(1 << 20);
  int errors = 0, pictures = 0;
  for (const std::string& name : small_files()) {
    const bytes_t whole = golden_file(name);
    std::mt19937 random(static_cast<std::uint32_t>(whole.size()));
    for (int round = 0; round < 60; ++round) {
      bytes_t bytes = whole;
      const std::size_t head = round % 2 == 0 ? bytes.size() : std::min<std::size_t>(bytes.size(), 64);
      for (std::uint32_t i = 0; i <= random() % 6; ++i) bytes[random() % head] = static_cast<std::byte>(random() & 255U);
      options.apply_exif_orientation = round % 3 == 0;
      options.composite_alpha = round % 5 == 0;
      ++(outcome(bytes, name, options).empty() ? pictures : errors);
    }
  }
  EXPECT_GT(errors, 1000);
  EXPECT_GT(pictures, 500);
}

// Checked sums hide most of a PNG from damage: here they are made right again, so that inflating and filters see it.
TEST(image_decode, damaged_png_chunks_with_right_sums_give_a_picture_or_an_error) {
  const vb::image_decode_options options = up_to(1 << 16);
  int errors = 0, pictures = 0;
  for (const std::string name : {"png_3_4_alpha.png", "png_6_16_interlaced.png", "png_0_1_key.png", "png_2_8.png"}) {
    const bytes_t whole = golden_file(name);
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
      bytes_t bytes = whole;
      for (std::size_t at = 8; at + 12 <= bytes.size();) {
        std::size_t length = 0;
        for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::size_t>(bytes[at + i]);
        if (length > 0 && random() % 3 == 0) bytes[at + 8 + random() % length] = static_cast<std::byte>(random() & 255U);
        put_big_endian(bytes, at + 8 + length, crc_of(std::span(bytes).subspan(at + 4, length + 4)), 4);
        at += 12 + length;
      }
      ++(outcome(bytes, name, options).empty() ? pictures : errors);
    }
  }
  EXPECT_GT(errors, 200);
  EXPECT_GT(pictures, 100);
}

TEST(image_decode, a_size_beyond_the_limits_is_refused_from_the_header_without_memory) {
  const vb::image_decode_options options = up_to(64 << 20);
  for (const liar& l : liars()) {
    SCOPED_TRACE(l.name);
    const std::uint32_t most = l.most;
    for (const auto& [width, height] : std::vector<std::array<std::uint32_t, 2>>{{most, most}, {most, 1}, {1, most}, {16383, 16383}}) {
      if (std::max(width, height) <= 16384 && std::uint64_t{width} * height <= 64 << 20) continue;  // within the limits after all
      bytes_t file = golden_file(l.name);
      l.resize(file, width, height);
      const peak_memory memory;
      const std::string reason = outcome(file, l.name, options);
      EXPECT_LT(memory.growth().value_or(0), 1 << 20) << width << " x " << height;
      if (l.name == "webp_lossy_alpha.webp" && reason.find("broken WebP") != std::string::npos) continue;  // the decoder saw through it
      const bool wide = width > 16384, high = height > 16384;
      const std::string expected = wide   ? "width is " + std::to_string(width) + ", at most 16384 allowed"
                                   : high ? "height is " + std::to_string(height) + ", at most 16384 allowed"
                                          : "number of pixels is " + std::to_string(std::uint64_t{width} * height) + ", at most 67108864";
      EXPECT_NE(reason.find(expected), std::string::npos) << reason;
    }
  }
}

TEST(image_decode, a_size_of_zero_is_an_error) {
  for (const liar& l : liars()) {
    if (!l.zero) continue;
    for (const auto& [width, height] : std::vector<std::array<std::uint32_t, 2>>{{0, 9}, {9, 0}, {0, 0}}) {
      bytes_t file = golden_file(l.name);
      l.resize(file, width, height);
      EXPECT_NE(outcome(file, l.name, up_to(1 << 20)), "") << l.name << " " << width << " x " << height;
    }
  }
}

TEST(image_decode, a_size_that_the_data_does_not_have_gives_a_picture_or_an_error) {
  const vb::image_decode_options options = up_to(1 << 18);
  std::mt19937 random(11);
  for (const liar& l : liars()) {
    std::set<bool> outcomes;
    for (int round = 0; round < 60; ++round) {
      bytes_t file = golden_file(l.name);
      const auto side = [&](bool small) { return static_cast<std::uint32_t>(1 + random() % (small ? 60 : 2000)); };
      const std::uint32_t width = side(round % 2 == 0), height = side(round % 3 == 0);
      l.resize(file, width, height);
      outcomes.insert(outcome(file, l.name, options).empty());
    }
    EXPECT_EQ(outcomes.count(false), 1U) << l.name;  // at the latest where the limit is passed
  }
}

// These are the kinds that need most: all coefficients of four inks, both bytes of interlaced samples, colours beside their alpha.
TEST(image_decode, decoding_takes_at_most_twelve_bytes_a_pixel) {
  for (const std::string name : {"large.jpg", "large.png", "large_lossless.webp", "large_lossy.webp"}) {
    const bytes_t file = golden_file(name);
    const vb::image_decode_options options = up_to(1 << 20);
    const peak_memory memory;
    EXPECT_EQ(outcome(file, name, options), "");
    const auto growth = memory.growth();
    if (!growth.has_value()) GTEST_SKIP() << "peak memory cannot be told here";
    EXPECT_GE(*growth, 3 << 20) << name << ": the measurement does not see the picture itself";
    EXPECT_LT(*growth, (12 << 20) + (2 << 20)) << name;
  }
}

// Texts and profiles of 16 MiB, for which Pillow refuses this file.
TEST(image_decode, what_is_not_needed_of_a_png_is_not_inflated) {
  const bytes_t file = golden_file("bomb_text.png");
  const peak_memory memory;
  EXPECT_EQ(vb::decode_image(file), vlbatch_tests::test_picture(9, 7, 2));
  EXPECT_LT(memory.growth().value_or(0), 2 << 20);
}

// Every scan is a pass over all coefficients, and a few bytes suffice for one.
TEST(image_decode, a_jpeg_has_at_most_a_hundred_scans) {
  const std::string name = "jpeg_gray_progressive.jpg";
  const bytes_t whole = golden_file(name);
  const std::size_t begin = find(whole, {0xFF, 0xDA});
  std::size_t end = begin + 2;
  while (whole[end] != std::byte{0xFF} || whole[end + 1] == std::byte{0}) ++end;
  int scans = 0;
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) scans += whole[i] == std::byte{0xFF} && whole[i + 1] == std::byte{0xDA} ? 1 : 0;
  const auto with_scans = [&](int count) {  // the first one again and again: the same coefficients
    bytes_t out(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(begin));
    for (int i = scans; i <= count; ++i) {
      out.insert(out.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin), whole.begin() + static_cast<std::ptrdiff_t>(end));
    }
    out.insert(out.end(), whole.begin() + static_cast<std::ptrdiff_t>(end), whole.end());
    return out;
  };
  EXPECT_EQ(sha256_of(vb::decode_image(with_scans(100))), sha256_of(vb::decode_image(whole)));
  EXPECT_EQ(outcome(with_scans(101), name, {}), "image \"" + name + "\": broken JPEG: has more than 100 scans");
}
