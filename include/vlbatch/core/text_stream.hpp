// SPDX-License-Identifier: Apache-2.0
/// \file
/// Text of an answer while it grows: whole characters only, and never past a stop string.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/core/utf8.hpp"

namespace vlbatch::inline v0 {

/// Turns the bytes of tokens into text that can be shown. Bytes that may be the beginning of a character, and text that may be the
/// beginning of a stop string, are held back until it is certain; nothing is ever lost or taken back. Pieces put together equal the whole.
class text_stream {
 public:
  /// The answer ends before the first occurrence of any of \p stops. Empty strings are ignored.
  void set_stops(std::vector<std::string> stops);
  /// Keeps \p bytes of memory ready, so that a steady step allocates nothing.
  void reserve(std::size_t bytes) { text_.reserve(bytes), pending_.reserve(64); }

  /// Bytes of the next token go here; then call advance().
  [[nodiscard]] std::string& incoming() noexcept { return pending_; }
  /// Takes in what was appended to incoming(). \return true if a stop string was met: the answer ends before it
  bool advance();
  /// No more bytes come: what was held back is text after all. \return true if that completed a stop string
  bool finish();
  /// Text that became certain since the last call. Valid until the next call of a member that is not const.
  [[nodiscard]] std::string_view take_new() noexcept;
  /// The whole text; complete after finish() or a stop.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Moves the text out.
  [[nodiscard]] std::string release() noexcept { return std::move(text_); }

 private:
  // Looks for stop strings in what is not certain yet and decides how much of it is.
  bool release_certain();

  std::vector<std::string> stops_;
  std::string pending_;      // bytes of a character that is not complete
  std::string text_;         // everything decoded
  std::size_t certain_ = 0;  // prefix of text_ that no stop string can take back
  std::size_t taken_ = 0;    // prefix of text_ that take_new() handed out
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/text_stream-inl.hpp"
#endif
