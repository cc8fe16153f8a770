// SPDX-License-Identifier: Apache-2.0
// PNG through libpng, which only undoes compression, filters and interlacing here; samples become 8-bit RGB in this file, as Pillow does
// it. Colour profiles, gamma and texts are skipped unread.
//
// libpng reports errors by a call that must not return. It leaves by longjmp, which runs no destructors: the functions that arm `escape`
// hold nothing but trivial objects, everything else lives in their callers.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "io/image_formats.hpp"

namespace vlbatch::inline v0::io_detail {
namespace {

struct png_session {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::jmp_buf escape{};
  char reason[200]{};
  const std::uint8_t* next = nullptr;
  std::size_t left = 0;
  std::size_t size = 0;

  // Header.
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int depth = 0;  // bits a sample as stored
  int colour = 0;
  bool interlaced = false;
  std::uint8_t palette[256][3]{};  // black beyond the entries of the file
  std::uint8_t alpha[256]{};       // of palette entries
  bool has_key = false;            // one colour is transparent
  std::uint32_t key[3]{};          // samples as stored; [0] for gray
  bool composite_alpha = false;
  std::uint8_t background[3]{};

  // How rows are delivered: bytes a sample, samples a pixel.
  std::size_t sample_bytes = 1;
  std::size_t channels = 1;

  png_session() = default;
  png_session(const png_session&) = delete;
  png_session& operator=(const png_session&) = delete;
  ~png_session() { png_destroy_read_struct(&png, &info, nullptr); }  // accepts null

