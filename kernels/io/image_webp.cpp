// SPDX-License-Identifier: Apache-2.0
// WebP through libwebp, lossy and lossless, one frame.
#include <webp/decode.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "io/image_formats.hpp"

namespace vlbatch::inline v0::io_detail {
namespace {

const char* name_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "is truncated";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "uses an unsupported feature";
    case VP8_STATUS_BITSTREAM_ERROR:
      return "damaged data";
    default:
      return "cannot be decoded";
  }
}

// Data of the first RIFF chunk \p type, empty if there is none.
std::span<const std::byte> find_chunk(std::span<const std::byte> file, std::string_view type) {
  std::size_t at = 12;
  while (file.size() >= at + 8) {
    std::size_t length = 0;
    for (std::size_t i = 4; i-- > 0;) length = length << 8 | static_cast<std::size_t>(file[at + 4 + i]);
    if (length > file.size() - at - 8) return {};
    if (std::memcmp(file.data() + at, type.data(), 4) == 0) return file.subspan(at + 8, length);
    at += 8 + length + (length & 1);
  }
  return {};
}

}  // namespace

decoded_image decode_webp(const image_source& source) {
  const auto check = [&](VP8StatusCode status) {
    if (status != VP8_STATUS_OK) source.fail(std::string("broken WebP: ") + name_of(status));
  };
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) source.fail("libwebp is of another version than at build time");
  check(WebPGetFeatures(source.data(), source.bytes.size(), &config.input));
  if (config.input.width < 0 || config.input.height < 0) check(VP8_STATUS_BITSTREAM_ERROR);
  source.check_limits(static_cast<std::uint64_t>(config.input.width), static_cast<std::uint64_t>(config.input.height));
  if (config.input.has_animation != 0) source.fail("is an animated WebP, expected a still picture");

  decoded_image out;
  out.picture.width = config.input.width;
  out.picture.height = config.input.height;
  const std::size_t pixels = static_cast<std::size_t>(out.picture.width) * static_cast<std::size_t>(out.picture.height);
  out.picture.pixels.resize(pixels * 3);
  // Dropping alpha leaves the colours as they are stored, so that the decoder can write RGB at once.
  const bool with_alpha = config.input.has_alpha != 0 && source.options.composite_alpha;
  std::vector<std::uint8_t> rgba(with_alpha ? pixels * 4 : 0);
  std::vector<std::uint8_t>& to = with_alpha ? rgba : out.picture.pixels;
  config.output.colorspace = with_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = to.data();
  config.output.u.RGBA.size = to.size();
  config.output.u.RGBA.stride = out.picture.width * (with_alpha ? 4 : 3);
  const VP8StatusCode status = WebPDecode(source.data(), source.bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  check(status);
  for (std::size_t i = 0; i < rgba.size() / 4; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      out.picture.pixels[i * 3 + c] = composite(rgba[i * 4 + c], source.options.background[c], rgba[i * 4 + 3]);
    }
  }
  if (source.options.apply_exif_orientation) {
    std::span<const std::byte> exif = find_chunk(source.bytes, "EXIF");
    if (exif.size() >= 6 && std::memcmp(exif.data(), "Exif\0\0", 6) == 0) exif = exif.subspan(6);  // some writers keep JPEG's mark
    out.orientation = exif_orientation(exif);
  }
  return out;
}

}  // namespace vlbatch::inline v0::io_detail
