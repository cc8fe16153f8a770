// SPDX-License-Identifier: Apache-2.0
// Pre-tokenisation: a chain of regular expressions that cut text into the pieces within which byte pairs are merged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vlbatch::inline v0::tokenizer_detail {

/// Bytes [begin, end) of a piece, and whether the pattern matched them.
struct text_range {
  std::size_t begin;
  std::size_t end;
  bool match;
};

/// A compiled pattern. Immutable and thread-safe; each thread brings its own `scratch`.
class pattern {
 public:
  struct scratch;
  struct scratch_deleter {
    void operator()(scratch* s) const noexcept;
  };

  /// Compiles \p oniguruma, written in the syntax that the `tokenizers` package takes (Oniguruma's Ruby syntax).
  /// \throws model_error the pattern is wrong or uses what has no equal meaning in PCRE2; the text begins with \p where
  pattern(std::string_view oniguruma, const std::string& where);

  /// A pattern that matches exactly \p text.
  [[nodiscard]] static pattern literal(std::string_view text, const std::string& where);

  [[nodiscard]] std::unique_ptr<scratch, scratch_deleter> make_scratch() const;

  /// Cuts \p text into matches and what lies between them, in order, into \p out. Empty matches are kept: they cut, too.
  /// \pre text is valid UTF-8. \throws model_error the match takes more steps than a limit allows
  void find_all(std::string_view text, scratch& s, std::vector<text_range>& out) const;

 private:
  struct compiled;
  std::shared_ptr<const compiled> code_;
};

/// What becomes of matches, named as in `tokenizer.json`.
enum class split_behaviour : std::uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// One pre-tokeniser.
struct split_step {
  std::shared_ptr<const pattern> regex;  ///< null: the piece stays whole
  split_behaviour behaviour = split_behaviour::isolated;
  bool invert = false;            ///< matches and gaps change roles
  bool add_prefix_space = false;  ///< a piece that does not begin with a space gets one, before the regex
};

/// Turns the matches and gaps of \p ranges into the pieces that \p behaviour asks for; those with `match` set are to be dropped.
void apply_behaviour(split_behaviour behaviour, bool invert, std::vector<text_range>& ranges);

/// The pattern of GPT-2's tokenizer, which `ByteLevel` uses. Source: openai/gpt-2, encoder.py.
inline constexpr std::string_view gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// True for Unicode's White_Space.
[[nodiscard]] bool is_white_space(char32_t c) noexcept;

}  // namespace vlbatch::inline v0::tokenizer_detail
