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
  void set_stops(std::vector<std::string> stops) {
    stops_ = std::move(stops);
    std::erase(stops_, std::string{});
  }
  /// Keeps \p bytes of memory ready, so that a steady step allocates nothing.
  void reserve(std::size_t bytes) { text_.reserve(bytes), pending_.reserve(64); }

  /// Bytes of the next token go here; then call advance().
  [[nodiscard]] std::string& incoming() noexcept { return pending_; }
  /// Takes in what was appended to incoming(). \return true if a stop string was met: the answer ends before it
  bool advance() {
    const std::size_t whole = complete_utf8_prefix(pending_);
    append_utf8_lossy(text_, std::string_view(pending_).substr(0, whole));
    pending_.erase(0, whole);
    return release_certain();
  }
  /// No more bytes come: what was held back is text after all. \return true if that completed a stop string
  bool finish() {
    append_utf8_lossy(text_, pending_);
    pending_.clear();
    if (release_certain()) return true;
    certain_ = text_.size();
    return false;
  }
  /// Text that became certain since the last call. Valid until the next call of a member that is not const.
  [[nodiscard]] std::string_view take_new() noexcept {
    const std::string_view fresh = std::string_view(text_).substr(taken_, certain_ - taken_);
    taken_ = certain_;
    return fresh;
  }
  /// The whole text; complete after finish() or a stop.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Moves the text out.
  [[nodiscard]] std::string release() noexcept { return std::move(text_); }

 private:
  // Looks for stop strings in what is not certain yet and decides how much of it is.
  bool release_certain() {
    if (stops_.empty()) {
      certain_ = text_.size();
      return false;
    }
    std::size_t first = std::string::npos;
    for (const std::string& s : stops_) first = std::min(first, text_.find(s, certain_));
    if (first != std::string::npos) {
      text_.resize(first);
      certain_ = first;
      return true;
    }
    std::size_t held = 0;  // longest end of the text that begins a stop string
    for (const std::string& s : stops_) {
      const std::string_view open = std::string_view(text_).substr(certain_);
      for (std::size_t n = std::min(open.size(), s.size() - 1); n > held; --n) {
        if (open.substr(open.size() - n) == std::string_view(s).substr(0, n)) held = n;
      }
    }
    certain_ = text_.size() - held;
    return false;
  }

  std::vector<std::string> stops_;
  std::string pending_;      // bytes of a character that is not complete
  std::string text_;         // everything decoded
  std::size_t certain_ = 0;  // prefix of text_ that no stop string can take back
  std::size_t taken_ = 0;    // prefix of text_ that take_new() handed out
};

}  // namespace vlbatch::inline v0
