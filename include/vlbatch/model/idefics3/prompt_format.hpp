// SPDX-License-Identifier: Apache-2.0
/// \file
/// Chat format of the Idefics3 / SmolVLM family: messages to prompt ids with placeholder ranges. Defined in the compiled library.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/core/request.hpp"
#include "vlbatch/io/tokenizer.hpp"
#include "vlbatch/model/idefics3/config.hpp"

namespace vlbatch::inline v0 {

/// How a picture was cut: rows x cols tiles in row-major order and then the whole picture, or (0 x 0) the whole picture alone.
struct image_grid {
  std::int32_t rows = 0;  ///< tiles from top to bottom
  std::int32_t cols = 0;  ///< tiles from left to right

  /// Tiles in all.
  [[nodiscard]] constexpr std::int32_t num_tiles() const noexcept { return rows * cols + 1; }
  friend constexpr bool operator==(const image_grid&, const image_grid&) = default;
};

/// Writes prompts as SmolVLM's chat template and transformers' Idefics3Processor do, with the generation prompt at the end:
/// `<|im_start|>User:` (then a space unless an image comes first), texts and images in their order, `<end_of_utterance>`, newline, further
/// turns, `Assistant:`. Text of messages is plain text whatever it spells. Immutable and thread-safe; refers to the tokenizer, which must
/// outlive it.
class idefics3_prompt_format {
 public:
  /// Looks up the control tokens that the format needs.
  /// \throws model_error a token is missing or is not the one the configuration names, or an id is not below the vocabulary size
  idefics3_prompt_format(const tokenizer& text, const idefics3_config& config);

  /// Prompt ids and where the images lie in them.
  struct formatted {
    /// Range of one image, as in `prepared_image`.
    struct image_range {
      std::int32_t first_position = 0;           ///< first placeholder of the first tile
      std::int32_t num_tokens = 0;               ///< positions up to and including the last placeholder of the last tile
      std::vector<std::int32_t> tile_positions;  ///< `[num_tiles]`, ascending: first placeholder of each tile
    };
    std::vector<std::int32_t> tokens;  ///< prompt
    std::vector<image_range> images;   ///< in the order of the image parts
  };

  /// Formats \p messages, whose image parts in order have \p grids.
  /// \throws invalid_argument no message, a message without parts, an unknown role, a number of grids other than that of image parts, a
  /// grid beyond the tokenizer's row and column tokens, a text that spells a control token which the tokenizer does not mark as special
  [[nodiscard]] formatted format(const std::vector<message>& messages, std::span<const image_grid> grids) const;

  /// Placeholders of one tile.
  [[nodiscard]] std::int32_t tokens_per_tile() const noexcept { return tokens_per_tile_; }

 private:
  const tokenizer* text_;
  std::int32_t tokens_per_tile_;
  std::int32_t start_;             // <|im_start|>
  std::int32_t end_of_utterance_;  // <end_of_utterance>
  std::int32_t fake_;              // <fake_token_around_image>
  std::int32_t image_;             // <image>
  std::int32_t global_;            // <global-img>
  std::int32_t max_rows_ = 0;
  std::int32_t max_cols_ = 0;
  std::vector<std::int32_t> row_col_;    // [max_rows, max_cols]: <row_r_col_c>
  std::vector<std::int32_t> spellable_;  // ascending: control tokens that the tokenizer does not mark as special, usually none
};

}  // namespace vlbatch::inline v0
