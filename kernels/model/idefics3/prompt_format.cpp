// SPDX-License-Identifier: Apache-2.0
// Source of the format: SmolVLM's chat template and the prompt strings of transformers' Idefics3Processor.
#include "vlbatch/model/idefics3/prompt_format.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>

#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

constexpr std::int32_t max_side = 64;  // of the grids that are looked for in the tokenizer; SmolVLM has 6

std::string row_col_token(std::int32_t row, std::int32_t col) {
  return "<row_" + std::to_string(row + 1) + "_col_" + std::to_string(col + 1) + ">";
}

// The template capitalises roles.
std::string_view role_name(const message& m, std::size_t index) {
  if (m.role == "user") return "User";
  if (m.role == "assistant") return "Assistant";
  if (m.role == "system") return "System";
  throw invalid_argument("message " + std::to_string(index) + " has the role \"" + io_detail::shortened(m.role) +
                         "\", expected \"user\", \"assistant\" or \"system\"");
}

// Prompt in the making. Text between two control tokens is collected and tokenised as one, because words do not end where text of the
// template and of the user meet.
class prompt_writer {
 public:
  // \p spellable: control tokens that text could write, in order.
  prompt_writer(const tokenizer& text, const std::vector<std::int32_t>& spellable, std::vector<std::int32_t>& out)
      : text_(text), spellable_(spellable), out_(out) {}

  void text(std::string_view s) { pending_ += s; }
  void control(std::int32_t id) {
    flush();
    out_.push_back(id);
  }
  void repeat(std::int32_t id, std::int32_t times) {
    flush();
    out_.insert(out_.end(), static_cast<std::size_t>(times), id);
  }
  void flush() {
    const auto first = static_cast<std::ptrdiff_t>(out_.size());
    text_.encode(pending_, tokenizer::special_tokens::as_text, out_);
    pending_.clear();
    if (spellable_.empty()) return;
    const auto spelled = [&](std::int32_t id) { return std::binary_search(spellable_.begin(), spellable_.end(), id); };
    if (const auto it = std::find_if(out_.begin() + first, out_.end(), spelled); it != out_.end()) {
      throw invalid_argument("a text spells \"" + std::string(text_.bytes_of(*it)) +
                             "\", a control token that tokenizer.json does not mark as special");
    }
  }
  std::int32_t position() const { return static_cast<std::int32_t>(out_.size()); }

 private:
  const tokenizer& text_;
  const std::vector<std::int32_t>& spellable_;
  std::vector<std::int32_t>& out_;
  std::string pending_;
};

}  // namespace

idefics3_prompt_format::idefics3_prompt_format(const tokenizer& text, const idefics3_config& config)
    : text_(&text), tokens_per_tile_(config.tokens_per_tile()) {
  const std::string source = config.source.empty() ? "tokenizer" : config.source + ": tokenizer";
  if (text.vocab_size() > config.text.vocab_size) {
    throw model_error(source + ": ids up to " + std::to_string(text.vocab_size() - 1) + ", but text_config.vocab_size of config.json is " +
                      std::to_string(config.text.vocab_size));
  }
  const auto resolve = [&](const std::string& token) {
    const auto id = text.find(token);
    if (!id) throw model_error(source + ": token \"" + token + "\", which prompts need, is missing");
    // As an added token it is cut out of the text before anything else, and the text around it must stay as it is: that is how it is used
    // here.
    const std::vector<std::int32_t> around = text.encode(" " + token + " ", tokenizer::special_tokens::parse);
    std::vector<std::int32_t> expected = text.encode(" ");
    expected.push_back(*id);
    text.encode(" ", tokenizer::special_tokens::as_text, expected);
    if (around != expected) throw model_error(source + ": token \"" + token + "\" is no added token or takes spaces around it along");
    if (!text.is_special(*id)) spellable_.push_back(*id);
    return *id;
  };
  start_ = resolve("<|im_start|>");
  end_of_utterance_ = resolve("<end_of_utterance>");
  fake_ = resolve("<fake_token_around_image>");
  image_ = resolve("<image>");
  global_ = resolve("<global-img>");
  if (image_ != config.image_token_id) {
    throw model_error(source + ": token \"<image>\" has id " + std::to_string(image_) + ", but image_token_id of config.json is " +
                      std::to_string(config.image_token_id));
  }

  while (max_rows_ < max_side && text.find(row_col_token(max_rows_, 0))) ++max_rows_;
  while (max_rows_ > 0 && max_cols_ < max_side && text.find(row_col_token(0, max_cols_))) ++max_cols_;
  if (max_rows_ == 0 && config.preprocessing.do_image_splitting) static_cast<void>(resolve(row_col_token(0, 0)));  // throws
  for (std::int32_t r = 0; r < max_rows_; ++r) {
    for (std::int32_t c = 0; c < max_cols_; ++c) row_col_.push_back(resolve(row_col_token(r, c)));
  }
  std::sort(spellable_.begin(), spellable_.end());
}

idefics3_prompt_format::formatted idefics3_prompt_format::format(const std::vector<message>& messages,
                                                                 std::span<const image_grid> grids) const {
  std::size_t images = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].parts.empty()) throw invalid_argument("message " + std::to_string(i) + " has no parts, expected text or images");
    for (const message_part& part : messages[i].parts) images += static_cast<std::size_t>(std::holds_alternative<image_part>(part));
  }
  if (messages.empty()) throw invalid_argument("0 messages, expected at least 1");
  if (images != grids.size()) {
    throw invalid_argument(std::to_string(images) + " images in the messages, but " + std::to_string(grids.size()) + " tile grids");
  }
  for (const image_grid& g : grids) {
    const bool single = g.rows == 0 && g.cols == 0;
    if (!single && (g.rows < 1 || g.cols < 1 || g.rows > max_rows_ || g.cols > max_cols_)) {
      throw invalid_argument("a grid of " + std::to_string(g.rows) + " x " + std::to_string(g.cols) +
                             " tiles, expected 0 x 0 or, by the tokenizer, 1 x 1 to " + std::to_string(max_rows_) + " x " +
                             std::to_string(max_cols_));
    }
  }

  formatted out;
  prompt_writer writer(*text_, spellable_, out.tokens);
  const auto tile = [&](formatted::image_range& range, std::int32_t tag) {
    writer.control(fake_);
    writer.control(tag);
    range.tile_positions.push_back(writer.position());
    writer.repeat(image_, tokens_per_tile_);
  };
  const auto image = [&](image_grid grid) {
    formatted::image_range range;
    for (std::int32_t r = 0; r < grid.rows; ++r) {
      for (std::int32_t c = 0; c < grid.cols; ++c) tile(range, row_col_[static_cast<std::size_t>(r * max_cols_ + c)]);
      writer.text("\n");
    }
    if (grid.rows > 0) writer.text("\n");
    tile(range, global_);
    range.first_position = range.tile_positions.front();
    range.num_tokens = writer.position() - range.first_position;
    writer.control(fake_);
    out.images.push_back(std::move(range));
  };

  writer.control(start_);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const message& m = messages[i];
    writer.text(role_name(m, i));
    writer.text(std::holds_alternative<image_part>(m.parts.front()) ? ":" : ": ");
    for (const message_part& part : m.parts) {
      if (const auto* text = std::get_if<text_part>(&part)) {
        writer.text(text->text);
      } else {
        image(grids[out.images.size()]);
      }
    }
    writer.control(end_of_utterance_);
    writer.text("\n");
  }
  writer.text("Assistant:");
  writer.flush();
  return out;
}

}  // namespace vlbatch::inline v0
