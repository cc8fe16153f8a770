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

/// Bounds and choices of decoding. Bounds are checked from the header, before any pixel memory is allocated; decoding takes at most
/// 12 bytes a pixel (3 of them stay) and a few MB besides the file, so that max_pixels bounds its memory too: 768 MiB by default. The
/// defaults give what Pillow's `Image.open(path).convert("RGB")` gives.
struct image_decode_options {
  std::int32_t max_width = 16384;                        ///< wider pictures are refused
  std::int32_t max_height = 16384;                       ///< higher pictures are refused
  std::int64_t max_pixels = 64LL * 1024 * 1024;          ///< larger pictures are refused
  std::int64_t max_encoded_bytes = 256LL * 1024 * 1024;  ///< larger files are refused
  std::uint8_t background[3] = {255, 255, 255};          ///< RGB under transparent pixels
  bool composite_alpha = false;         ///< false: drop alpha as Pillow's convert("RGB") does; true: composite over `background`
  bool apply_exif_orientation = false;  ///< false: as Pillow's Image.open; true: turn upright, as transformers' load_image does
  friend bool operator==(const image_decode_options&, const image_decode_options&) = default;
};

/// Decodes JPEG, PNG or WebP, told apart by content. \p name is used in error texts only. Thread-safe.
///
/// The pixels are Pillow's, byte for byte: colour profiles and gamma are ignored; CMYK is taken as inverted, as Adobe writes it; 16-bit
/// colour keeps the upper byte; 16-bit gray is clipped at 255; an index beyond the palette is black; damage inside the data of a JPEG that
/// the decoder can bridge is bridged; of an animated PNG the picture that other readers show is decoded. Orientation is read from EXIF
/// alone (APP1 of JPEG, eXIf of PNG, EXIF of WebP); Pillow also knows XMP and ImageMagick's text chunks.
///
/// Refused by name: GIF, BMP, TIFF, JPEG XL, JPEG 2000, AVIF, HEIC, animated WebP, JPEG with 12 bits a sample or more than a hundred scans.
/// The first frame of an animation is seldom what was meant, so that taking it (GIF, WebP) is left to the caller, who sees the others.
/// \throws image_error unknown or unsupported format, broken or truncated data, limits exceeded
[[nodiscard]] image_buffer decode_image(std::span<const std::byte> bytes, std::string_view name = "image",
                                        const image_decode_options& options = {});

/// Reads and decodes a file. \throws file_error unreadable or larger than max_encoded_bytes; image_error as decode_image
[[nodiscard]] image_buffer load_image(const std::string& path, const image_decode_options& options = {});

/// Pillow's resampling filters; the values are Pillow's own numbers (`resample` in preprocessor_config.json).
enum class resample_filter : std::int32_t { nearest = 0, lanczos = 1, bilinear = 2, bicubic = 3, box = 4, hamming = 5 };

/// Which pass comes first when both sides change. Each pass rounds to 8 bits, so that the two orders may differ by a level.
enum class resample_order : std::uint8_t {
  pillow_13,  ///< Pillow 13: vertical first if the height shrinks by more than twice as many pixels as the width
  pillow_12   ///< Pillow 3 to 12: horizontal first, always
};

/// Resizes to `[height, width]`, byte for byte what Pillow's `Image.resize((width, height), filter)` gives: a separable convolution whose
/// filter is widened by the factor when it shrinks, with weights of 22 fractional bits and rounding to 8 bits after each pass.
/// Thread-safe. \throws invalid_argument an empty picture, a size below 1 or an unknown filter
[[nodiscard]] image_buffer resize_image(const image_buffer& source, std::int32_t width, std::int32_t height, resample_filter filter,
                                        resample_order order = resample_order::pillow_13);

/// Cuts the rectangle of \p width x \p height at (\p left, \p top). \throws invalid_argument if it does not lie inside
[[nodiscard]] image_buffer crop_image(const image_buffer& source, std::int32_t left, std::int32_t top, std::int32_t width,
                                      std::int32_t height);

/// \throws invalid_argument unless \p picture has at least one pixel and as many bytes as its sides say; \p name is used in the text
void check_image(const image_buffer& picture, std::string_view name = "image");

}  // namespace vlbatch::inline v0
