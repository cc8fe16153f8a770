// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/prompt_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

std::int32_t control_token(const tokenizer& text, const idefics3_config& config, const std::string& name) {
  const std::optional<std::int32_t> id = text.find(name);
  if (!id) throw model_error(fmt::format("{}/tokenizer.json: token \"{}\" is missing", config.source, name));
  if (*id >= config.text.vocab_size) {
    throw model_error(fmt::format("{}/tokenizer.json: token \"{}\" has id {}, config.json's text_config.vocab_size is {}", config.source,
                                  name, *id, config.text.vocab_size));
  }
  return *id;
}

// The template writes roles with a capital.
std::string shown_role(const std::string& role) {
  if (role != "user" && role != "assistant" && role != "system") {
    throw invalid_argument(fmt::format("message: role is \"{}\", expected user, assistant or system", role));
  }
  std::string shown = role;
  shown[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(shown[0])));
  return shown;
}

}  // namespace

idefics3_prompt_format::idefics3_prompt_format(const tokenizer& text, const idefics3_config& config)
    : text_(&text),
      tokens_per_tile_(config.tokens_per_tile()),
      start_(control_token(text, config, "<|im_start|>")),
      end_of_utterance_(control_token(text, config, "<end_of_utterance>")),
      fake_(control_token(text, config, "<fake_token_around_image>")),
      image_(control_token(text, config, "<image>")),
      global_(control_token(text, config, "<global-img>")) {
  if (image_ != config.image_token_id) {
    throw model_error(fmt::format("{}/tokenizer.json: token \"<image>\" has id {}, config.json's image_token_id is {}", config.source,
                                  image_, config.image_token_id));
  }
  const auto tile_token = [&](std::int32_t r, std::int32_t c) { return text.find(fmt::format("<row_{}_col_{}>", r, c)); };
  while (tile_token(max_rows_ + 1, 1)) ++max_rows_;
  while (max_rows_ > 0 && tile_token(1, max_cols_ + 1)) ++max_cols_;
  for (std::int32_t r = 1; r <= max_rows_; ++r) {
    for (std::int32_t c = 1; c <= max_cols_; ++c) row_col_.push_back(control_token(text, config, fmt::format("<row_{}_col_{}>", r, c)));
  }
}

// Rows of tiles end with a newline each; the whole picture follows after one more, and a closing separator.
void idefics3_prompt_format::append_image(image_grid grid, formatted& out) const {
  if (grid.rows < 0 || grid.cols < 0 || (grid.rows == 0) != (grid.cols == 0) || grid.rows > max_rows_ || grid.cols > max_cols_) {
    throw invalid_argument(
        fmt::format("image: grid of {} x {} tiles, the tokenizer has names for up to {} x {}", grid.rows, grid.cols, max_rows_, max_cols_));
  }
  formatted::image_range range;
  const auto tile = [&](std::int32_t name) {
    out.tokens.push_back(fake_);
    out.tokens.push_back(name);
    range.tile_positions.push_back(static_cast<std::int32_t>(out.tokens.size()));
    out.tokens.insert(out.tokens.end(), static_cast<std::size_t>(tokens_per_tile_), image_);
  };
  for (std::int32_t r = 0; r < grid.rows; ++r) {
    for (std::int32_t c = 0; c < grid.cols; ++c) tile(row_col_[static_cast<std::size_t>(r * max_cols_ + c)]);
    // The newline of the last row and the one before the whole picture stand together: they are one piece of text.
    text_->encode(r + 1 == grid.rows ? "\n\n" : "\n", tokenizer::special_tokens::as_text, out.tokens);
  }
  tile(global_);
  range.first_position = range.tile_positions.front();
  range.num_tokens = static_cast<std::int32_t>(out.tokens.size()) - range.first_position;
  out.tokens.push_back(fake_);
  out.images.push_back(std::move(range));
}

idefics3_prompt_format::formatted idefics3_prompt_format::format(const std::vector<message>& messages,
                                                                 std::span<const image_grid> grids) const {
  if (messages.empty()) throw invalid_argument("request: no message");
  std::size_t wanted = 0;
  for (const message& m : messages) {
    wanted += static_cast<std::size_t>(
        std::count_if(m.parts.begin(), m.parts.end(), [](const message_part& p) { return std::holds_alternative<image_part>(p); }));
  }
  if (wanted != grids.size()) throw invalid_argument(fmt::format("request: {} image parts, {} grids", wanted, grids.size()));

  formatted out;
  std::size_t next = 0;
  // Text between two control tokens is tokenised in one piece, template and user text together, as the reference does with the whole
  // string.
  std::string piece;
  const auto flush = [&] {
    text_->encode(piece, tokenizer::special_tokens::as_text, out.tokens);
    piece.clear();
  };
  out.tokens.push_back(start_);
  for (const message& m : messages) {
    if (m.parts.empty()) throw invalid_argument(fmt::format("message of role {} has no parts", m.role));
    piece += shown_role(m.role) + (std::holds_alternative<image_part>(m.parts.front()) ? ":" : ": ");
    for (const message_part& part : m.parts) {
      if (const auto* text = std::get_if<text_part>(&part)) {
        piece += text->text;
        continue;
      }
      flush();
      append_image(grids[next++], out);
    }
    flush();
    out.tokens.push_back(end_of_utterance_);
    piece.assign(1, '\n');  // assigning the literal draws a false warning from g++ 12
  }
  piece += "Assistant:";
  flush();
  return out;
}

}  // namespace vlbatch::inline v0
