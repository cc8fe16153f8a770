// SPDX-License-Identifier: Apache-2.0
// Added tokens: strings that are found in the text before anything else and become one token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vlbatch::inline v0::tokenizer_detail {

/// As in `added_tokens` of `tokenizer.json`.
struct added_token {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< takes the white space before it along
  bool rstrip = false;       ///< takes the white space after it along
  bool normalized = false;   ///< found in normalised text
  bool special = false;      ///< control token
};

/// Bytes [begin, end) and the token they are, or -1 for text between tokens.
struct added_match {
  std::size_t begin;
  std::size_t end;
  std::int32_t id;
};

/// Finds tokens in a text, leftmost first and the longest of those that begin there. Immutable; thread-safe.
class added_matcher {
 public:
  added_matcher() = default;
  explicit added_matcher(std::vector<added_token> tokens);

  /// Cuts the valid UTF-8 \p text into tokens and the text between them. With \p plain special tokens are found, but stay text; what
  /// overlaps them stays text, too, as in the `tokenizers` package with `encode_special_tokens`.
  void split(std::string_view text, bool plain, std::vector<added_match>& out) const;

 private:
  [[nodiscard]] const added_token* longest_at(std::string_view text, std::size_t at) const;

  std::vector<added_token> tokens_;  // sorted by content
  std::vector<bool> first_bytes_ = std::vector<bool>(256, false);
};

/// Character at byte \p at of valid UTF-8, and its length in bytes.
[[nodiscard]] std::pair<char32_t, std::size_t> character_at(std::string_view text, std::size_t at) noexcept;

}  // namespace vlbatch::inline v0::tokenizer_detail
