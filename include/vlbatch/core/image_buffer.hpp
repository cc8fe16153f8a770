// SPDX-License-Identifier: Apache-2.0
/// \file
/// A decoded picture in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace vlbatch::inline v0 {

/// 8-bit RGB picture, row-major, `[height, width, 3]`. Owns its pixels.
struct image_buffer {
  std::int32_t width = 0;            ///< columns
  std::int32_t height = 0;           ///< rows
  std::vector<std::uint8_t> pixels;  ///< `height * width * 3` bytes
  friend bool operator==(const image_buffer&, const image_buffer&) = default;
};

}  // namespace vlbatch::inline v0
