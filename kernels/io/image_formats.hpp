// SPDX-License-Identifier: Apache-2.0
// What the decoders of the formats share. Each one reads its header, asks check_limits, and only then allocates and decodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/core/image_buffer.hpp"
#include "vlbatch/io/image.hpp"

namespace vlbatch::inline v0::io_detail {

/// A picture as it is stored, and how it has to be turned.
struct decoded_image {
  image_buffer picture;
  std::int32_t orientation = 1;  ///< EXIF orientation 1..8; 1 unless apply_exif_orientation
};

/// What is decoded, for errors and limits.
struct image_source {
  std::span<const std::byte> bytes;
  std::string_view name;
  const image_decode_options& options;

  [[nodiscard]] const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(bytes.data()); }
  /// Throws image_error: `image "NAME": REASON`.
  [[noreturn]] void fail(const std::string& reason) const;
  /// Throws unless a picture of these sides may be decoded.
  void check_limits(std::uint64_t width, std::uint64_t height) const;
};

[[nodiscard]] decoded_image decode_jpeg(const image_source& source);
[[nodiscard]] decoded_image decode_png(const image_source& source);
[[nodiscard]] decoded_image decode_webp(const image_source& source);

/// Orientation that an EXIF block (a TIFF structure, "II" or "MM" first) names; 1 if it names none or is broken.
[[nodiscard]] std::int32_t exif_orientation(std::span<const std::byte> tiff);

/// \p picture turned upright. \p orientation 1..8
[[nodiscard]] image_buffer turned_upright(image_buffer picture, std::int32_t orientation);

/// \p foreground over an opaque \p background with Pillow's fixed-point arithmetic (Image.alpha_composite).
[[nodiscard]] constexpr std::uint8_t composite(std::uint32_t foreground, std::uint32_t background, std::uint32_t alpha) {
  if (alpha == 0) return static_cast<std::uint8_t>(background);
  constexpr std::uint32_t bits = 7;
  const std::uint32_t front = alpha << bits;  // weights sum to 255 << bits
  const std::uint32_t back = (255U << bits) - front;
  const std::uint32_t sum = foreground * front + background * back + (0x80U << bits);
  return static_cast<std::uint8_t>(((sum >> 8) + sum) >> 8 >> bits);  // (x / 256 + x) / 256: x / 255 rounded
}

}  // namespace vlbatch::inline v0::io_detail
