// SPDX-License-Identifier: Apache-2.0
/// \file
/// UTF-8 from a stream of bytes: where it may be cut, and what invalid bytes become.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace vlbatch::inline v0 {

namespace detail {

/// What stands at the beginning of some bytes.
struct utf8_step {
  std::size_t length;  ///< bytes it takes, >= 1; of an invalid sequence its maximal subpart, which becomes one U+FFFD
  bool valid;          ///< a whole, valid sequence
  bool cut;            ///< not whole, but further bytes could make it so
};

/// Reads one sequence at the beginning of \p s, which is not empty. Well-formed sequences: table 3-7 of the Unicode standard; maximal
/// subparts: its recommended practice of replacement, which Python's decoder follows.
[[nodiscard]] constexpr utf8_step utf8_next(std::string_view s) noexcept {
  const auto byte = [s](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte has bounds that depend on the first: no overlong forms, no surrogates, nothing above U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == s.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true, false};
}

}  // namespace detail

/// Length of the longest prefix of \p bytes that does not end inside a sequence which further bytes could still make valid: at most 3 bytes
/// shorter than \p bytes. Decoding such prefixes one after another gives what decoding the whole gives.
[[nodiscard]] constexpr std::size_t complete_utf8_prefix(std::string_view bytes) noexcept {
  // Only one of the last three bytes can be the lead of an unfinished sequence, and a lead byte always begins a new one.
  for (std::size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
    const std::size_t at = bytes.size() - back;
    if ((static_cast<unsigned char>(bytes[at]) & 0xC0U) == 0x80U) continue;
    return detail::utf8_next(bytes.substr(at)).cut ? at : bytes.size();
  }
  return bytes.size();
}

/// True if \p bytes is well-formed UTF-8.
[[nodiscard]] constexpr bool is_valid_utf8(std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const detail::utf8_step step = detail::utf8_next(bytes);
    if (!step.valid) return false;
    bytes.remove_prefix(step.length);
  }
  return true;
}

/// Appends \p bytes to \p out with each invalid sequence replaced by U+FFFD, as Python's `bytes.decode(errors="replace")` does.
void append_utf8_lossy(std::string& out, std::string_view bytes);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/utf8-inl.hpp"
#endif