  [[nodiscard]] bool palette_colour() const { return colour == PNG_COLOR_TYPE_PALETTE; }
  [[nodiscard]] bool gray() const { return (colour & PNG_COLOR_MASK_COLOR) == 0; }
  [[nodiscard]] bool alpha_channel() const { return (colour & PNG_COLOR_MASK_ALPHA) != 0; }
};

extern "C" {
[[noreturn]] static void on_png_error(png_structp png, png_const_charp text) {
  png_session& s = *static_cast<png_session*>(png_get_error_ptr(png));
  std::snprintf(s.reason, sizeof(s.reason), "%s", text);
  std::longjmp(s.escape, 1);
}

static void on_png_warning(png_structp, png_const_charp) {}

static void on_png_read(png_structp png, png_bytep to, std::size_t count) {
  png_session& s = *static_cast<png_session*>(png_get_io_ptr(png));
  if (count > s.left) {
    std::snprintf(s.reason, sizeof(s.reason), "is truncated: more data is needed after byte %zu", s.size);
    std::longjmp(s.escape, 1);
  }
  std::memcpy(to, s.next, count);
  s.next += count;
  s.left -= count;
}
}

constexpr png_byte skipped_chunks[] =
    "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0tIME\0zTXt";
constexpr int num_skipped_chunks = static_cast<int>(sizeof(skipped_chunks) / 5);

// False: `reason` says why.
bool read_header(png_session& s, const image_source& source) {
  if (setjmp(s.escape) != 0) return false;
  s.next = source.data();
  s.left = s.size = source.bytes.size();
  s.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, on_png_error, on_png_warning);
  if (s.png != nullptr) s.info = png_create_info_struct(s.png);
  if (s.info == nullptr) {
    std::snprintf(s.reason, sizeof(s.reason), "%s", "libpng cannot be set up: out of memory or of another version than at build time");
    return false;
  }
  png_set_read_fn(s.png, &s, on_png_read);
  png_set_user_limits(s.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_limits follows
  png_set_keep_unknown_chunks(s.png, PNG_HANDLE_CHUNK_NEVER, skipped_chunks, num_skipped_chunks);
  png_set_benign_errors(s.png, 1);  // what can be read in spite of a small fault is read
  png_set_check_for_invalid_index(s.png, -1);
  png_read_info(s.png, s.info);

  int interlace = 0;
  png_get_IHDR(s.png, s.info, &s.width, &s.height, &s.depth, &s.colour, &interlace, nullptr, nullptr);
  s.interlaced = interlace != PNG_INTERLACE_NONE;
  std::memset(s.alpha, 255, sizeof(s.alpha));
  png_colorp entries = nullptr;
  int num_entries = 0;
  if (s.palette_colour() && png_get_PLTE(s.png, s.info, &entries, &num_entries) != 0) {
    for (int i = 0; i < std::min(num_entries, 256); ++i) {
      s.palette[i][0] = entries[i].red;
      s.palette[i][1] = entries[i].green;
      s.palette[i][2] = entries[i].blue;
    }
  }
  png_bytep alpha = nullptr;
  png_color_16p key = nullptr;
  int num_alpha = 0;
  if (png_get_tRNS(s.png, s.info, &alpha, &num_alpha, &key) != 0) {
    if (s.palette_colour()) {
      if (alpha != nullptr) std::memcpy(s.alpha, alpha, static_cast<std::size_t>(std::clamp(num_alpha, 0, 256)));
    } else if (key != nullptr) {
      s.has_key = true;
      s.key[0] = s.gray() ? key->gray : key->red;
      s.key[1] = key->green;
      s.key[2] = key->blue;
    }
  }
  s.composite_alpha = source.options.composite_alpha;
  std::copy(std::begin(source.options.background), std::end(source.options.background), s.background);
  return true;
}

// \p scale brings samples of fewer than 8 bits to 0..255; \p gray16 clips samples of 16 bits instead of dropping their lower byte.
void convert_row(const png_session& s, const std::uint8_t* from, std::uint8_t* to) {
  const std::uint32_t scale = s.depth < 8 && !s.palette_colour() ? 255U / ((1U << s.depth) - 1U) : 1U;
  const bool clip = s.depth == 16 && s.gray() && !s.alpha_channel();
  const std::size_t colours = s.gray() || s.palette_colour() ? 1 : 3;
  for (std::uint32_t x = 0; x < s.width; ++x, to += 3) {
    std::uint32_t samples[4] = {};
    for (std::size_t c = 0; c < s.channels; ++c, from += s.sample_bytes) {
      samples[c] = s.sample_bytes == 2 ? static_cast<std::uint32_t>(from[0]) << 8 | from[1] : from[0];
    }
    std::uint32_t alpha = 255;
    if (s.palette_colour()) {
      const std::uint32_t index = samples[0];
      alpha = s.alpha[index];
      std::memcpy(to, s.palette[index], 3);
    } else {
      const auto to_byte = [&](std::uint32_t v) {
        if (s.sample_bytes == 2) return clip ? std::min(v, 255U) : v >> 8;
        return v * scale;
      };
      if (s.alpha_channel()) alpha = to_byte(samples[colours]);
      if (s.has_key && samples[0] == s.key[0] && (colours == 1 || (samples[1] == s.key[1] && samples[2] == s.key[2]))) alpha = 0;
      for (std::size_t c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>(to_byte(samples[colours == 1 ? 0 : c]));
    }
    if (s.composite_alpha && alpha != 255) {
      for (int c = 0; c < 3; ++c) to[c] = composite(to[c], s.background[c], alpha);
    }
  }
}

// Chooses how rows are delivered. False: `reason` says why.
bool start_rows(png_session& s) {
  if (setjmp(s.escape) != 0) return false;
  if (s.depth < 8) png_set_packing(s.png);  // a byte a sample, not scaled
  // Both bytes are needed where they are compared or clipped.
  const bool both_bytes = (s.gray() && !s.alpha_channel()) || (s.has_key && s.composite_alpha);
  if (s.depth == 16 && !both_bytes) png_set_strip_16(s.png);
  if (s.interlaced) png_set_interlace_handling(s.png);
  png_read_update_info(s.png, s.info);
  s.sample_bytes = s.depth == 16 && both_bytes ? 2 : 1;
  s.channels = png_get_channels(s.png, s.info);
  return true;
}

// \p raw: one row, or all of them if the picture is interlaced. False: `reason` says why.
bool read_rows(png_session& s, std::uint8_t* raw, std::size_t row_bytes, std::uint8_t* pixels) {
  if (setjmp(s.escape) != 0) return false;
  const std::size_t stride = static_cast<std::size_t>(s.width) * 3;
  if (s.interlaced) {
    for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
      for (std::size_t y = 0; y < s.height; ++y) png_read_row(s.png, raw + y * row_bytes, nullptr);
    }
    for (std::size_t y = 0; y < s.height; ++y) convert_row(s, raw + y * row_bytes, pixels + y * stride);
  } else {
    for (std::size_t y = 0; y < s.height; ++y) {
      png_read_row(s.png, raw, nullptr);
      convert_row(s, raw, pixels + y * stride);
    }
  }
  png_read_end(s.png, nullptr);  // checks the sum of the last chunk of pixels, and that the file ends
  return true;
}

// Data of the first chunk \p type, empty if there is none.
std::span<const std::byte> find_chunk(std::span<const std::byte> file, std::string_view type) {
  std::size_t at = 8;
  while (file.size() >= at + 12) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<std::size_t>(file[at + i]);
    if (length > file.size() - at - 12) return {};
    if (std::memcmp(file.data() + at + 4, type.data(), 4) == 0) return file.subspan(at + 8, length);
    at += 12 + length;
  }
  return {};
}

}  // namespace

decoded_image decode_png(const image_source& source) {
  png_session s;
  const auto fail = [&] { source.fail(std::string("broken PNG: ") + s.reason); };
  if (!read_header(s, source)) fail();
  source.check_limits(s.width, s.height);
  if (!start_rows(s)) fail();
  const std::size_t row_bytes = static_cast<std::size_t>(s.width) * s.channels * s.sample_bytes;
  std::vector<std::uint8_t> raw(row_bytes * (s.interlaced ? s.height : 1));
  decoded_image out;
  out.picture.width = static_cast<std::int32_t>(s.width);
  out.picture.height = static_cast<std::int32_t>(s.height);
  out.picture.pixels.resize(static_cast<std::size_t>(s.width) * s.height * 3);
  if (!read_rows(s, raw.data(), row_bytes, out.picture.pixels.data())) fail();
  if (source.options.apply_exif_orientation) out.orientation = exif_orientation(find_chunk(source.bytes, "eXIf"));
  return out;
}

}  // namespace vlbatch::inline v0::io_detail
