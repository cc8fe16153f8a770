// SPDX-License-Identifier: Apache-2.0
/// \file
/// Byte-level BPE tokenizer from a Hugging Face `tokenizer.json`. Defined in the compiled library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vlbatch::inline v0 {

/// Immutable tokenizer; every member function is const and thread-safe.
class tokenizer {
 public:
  /// What to do with text that spells a special token.
  enum class special_tokens : std::uint8_t {
    as_text,  ///< plain text: user input can never become a control token
    parse     ///< recognised as the token, as the `tokenizers` package does
  };

  /// Reads `tokenizer.json`. \throws file_error missing or malformed, naming file and key; model_error a kind of component that is not
  /// supported, by name
  [[nodiscard]] static tokenizer load(const std::string& path);

  tokenizer(tokenizer&&) noexcept;
  tokenizer& operator=(tokenizer&&) noexcept;
  ~tokenizer();

  /// Appends the ids of \p text to \p out. Any byte sequence is accepted (invalid UTF-8 is replaced by U+FFFD first, as Python does when it
  /// decodes).
  void encode(std::string_view text, special_tokens mode, std::vector<std::int32_t>& out) const;
  /// Ids of \p text.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, special_tokens mode = special_tokens::as_text) const;

  /// Bytes that token \p id stands for (may be part of a UTF-8 sequence). Empty for an id outside the vocabulary.
  [[nodiscard]] std::string_view bytes_of(std::int32_t id) const noexcept;
  /// True if \p id is a special token (not shown to the user).
  [[nodiscard]] bool is_special(std::int32_t id) const noexcept;
  /// Id of the token spelled exactly \p token, special ones included.
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;
  /// Text of \p ids; invalid UTF-8 becomes U+FFFD. Special tokens are left out unless \p keep_special.
  [[nodiscard]] std::string decode(const std::vector<std::int32_t>& ids, bool keep_special = false) const;
  /// Highest id + 1.
  [[nodiscard]] std::int32_t vocab_size() const noexcept;

 private:
  struct impl;
  explicit tokenizer(std::unique_ptr<impl> p) noexcept;
  std::unique_ptr<impl> impl_;
};

}  // namespace vlbatch::inline v0
