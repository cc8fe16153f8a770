// SPDX-License-Identifier: Apache-2.0
// Text of an answer while it grows.
#include "vlbatch/core/text_stream.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace vlbatch {
namespace {

using ::testing::ElementsAre;

struct outcome {
  std::vector<std::string> pieces;  // what became certain with each token, and at the end if that is not empty
  std::string text;
  bool stopped = false;
  friend bool operator==(const outcome&, const outcome&) = default;
};

// As the engine uses it: a token, a look at what is new; after a stop no further token; at the end of tokens the rest.
outcome stream(const std::vector<std::string>& tokens, std::vector<std::string> stops = {}) {
  text_stream s;
  s.set_stops(std::move(stops));
  outcome o;
  for (const std::string& t : tokens) {
    s.incoming() += t;
    o.stopped = s.advance();
    o.pieces.emplace_back(s.take_new());
    if (o.stopped) break;
  }
  if (!o.stopped) {
    o.stopped = s.finish();
    if (const std::string_view rest = s.take_new(); !rest.empty()) o.pieces.emplace_back(rest);
  }
  o.text = s.text();
  return o;
}

std::string joined(const outcome& o) {
  std::string all;
  for (const std::string& p : o.pieces) all += p;
  return all;
}

const std::string replacement = "\xEF\xBF\xBD";

TEST(text_stream, plain_text_passes_at_once) {
  const outcome o = stream({"Two", " ", "squares", "."});
  EXPECT_THAT(o.pieces, ElementsAre("Two", " ", "squares", "."));
  EXPECT_EQ(o.text, "Two squares.");
  EXPECT_FALSE(o.stopped);
}

TEST(text_stream, a_character_split_over_tokens_appears_when_it_is_whole) {
  EXPECT_THAT(stream({"a\xC3", "\xA9"}).pieces, ElementsAre("a", "\xC3\xA9"));                                       // U+00E9
  EXPECT_THAT(stream({"\xE2", "\x82", "\xAC!"}).pieces, ElementsAre("", "", "\xE2\x82\xAC!"));                       // U+20AC
  EXPECT_THAT(stream({"\xF0", "\x9F", "\x99", "\x82"}).pieces, ElementsAre("", "", "", "\xF0\x9F\x99\x82"));         // U+1F642
  EXPECT_THAT(stream({"x\xF0\x9F", "\x99\x82\xE2\x82"}).pieces, ElementsAre("x", "\xF0\x9F\x99\x82", replacement));  // ends inside one
}

TEST(text_stream, invalid_bytes_become_replacement_characters_as_soon_as_it_is_certain) {
  EXPECT_THAT(stream({"\xE2", "\x27"}).pieces, ElementsAre("", replacement + "'"));
  EXPECT_THAT(stream({"\xE2\x82", "\x27"}).pieces, ElementsAre("", replacement + "'")) << "a maximal subpart is one character";
  EXPECT_THAT(stream({"\xFF"}).pieces, ElementsAre(replacement));
  EXPECT_THAT(stream({"\x80\x80"}).pieces, ElementsAre(replacement + replacement));
  EXPECT_THAT(stream({"\xC0\xAF"}).pieces, ElementsAre(replacement + replacement)) << "overlong";
  EXPECT_THAT(stream({"\xED", "\xA0", "\x80"}).pieces, ElementsAre("", replacement + replacement, replacement)) << "surrogate";
  EXPECT_EQ(stream({"ok\xE2\x82"}).text, "ok" + replacement) << "cut off by the end";
}

TEST(text_stream, held_back_text_is_delivered_at_the_end) {
  const outcome o = stream({"ple", "as"}, {"assistant"});
  EXPECT_THAT(o.pieces, ElementsAre("ple", "", "as"));
  EXPECT_EQ(o.text, "pleas");
  EXPECT_FALSE(o.stopped);
  EXPECT_EQ(stream({"ple", "as", "e"}, {"assistant"}).pieces, (std::vector<std::string>{"ple", "", "ase"}));
}

TEST(text_stream, the_answer_ends_before_a_stop_string_wherever_tokens_are_cut) {
  const std::string whole = "one two END three";
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    const outcome o = stream({whole.substr(0, cut), whole.substr(cut)}, {"END"});
    EXPECT_EQ(o.text, "one two ") << cut;
    EXPECT_EQ(joined(o), o.text) << cut;
    EXPECT_TRUE(o.stopped) << cut;
  }
  std::vector<std::string> bytes;
  for (const char c : whole) bytes.emplace_back(1, c);
  EXPECT_EQ(stream(bytes, {"END"}).text, "one two ");
  EXPECT_EQ(stream(bytes, {"END"}).pieces.size(), 11U) << "no token after the one that completes it";
}

