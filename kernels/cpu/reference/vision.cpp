// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {

void patches(context& /*s*/, std::span<const std::uint8_t* const> tiles, const pixel_tiles& like, std::int32_t patch, output y) {
  const std::int32_t across = like.width / patch;
  const std::int32_t a_tile = across * (like.height / patch);
  for (std::int32_t r = 0; r < y.rows; ++r) {
    const std::uint8_t* tile = tiles[static_cast<std::size_t>(r / a_tile)];
    const std::int32_t top = r % a_tile / across * patch;
    const std::int32_t left = r % a_tile % across * patch;
    float* to = y.row(r);
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::int32_t dy = 0; dy < patch; ++dy) {
        for (std::int32_t dx = 0; dx < patch; ++dx) {
          const std::int64_t pixel = static_cast<std::int64_t>(top + dy) * like.width + left + dx;
          *to++ = like.normalised[channel][tile[pixel * 3 + static_cast<std::int64_t>(channel)]];
        }
      }
    }
  }
}

// Output row (i, j) holds, for each row of patches factor * i + a and each column factor * j + b, the patch's channels: [a][b][C].
void pixel_shuffle(context& /*s*/, input x, std::int32_t side, std::int32_t factor, output y) {
  const std::int32_t small = side / factor;
  for (std::int32_t r = 0; r < y.rows; ++r) {
    const std::int32_t tile = r / (small * small);
    const std::int32_t i = r / small % small;
    const std::int32_t j = r % small;
    float* to = y.row(r);
    for (std::int32_t a = 0; a < factor; ++a) {
      for (std::int32_t b = 0; b < factor; ++b, to += x.cols) {
        std::copy_n(x.row((tile * side + factor * i + a) * side + factor * j + b), x.cols, to);
      }
    }
  }
}

}  // namespace vlbatch::inline v0::reference
