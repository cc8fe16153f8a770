// SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer_added.hpp"

#include <algorithm>

#include "io/tokenizer_split.hpp"

namespace vlbatch::inline v0::tokenizer_detail {
namespace {

// Length of the character that ends before \p end.
std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t n = 1;
  while (n < end && (static_cast<unsigned char>(text[end - n]) & 0xC0U) == 0x80U) ++n;
  return n;
}

bool is_word_character(std::string_view character) {
  // \w of Rust's regex crate: alphabetic characters, marks, decimal digits, connectors, joiners. Alphabetic is letters, letter numbers,
  // marks and the circled letters.
  static const pattern word(
      R"([\p{L}\p{M}\p{Nl}\p{Nd}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}])",
      "word characters");
  const auto scratch = word.make_scratch();
  std::vector<text_range> found;
  word.find_all(character, *scratch, found);
  return !found.empty() && found.front().match;
}

}  // namespace

std::pair<char32_t, std::size_t> character_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1FU) << 6U) | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {((lead & 0xFU) << 12U) | ((byte(1) & 0x3FU) << 6U) | (byte(2) & 0x3FU), 3};
  return {((lead & 0x7U) << 18U) | ((byte(1) & 0x3FU) << 12U) | ((byte(2) & 0x3FU) << 6U) | (byte(3) & 0x3FU), 4};
}

added_matcher::added_matcher(std::vector<added_token> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(), [](const added_token& a, const added_token& b) { return a.content < b.content; });
  for (const added_token& t : tokens_) first_bytes_[static_cast<unsigned char>(t.content.front())] = true;
}

// Narrows the range of tokens that agree with the text so far, a byte at a time. A token that ends here comes first in its range.
const added_token* added_matcher::longest_at(std::string_view text, std::size_t at) const {
  auto low = tokens_.begin();
  auto high = tokens_.end();
  const added_token* best = nullptr;
  for (std::size_t depth = 0; low != high && at + depth < text.size(); ++depth) {
    const auto c = static_cast<unsigned char>(text[at + depth]);
    const auto byte = [depth](const added_token& t) {
      return depth < t.content.size() ? static_cast<int>(static_cast<unsigned char>(t.content[depth])) : -1;
    };
    low = std::partition_point(low, high, [&](const added_token& t) { return byte(t) < c; });
    high = std::partition_point(low, high, [&](const added_token& t) { return byte(t) == c; });
    if (low != high && low->content.size() == depth + 1) best = &*low;
  }
  return best;
}

void added_matcher::split(std::string_view text, bool plain, std::vector<added_match>& out) const {
  out.clear();
  std::size_t done = 0;  // end of what is in `out`
  for (std::size_t at = 0; at < text.size();) {
    const added_token* t = first_bytes_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : nullptr;
    if (t == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + t->content.size();
    at = end;
    if (plain && t->special) continue;
    if (t->single_word) {
      const std::size_t before = begin == 0 ? 0 : character_before(text, begin);
      const bool touched_before = before != 0 && is_word_character(text.substr(begin - before, before));
      const bool touched_after = end != text.size() && is_word_character(text.substr(end, character_at(text, end).second));
      if (touched_before || touched_after) continue;
    }
    if (t->lstrip) {
      while (begin > done) {
        const std::size_t n = character_before(text, begin);
        if (begin - n < done || !is_white_space(character_at(text, begin - n).first)) break;
        begin -= n;
      }
    }
    if (t->rstrip) {
      while (end < text.size()) {
        const auto [c, n] = character_at(text, end);
        if (!is_white_space(c)) break;
        end += n;
      }
    }
    if (done < begin) out.push_back({done, begin, -1});
    out.push_back({begin, end, t->id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace vlbatch::inline v0::tokenizer_detail
