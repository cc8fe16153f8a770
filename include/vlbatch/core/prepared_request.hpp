// SPDX-License-Identifier: Apache-2.0
/// \file
/// What preparation makes of a request: token ids with placeholder ranges, and tiles of pixels.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace vlbatch::inline v0 {

/// 128-bit content hash (XXH3-128 of pixels and every preprocessing option). Equality of hashes is always verified by comparing the
/// content.
struct content_key {
  std::uint64_t high = 0;  ///< upper half
  std::uint64_t low = 0;   ///< lower half
  friend constexpr bool operator==(const content_key&, const content_key&) = default;
};

/// Pixels of one image after resizing and cutting, 8 bits a channel, with the table that turns them into the numbers the vision tower
/// reads. Immutable once made and shared between the request, the encoder cache and a running encode (whoever holds the pointer keeps it
/// alive).
struct pixel_tiles {
  std::int32_t num_tiles = 0;                          ///< tiles, in the order of their placeholders
  std::int32_t height = 0;                             ///< rows of a tile, pixels
  std::int32_t width = 0;                              ///< columns of a tile, pixels
  std::vector<std::uint8_t> values;                    ///< `[num_tiles, height, width, 3]`, RGB
  std::array<std::array<float, 256>, 3> normalised{};  ///< `[channel][value]`: rescaled and normalised value
  content_key key;                                     ///< hash of everything above

  /// True if both encode to the same embeddings: key and content agree.
  [[nodiscard]] bool same_content(const pixel_tiles& o) const {
    return key == o.key && num_tiles == o.num_tiles && height == o.height && width == o.width && normalised == o.normalised &&
           values == o.values;
  }
  /// First byte of tile \p t, `[height, width, 3]`.
  [[nodiscard]] const std::uint8_t* tile(std::int32_t t) const { return values.data() + static_cast<std::int64_t>(t) * height * width * 3; }
};

/// One image of a prepared request. The image covers the prompt positions `[first_position, first_position + num_tokens)`: the placeholders
/// of its tiles and the separators between them.
struct prepared_image {
  std::shared_ptr<const pixel_tiles> pixels;  ///< never null
  std::int32_t first_position = 0;            ///< first placeholder of the first tile
  std::int32_t num_tokens = 0;                ///< positions up to and including the last placeholder of the last tile
  std::int32_t tokens_per_tile = 0;           ///< embedding rows of a tile
  std::vector<std::int32_t> tile_positions;   ///< `[num_tiles]`, ascending: position of each tile's first placeholder
  bool atomic = false;                        ///< may not be cut by a chunk (bidirectional attention inside the image)

  /// Embedding rows of the whole image.
  [[nodiscard]] std::int32_t embedding_rows() const { return pixels->num_tiles * tokens_per_tile; }
};

/// A request ready to be scheduled.
struct prepared_request {
  std::vector<std::int32_t> tokens;    ///< prompt ids, placeholders included
  std::vector<prepared_image> images;  ///< in the order of their positions
};

}  // namespace vlbatch::inline v0
