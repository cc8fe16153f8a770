// SPDX-License-Identifier: Apache-2.0
/// \file
/// Image decoding (JPEG, PNG, WebP) and Pillow-equal resampling. Defined in the compiled library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/core/image_buffer.hpp"

namespace vlbatch::inline v0 {

/// Bounds and choices of decoding. Bounds are checked from the header, before any pixel memory is allocated.
struct image_decode_options {
  std::int32_t max_width = 16384;                ///< wider pictures are refused
  std::int32_t max_height = 16384;               ///< higher pictures are refused
  std::int64_t max_pixels = 64LL * 1024 * 1024;  ///< larger pictures are refused
  std::uint8_t background[3] = {255, 255, 255};  ///< RGB under transparent pixels
  bool composite_alpha = false;                  ///< false: drop alpha as Pillow's convert("RGB") does; true: composite over `background`
  bool apply_exif_orientation = false;  ///< false: as Pillow's Image.open (the reference processors ignore EXIF); true: turn upright
  friend bool operator==(const image_decode_options&, const image_decode_options&) = default;
};

/// Decodes JPEG, PNG or WebP, told apart by content. \p name is used in error texts only. Thread-safe.
/// \throws image_error unknown format, broken or truncated data, limits exceeded, unsupported kind
[[nodiscard]] image_buffer decode_image(std::span<const std::byte> bytes, std::string_view name = "image",
                                        const image_decode_options& options = {});

/// Reads and decodes a file. \throws file_error unreadable; image_error as decode_image
[[nodiscard]] image_buffer load_image(const std::string& path, const image_decode_options& options = {});

/// Pillow's resampling filters; the values are Pillow's own numbers (`resample` in preprocessor_config.json).
enum class resample_filter : std::int32_t { nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

/// Resizes to `[height, width]`, byte for byte what Pillow's `Image.resize((width, height), filter)` gives. Thread-safe.
/// \throws invalid_argument an empty picture or a size below 1
[[nodiscard]] image_buffer resize_image(const image_buffer& source, std::int32_t width, std::int32_t height, resample_filter filter);

/// Cuts the rectangle of \p width x \p height at (\p left, \p top). \throws invalid_argument if it does not lie inside
[[nodiscard]] image_buffer crop_image(const image_buffer& source, std::int32_t left, std::int32_t top, std::int32_t width,
                                      std::int32_t height);

}  // namespace vlbatch::inline v0
