// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/core/utf8.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "support/files.hpp"

namespace {

using vlbatch::append_utf8_lossy;
using vlbatch::complete_utf8_prefix;
using vlbatch::is_valid_utf8;
using namespace std::string_view_literals;

std::string lossy(std::string_view bytes) {
  std::string out;
  append_utf8_lossy(out, bytes);
  return out;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

TEST(utf8, replaces_invalid_sequences_as_python_does) {
  const auto rows = vlbatch::testing::read_json(vlbatch::testing::golden_text("utf8.json"));
  ASSERT_GT(rows.size(), 500U);
  for (const auto& row : rows) {
    const std::string bytes = from_hex(row[0]);
    const std::string expected = row[1];
    EXPECT_EQ(lossy(bytes), expected) << row[0];
    EXPECT_EQ(is_valid_utf8(bytes), bytes == expected) << row[0];
  }
}

TEST(utf8, appends_to_what_is_there) {
  std::string out = "a";
  append_utf8_lossy(out,
                    "b\xFF"
                    "c");
  EXPECT_EQ(out,
            "ab\xEF\xBF\xBD"
            "c");
}

TEST(utf8, prefix_ends_before_what_may_become_a_character) {
  EXPECT_EQ(complete_utf8_prefix(""), 0U);
  EXPECT_EQ(complete_utf8_prefix("abc"), 3U);
  EXPECT_EQ(complete_utf8_prefix("a\xC3"), 1U);              // first of two
  EXPECT_EQ(complete_utf8_prefix("a\xC3\xA9"), 3U);          // both
  EXPECT_EQ(complete_utf8_prefix("\xF0\x9F\x99"), 0U);       // three of four
  EXPECT_EQ(complete_utf8_prefix("\xF0\x9F\x99\x82"), 4U);   // all four
  EXPECT_EQ(complete_utf8_prefix("a\x80"), 2U);              // continues nothing: already lost
  EXPECT_EQ(complete_utf8_prefix("a\x80\x80\x80\x80"), 5U);  // nor these
  EXPECT_EQ(complete_utf8_prefix("a\xC0"), 2U);              // never begins anything
  EXPECT_EQ(complete_utf8_prefix("a\xE0\x80"), 3U);          // overlong: lost whatever comes
  EXPECT_EQ(complete_utf8_prefix("a\xED\xA0"), 3U);          // a surrogate
  EXPECT_EQ(complete_utf8_prefix("a\xF4\x90"), 3U);          // beyond U+10FFFF
  EXPECT_EQ(complete_utf8_prefix("a\xE2\x82"), 1U);
  EXPECT_EQ(complete_utf8_prefix("\xC3\xC3"), 1U);
}

// What a stream shows piece by piece is what the whole decodes to, and a character is never shown before it is certain.
TEST(utf8, pieces_of_a_stream_give_the_whole) {
  std::mt19937 random(5);
  const std::string alphabet = "A\x80\x8F\x90\x9F\xA0\xBF\xC2\xC3\xE0\xE2\xED\xEF\xF0\xF1\xF4\xF5";
  for (int round = 0; round < 4000; ++round) {
    std::string bytes(random() % 12 + 1, '\0');
    for (char& c : bytes) c = alphabet[random() % alphabet.size()];
    std::string shown;
    std::string pending;
    for (const char c : bytes) {
      pending += c;
      const std::size_t whole = complete_utf8_prefix(pending);
      ASSERT_LE(pending.size() - whole, 3U);
      append_utf8_lossy(shown, std::string_view(pending).substr(0, whole));
      pending.erase(0, whole);
      ASSERT_EQ(lossy(bytes).substr(0, shown.size()), shown);
    }
    append_utf8_lossy(shown, pending);
    ASSERT_EQ(shown, lossy(bytes));
  }
}

// Whatever is held back really could become a character; whatever is not held back could not change any more.
TEST(utf8, holds_back_no_more_than_it_must) {
  std::mt19937 random(6);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 4 + 1, '\0');
    for (char& c : bytes) c = static_cast<char>(0x70U + random() % 0x90U);
    const std::size_t whole = complete_utf8_prefix(bytes);
    const std::string held = bytes.substr(whole);
    if (held.empty()) {
      // Any continuation leaves the decoded text as a prefix.
      for (const char* next : {"\x80", "\x80\x80", "\x80\x80\x80", "\xBF", "\xBF\xBF"}) {
        ASSERT_TRUE(lossy(bytes + next).starts_with(lossy(bytes)));
      }
    } else {
      bool possible = false;
      for (unsigned fill = 0x80; fill < 0xC0; ++fill) {
        std::string more = held;
        while (more.size() < 4 && !is_valid_utf8(more)) more += static_cast<char>(fill);
        possible = possible || is_valid_utf8(more);
      }
      ASSERT_TRUE(possible);
    }
  }
}

}  // namespace
