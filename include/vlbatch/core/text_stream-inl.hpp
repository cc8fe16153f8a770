// SPDX-License-Identifier: Apache-2.0
// Definitions of text_stream.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/text_stream.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE void text_stream::set_stops(std::vector<std::string> stops) {
  stops_ = std::move(stops);
  std::erase(stops_, std::string{});
}

VLBATCH_INLINE bool text_stream::advance() {
  const std::size_t whole = complete_utf8_prefix(pending_);
  append_utf8_lossy(text_, std::string_view(pending_).substr(0, whole));
  pending_.erase(0, whole);
  return release_certain();
}

VLBATCH_INLINE bool text_stream::finish() {
  append_utf8_lossy(text_, pending_);
  pending_.clear();
  if (release_certain()) return true;
  certain_ = text_.size();
  return false;
}

VLBATCH_INLINE std::string_view text_stream::take_new() noexcept {
  const std::string_view fresh = std::string_view(text_).substr(taken_, certain_ - taken_);
  taken_ = certain_;
  return fresh;
}

VLBATCH_INLINE bool text_stream::release_certain() {
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

}  // namespace vlbatch::inline v0
