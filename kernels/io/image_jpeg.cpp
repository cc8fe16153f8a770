// SPDX-License-Identifier: Apache-2.0
// JPEG through libjpeg-turbo with its accurate defaults (integer DCT, smooth chroma upsampling), which are Pillow's.
//
// libjpeg reports errors by a call that must not return. It leaves by longjmp, which runs no destructors: the functions that arm `escape`
// hold nothing but trivial objects, everything else lives in their callers.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
// jpeglib.h needs the two above.
#include <jpeglib.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "io/image_formats.hpp"

namespace vlbatch::inline v0::io_detail {
namespace {

// Each scan of a progressive picture costs a pass over all coefficients, and a few hundred bytes suffice for one: without a bound, a small
// file takes hours. Encoders write about ten. A hundred take 2.7 s of an Intel Xeon core for 67 million pixels at worst (refinements of all
// coefficients that name none, in 140 KB).
constexpr int max_scans = 100;

struct jpeg_session {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_source_mgr input{};
  jpeg_progress_mgr progress{};
  std::jmp_buf escape{};
  char reason[JMSG_LENGTH_MAX]{};
  std::size_t size = 0;  // bytes of the whole file

  jpeg_session() = default;
  jpeg_session(const jpeg_session&) = delete;
  jpeg_session& operator=(const jpeg_session&) = delete;
  ~jpeg_session() { jpeg_destroy_decompress(&info); }  // does nothing before jpeg_CreateDecompress
};

jpeg_session& session_of(j_common_ptr info) { return *static_cast<jpeg_session*>(info->client_data); }

extern "C" {
[[noreturn]] static void on_error(j_common_ptr info) {
  jpeg_session& s = session_of(info);
  s.errors.format_message(info, s.reason);
  std::longjmp(s.escape, 1);
}

static void on_message(j_common_ptr) {}

static void on_source(j_decompress_ptr) {}

static boolean on_end_of_data(j_decompress_ptr info) {
  jpeg_session& s = session_of(reinterpret_cast<j_common_ptr>(info));
  std::snprintf(s.reason, sizeof(s.reason), "is truncated: more data is needed after byte %zu", s.size);
  std::longjmp(s.escape, 1);
}

static void on_skip(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  jpeg_source_mgr& input = *info->src;
  if (static_cast<std::size_t>(count) > input.bytes_in_buffer) on_end_of_data(info);
  input.next_input_byte += count;
  input.bytes_in_buffer -= static_cast<std::size_t>(count);
}

static void on_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= max_scans) return;
  jpeg_session& s = session_of(info);
  std::snprintf(s.reason, sizeof(s.reason), "has more than %d scans", max_scans);
  std::longjmp(s.escape, 1);
}
}

// False: `reason` says why.
bool read_header(jpeg_session& s, const image_source& source) {
  if (setjmp(s.escape) != 0) return false;
  s.info.err = jpeg_std_error(&s.errors);
  s.errors.error_exit = on_error;
  s.errors.output_message = on_message;
  s.info.client_data = &s;
  jpeg_CreateDecompress(&s.info, JPEG_LIB_VERSION, sizeof(s.info));  // keeps err and client_data
  s.size = source.bytes.size();
  s.input.next_input_byte = source.data();
  s.input.bytes_in_buffer = s.size;
  s.input.init_source = on_source;
  s.input.fill_input_buffer = on_end_of_data;
  s.input.skip_input_data = on_skip;
  s.input.resync_to_restart = jpeg_resync_to_restart;
  s.input.term_source = on_source;
  s.info.src = &s.input;
  s.progress.progress_monitor = on_progress;
  s.info.progress = &s.progress;
  if (source.options.apply_exif_orientation) jpeg_save_markers(&s.info, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&s.info, TRUE);
  return true;
}

// Ink as Adobe stores it (255 - c) to RGB: (1 - c)(1 - k) with Pillow's rounding.
void cmyk_to_rgb(const std::uint8_t* from, std::uint8_t* to, std::int32_t width) {
  for (std::int32_t x = 0; x < width; ++x, from += 4, to += 3) {
    const int light = from[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - from[c]) * light + 128;
      to[c] = static_cast<std::uint8_t>(std::max(0, light - ((product >> 8) + product) / 256));
    }
  }
}

// \p row has room for one row of CMYK pixels if the picture has four components. False: `reason` says why.
bool read_rows(jpeg_session& s, std::uint8_t* pixels, std::uint8_t* row) {
  if (setjmp(s.escape) != 0) return false;
  const bool cmyk = s.info.num_components == 4;
  s.info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&s.info);
  const std::size_t stride = static_cast<std::size_t>(s.info.output_width) * 3;
  while (s.info.output_scanline < s.info.output_height) {
    std::uint8_t* to = pixels + s.info.output_scanline * stride;
    JSAMPROW line = cmyk ? row : to;
    jpeg_read_scanlines(&s.info, &line, 1);
    if (cmyk) cmyk_to_rgb(row, to, static_cast<std::int32_t>(s.info.output_width));
  }
  return true;  // what follows the last row does not matter
}

std::int32_t orientation_of(const jpeg_session& s) {
  using namespace std::string_view_literals;
  constexpr std::string_view mark = "Exif\0\0"sv;
  for (const jpeg_marker_struct* m = s.info.marker_list; m != nullptr; m = m->next) {
    const std::span<const std::byte> data{reinterpret_cast<const std::byte*>(m->data), m->data_length};
    if (m->marker != JPEG_APP0 + 1 || data.size() < mark.size()) continue;
    if (std::string_view(reinterpret_cast<const char*>(data.data()), mark.size()) != mark) continue;
    return exif_orientation(data.subspan(mark.size()));
  }
  return 1;
}

}  // namespace

decoded_image decode_jpeg(const image_source& source) {
  jpeg_session s;
  if (!read_header(s, source)) source.fail(std::string("broken JPEG: ") + s.reason);
  source.check_limits(s.info.image_width, s.info.image_height);
  const int components = s.info.num_components;
  if (components != 1 && components != 3 && components != 4) {
    source.fail("JPEG has " + std::to_string(components) + " components, expected 1, 3 or 4");
  }
  decoded_image out;
  if (source.options.apply_exif_orientation) out.orientation = orientation_of(s);
  out.picture.width = static_cast<std::int32_t>(s.info.image_width);
  out.picture.height = static_cast<std::int32_t>(s.info.image_height);
  const std::size_t pixels = static_cast<std::size_t>(out.picture.width) * static_cast<std::size_t>(out.picture.height);
  out.picture.pixels.resize(pixels * 3);
  std::vector<std::uint8_t> row(components == 4 ? static_cast<std::size_t>(out.picture.width) * 4 : 0);
  if (!read_rows(s, out.picture.pixels.data(), row.data())) source.fail(std::string("broken JPEG: ") + s.reason);
  return out;
}

}  // namespace vlbatch::inline v0::io_detail
