// SPDX-License-Identifier: Apache-2.0
/// \file
/// Requests to token ids and pixel tiles, for the Idefics3 / SmolVLM family. Defined in the compiled library.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "vlbatch/core/image_buffer.hpp"
#include "vlbatch/core/prepared_request.hpp"
#include "vlbatch/core/request.hpp"
#include "vlbatch/io/image.hpp"
#include "vlbatch/io/tokenizer.hpp"
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/idefics3/prompt_format.hpp"

namespace vlbatch::inline v0 {

/// Sizes, in pixels, on the way from a picture to its tiles.
struct idefics3_tiling {
  std::int32_t resized_width = 0;   ///< after the longest edge was scaled
  std::int32_t resized_height = 0;  ///< after the longest edge was scaled
  std::int32_t full_width = 0;      ///< after both sides were scaled to whole tiles: what the tiles are cut from
  std::int32_t full_height = 0;     ///< after both sides were scaled to whole tiles: what the tiles are cut from
  image_grid grid;                  ///< rows and columns of tiles; 0 x 0: the picture is one tile
  friend bool operator==(const idefics3_tiling&, const idefics3_tiling&) = default;
};

/// How a picture of \p width x \p height is scaled and cut, by the arithmetic of transformers' Idefics3ImageProcessor: small pictures are
/// scaled up, and the longest edge never exceeds 4096 before it is rounded up to whole tiles. A side that this arithmetic would shrink to
/// nothing, where transformers fails, is one tile long. \throws invalid_argument a size below 1, edges outside 1 .. 2^20
[[nodiscard]] idefics3_tiling idefics3_tiling_of(const idefics3_preprocessing& settings, std::int32_t width, std::int32_t height);

/// `[channel][value]`: what an 8-bit value becomes, bit for bit as transformers computes it: times rescale_factor in double precision,
/// rounded to single, then (x - mean) / std in single precision.
[[nodiscard]] std::array<std::array<float, 256>, 3> idefics3_normalised_values(const idefics3_preprocessing& settings);

/// Scales and cuts \p picture as transformers' Idefics3ImageProcessor (the one based on Pillow) does: tiles in row-major order, the whole
/// picture last. The one based on torchvision (Idefics3ImageProcessorFast of 4.57.6) cuts the same tiles, but scales with another filter:
/// 1.4 to 2.3 levels of 255 apart on average in photographs and smooth pictures, 3.9 to 7.5 in noise, at most 55
/// (tests/golden/compare_fast_images.py).
///
/// The key covers \p settings and \p decoding, so that pictures made under other options never count as equal.
/// \throws invalid_argument a picture without pixels; image_error it would grow beyond `decoding.max_pixels`
[[nodiscard]] std::shared_ptr<const pixel_tiles> idefics3_make_tiles(const idefics3_preprocessing& settings, const image_buffer& picture,
                                                                     const image_decode_options& decoding = {});

/// Decodes, scales, cuts and tokenises requests. An immutable handle: copies share what they refer to, and every member function may be
/// called from several threads at once.
class idefics3_processor {
 public:
  /// Pictures from files are turned upright by EXIF, as transformers' `load_image` does, and transparency is shown over white, as
  /// Idefics3ImageProcessor does with RGBA pictures (after scaling there, before scaling here: 0.2 to 1.6 levels of 255 apart on average;
  /// `load_image` drops alpha instead, which shows whatever colour lies under transparent pixels). Pixels that are given as such are used
  /// as they are.
  [[nodiscard]] static image_decode_options default_decoding() noexcept;

  /// Reads configuration and tokenizer of a Hugging Face folder. \throws file_error, model_error naming file, item and both values
  [[nodiscard]] static idefics3_processor load(const std::string& folder, const image_decode_options& decoding = default_decoding());

  /// From parts that were read already. \throws model_error the tokenizer lacks a control token, or tiles do not fit the vision tower
  idefics3_processor(idefics3_config config, tokenizer text, const image_decode_options& decoding = default_decoding());

  /// Token ids and tiles of \p r. A request that brings them itself is checked and passed on.
  /// \throws image_error, file_error a picture that cannot be read, by name; invalid_argument messages that cannot be formatted, or a
  /// prepared request that contradicts itself or the model, with both values
  [[nodiscard]] prepared_request prepare(const request& r) const;

  /// The tokenizer, as long as this or a copy lives.
  [[nodiscard]] const tokenizer& text() const noexcept;
  /// The configuration, as long as this or a copy lives.
  [[nodiscard]] const idefics3_config& config() const noexcept;
  /// How pictures are decoded.
  [[nodiscard]] const image_decode_options& decoding() const noexcept;

 private:
  struct impl;
  std::shared_ptr<const impl> impl_;
};

}  // namespace vlbatch::inline v0