TEST(text_stream, a_stop_string_at_the_very_beginning_leaves_nothing) {
  const outcome o = stream({"st", "op"}, {"stop"});
  EXPECT_EQ(o.text, "");
  EXPECT_TRUE(o.stopped);
  EXPECT_EQ(joined(o), "");
}

TEST(text_stream, the_earliest_of_several_stop_strings_counts) {
  EXPECT_EQ(stream({"abcde"}, {"de", "bc"}).text, "a");
  EXPECT_EQ(stream({"abcde"}, {"cd", "bcde"}).text, "a") << "the longer one begins earlier";
  EXPECT_EQ(stream({"abc"}, {"abc", "ab"}).text, "");
  // Token by token "bc" is certain before "abcd" can be: nobody waits for a stop once another one is met.
  const outcome o = stream({"a", "b", "c", "d"}, {"abcd", "bc"});
  EXPECT_EQ(o.text, "a");
  EXPECT_TRUE(o.stopped);
}

TEST(text_stream, a_false_start_inside_a_stop_string_does_not_hide_the_true_one) {
  EXPECT_EQ(stream({"a", "a", "a", "b"}, {"aab"}).text, "a");
  EXPECT_THAT(stream({"a", "a", "a", "b"}, {"aab"}).pieces, ElementsAre("", "", "a", ""));
  EXPECT_EQ(stream({"x</", "</s>", "y"}, {"</s>"}).text, "x</");
  EXPECT_EQ(stream({"abab", "abc"}, {"ababc"}).text, "ab");
}

TEST(text_stream, stop_strings_of_several_bytes_a_character_and_empty_ones) {
  EXPECT_EQ(stream({"caf\xC3", "\xA9 noir"}, {"\xC3\xA9"}).text, "caf");
  EXPECT_EQ(stream({"abc"}, {""}).text, "abc");
  EXPECT_FALSE(stream({"abc"}, {""}).stopped);
  // Bytes that are no character decode to U+FFFD, and so does the end of a stream: that may complete a stop string.
  const outcome o = stream({"ok\xE2"}, {replacement});
  EXPECT_EQ(o.text, "ok");
  EXPECT_TRUE(o.stopped);
}

TEST(text_stream, tokens_without_bytes_change_nothing) {
  EXPECT_EQ(stream({"", "a", "", "\xC3", "", "\xA9", ""}).text, "a\xC3\xA9");
  EXPECT_EQ(stream({}).text, "");
  EXPECT_EQ(stream({"", ""}, {"x"}).pieces, (std::vector<std::string>{"", ""}));
}

// What Python's bytes.decode(errors="replace") makes of the whole, cut at the first stop string of it.
std::string expected_text(const std::string& bytes, const std::vector<std::string>& stops) {
  std::string all;
  append_utf8_lossy(all, bytes);
  std::size_t first = all.size();
  for (const std::string& s : stops) first = std::min(first, all.find(s));
  return all.substr(0, first);
}

TEST(text_stream, random_bytes_and_cuts_give_what_the_whole_gives) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const std::vector<std::string> atoms = {"a",    "b",    "ab", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x99\x82", "\xE2", "\x82", "\xF0\x9F",
                                          "\xFF", "\x80", "'",  " "};
  const std::vector<std::vector<std::string>> stop_sets = {
      {}, {"ab"}, {"aab", "ba"}, {"\xE2\x82\xAC", "bb"}, {replacement + "a"}, {"abab", "b\xC3\xA9"}};
  int stopped = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string whole;
    for (std::size_t n = below(30); n > 0; --n) whole += atoms[below(atoms.size())];
    std::vector<std::string> tokens;
    for (std::size_t at = 0; at < whole.size();) {
      const std::size_t n = below(4);
      tokens.push_back(whole.substr(at, n));
      at += n;
    }
    const auto& stops = stop_sets[below(stop_sets.size())];
    const outcome o = stream(tokens, stops);
    ASSERT_EQ(joined(o), o.text) << i;
    ASSERT_TRUE(is_valid_utf8(o.text)) << i;
    for (const std::string& p : o.pieces) ASSERT_TRUE(is_valid_utf8(p)) << i;
    stopped += o.stopped ? 1 : 0;
    if (stops.size() <= 1) {  // with several, the one that ends first may win over one that begins first: that depends on the cuts
      ASSERT_EQ(o.text, expected_text(whole, stops)) << i;
    } else if (o.stopped) {
      ASSERT_TRUE(expected_text(whole, {}).starts_with(o.text)) << i;
      ASSERT_EQ(o.text, expected_text(o.text, stops)) << i;
    } else {
      ASSERT_EQ(o.text, expected_text(whole, stops)) << i;
    }
  }
  EXPECT_GT(stopped, 500);
}

}  // namespace
}  // namespace vlbatch
