// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/io/tokenizer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <thread>

#include "tokenizer_support.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/core/utf8.hpp"

namespace {

using namespace vlbatch;
using vlbatch::testing::error_of;
using vlbatch::testing::golden_text;
using vlbatch::testing::read_file;
using vlbatch::testing::read_json;
using vlbatch::testing::temporary_folder;
using ids = std::vector<std::int32_t>;
using mode = tokenizer::special_tokens;
using nlohmann::json;

const json& trained() { return vlbatch::testing::trained_tokenizer(); }

tokenizer load_json(const json& j) { return vlbatch::testing::load_tokenizer(j); }

TEST(tokenizer, agrees_with_the_tokenizers_package) {
  const json golden = read_json(golden_text("tokenizer_cases.json"));
  std::size_t strings = 0;
  for (const json& c : golden["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    json changed = trained();
    changed.merge_patch(c["patch"]);
    const tokenizer t = load_json(changed);
    for (const json& row : c["rows"]) {
      const std::string text = row["text"];
      const ids parse = row["parse"];
      EXPECT_EQ(t.encode(text, mode::parse), parse) << row["text"];
      EXPECT_EQ(t.encode(text), row.value("as_text", parse)) << row["text"];
      EXPECT_EQ(t.decode(parse, true), row.value("decoded", text)) << row["text"];
      EXPECT_EQ(t.decode(parse), row.value("shown", text)) << row["text"];
      ++strings;
    }
  }
  EXPECT_GT(strings, 900U);
}

TEST(tokenizer, decodes_like_the_tokenizers_package) {
  const tokenizer t = load_json(trained());
  const json cases = read_json(golden_text("tokenizer_cases.json"));
  for (const json& row : cases["decode"]) {
    const ids tokens = row["ids"];
    EXPECT_EQ(t.decode(tokens, true), row["decoded"].get<std::string>()) << row["ids"];
    EXPECT_EQ(t.decode(tokens), row["shown"].get<std::string>()) << row["ids"];
    // Bytes one after another are the same text.
    std::string bytes;
    for (const std::int32_t id : tokens) bytes += t.bytes_of(id);
    std::string text;
    append_utf8_lossy(text, bytes);
    EXPECT_EQ(text, row["decoded"].get<std::string>());
  }
}

// The vocabulary and merges of GPT-2, and a text with ids that the original made.
TEST(tokenizer, gives_the_ids_of_gpt2) {
  VLBATCH_SAMPLE_OR_SKIP(folder, "gpt2-tokenizer");
  const tokenizer t = load_json(vlbatch::testing::gpt2_tokenizer(folder));
  EXPECT_EQ(t.vocab_size(), 50257);
  const std::string text = read_file(folder + "/monty-python-credits.txt");
  const ids expected = read_json(folder + "/monty-python-credits-gpt2.json")["token_ids"];
  EXPECT_EQ(t.encode(text), expected);
  EXPECT_EQ(t.decode(expected), text);
}

TEST(tokenizer, text_never_becomes_a_special_token) {
  const tokenizer t = load_json(trained());
  std::vector<std::string> special;
  for (const json& a : trained()["added_tokens"]) special.push_back(a["content"]);
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 6; ++i) {
      std::string piece = special[random() % special.size()];
      if (random() % 3 == 0) piece.resize(random() % piece.size());
      text += piece;
    }
    const ids got = t.encode(text);
    EXPECT_TRUE(std::none_of(got.begin(), got.end(), [&](std::int32_t id) { return t.is_special(id); })) << text;
    EXPECT_EQ(t.decode(got), text);
    if (std::string_view(text).find("<image>") != std::string_view::npos) {
      const ids parsed = t.encode(text, mode::parse);
      EXPECT_NE(std::find(parsed.begin(), parsed.end(), t.find("<image>").value()), parsed.end()) << text;
    }
  }
}

// Where merging bytes, or looking up a whole piece, would arrive at a special token.
TEST(tokenizer, merges_do_not_make_special_tokens_of_text) {
  for (const bool whole : {false, true}) {
    json j = trained();
    j["added_tokens"] = json::array();
    j["model"]["vocab"]["zq"] = j["model"]["vocab"].size();
    j["model"]["vocab"]["zqz"] = j["model"]["vocab"].size();
    j["model"]["merges"].push_back({"z", "q"});
    j["model"]["merges"].push_back({"zq", "z"});
    j["model"]["ignore_merges"] = whole;
    const std::int32_t zq = j["model"]["vocab"]["zq"];
    const std::int32_t zqz = j["model"]["vocab"]["zqz"];
    const std::int32_t z = j["model"]["vocab"]["z"];
    const std::int32_t q = j["model"]["vocab"]["q"];
    EXPECT_EQ(load_json(j).encode("zqz"), ids{zqz});
    EXPECT_EQ(load_json(j).encode("zq"), ids{zq});
    j["added_tokens"].push_back({{"id", zq}, {"content", "zq"}, {"special", true}, {"normalized", false}});
    const tokenizer t = load_json(j);
    EXPECT_EQ(t.encode("zq"), (ids{z, q}));
    EXPECT_EQ(t.encode("zq", mode::parse), ids{zq});
    EXPECT_EQ(t.encode(std::string(100, 'z') + "q"), [&] {
      ids expected(100, z);
      expected.push_back(q);
      return expected;
    }());
  }
}

TEST(tokenizer, accepts_any_bytes) {
  const tokenizer t = load_json(trained());
  EXPECT_EQ(t.encode("a\xFF\xC3(b"), t.encode("a\xEF\xBF\xBD\xEF\xBF\xBD(b"));
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    std::string valid;
    append_utf8_lossy(valid, bytes);
    EXPECT_EQ(t.decode(t.encode(bytes)), valid);
    EXPECT_EQ(t.encode(bytes), t.encode(valid));
  }
}

// Long pieces are merged by another algorithm than short ones; a piece of repeated text shows whether both choose the same merges.
TEST(tokenizer, long_pieces_merge_like_short_ones) {
  json j = trained();
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}, {"trim_offsets", true}};
  const tokenizer t = load_json(j);
  // Merges in order, each wherever it applies from the left: the definition of the method.
  const auto plain = [&](const std::string& text) {
    std::vector<std::string> symbols;
    for (const char c : text) symbols.emplace_back(c == ' ' ? "\xC4\xA0" : std::string(1, c));
    for (const json& m : j["model"]["merges"]) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != m[0] || symbols[i + 1] != m[1]) continue;
        symbols[i] += symbols[i + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    ids out;
    for (const std::string& s : symbols) out.push_back(j["model"]["vocab"][s]);
    return out;
  };
  std::mt19937 random(12);
  const std::string words[] = {"the ", "circle", " is ", "re", "d. ", "square", "s and ", "e", "t", " ", "in"};
  for (int round = 0; round < 60; ++round) {
    std::string text;
    while (text.size() < 20U + static_cast<unsigned>(round) * 4U) text += words[random() % std::size(words)];
    EXPECT_EQ(t.encode(text), plain(text)) << text;
  }
}

TEST(tokenizer, huge_pieces_take_time_in_proportion) {
  json j = trained();
  const tokenizer cut = load_json(j);
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}, {"trim_offsets", true}};
  const tokenizer whole = load_json(j);
  // A quadratic method would need hours for these.
  for (const std::string& text :
       {std::string(1U << 20U, 'a'), std::string(1U << 20U, ' '), std::string(1U << 20U, '\n'), std::string(1U << 20U, '7')}) {
    EXPECT_EQ(cut.decode(cut.encode(text)), text);
    EXPECT_EQ(whole.decode(whole.encode(text)), text);
  }
}

TEST(tokenizer, lookups) {
  const tokenizer t = load_json(trained());
  const std::int32_t image = t.find("<image>").value();
  EXPECT_TRUE(t.is_special(image));
  EXPECT_EQ(t.bytes_of(image), "<image>");
  EXPECT_FALSE(t.is_special(t.find("a").value()));
  EXPECT_EQ(t.bytes_of(t.find("\xC4\xA0").value()), " ");  // U+0120 stands for a space
  EXPECT_FALSE(t.find("no such token").has_value());
  EXPECT_EQ(t.vocab_size(), static_cast<std::int32_t>(trained()["model"]["vocab"].size() + trained()["added_tokens"].size() - 3));
  for (const std::int32_t id : {-1, t.vocab_size(), 0x7FFFFFFF, -0x7FFFFFFF}) {
    EXPECT_EQ(t.bytes_of(id), "");
    EXPECT_FALSE(t.is_special(id));
    EXPECT_EQ(t.decode({id}), "");
  }
  // encode appends.
  ids out{-5};
  t.encode("a", mode::as_text, out);
  EXPECT_EQ(out, (ids{-5, t.find("a").value()}));
}

TEST(tokenizer, one_object_serves_many_threads) {
  const tokenizer t = load_json(trained());
  const std::string text = "How many squares are in the picture? <image> 123 \xE6\x97\xA5\xE6\x9C\xAC";
  const ids expected = t.encode(text, mode::parse);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t k = 0; k < wrong.size(); ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < 200; ++i) wrong[k] += t.encode(text, mode::parse) == expected ? 0 : 1;
    });
  }
  for (std::thread& th : threads) th.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

// Bytes without a token: left out without unk_token; with one, a token each or one for all neighbours. As the `tokenizers` package.
TEST(tokenizer, bytes_without_a_token) {
  json j = trained();
  j["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}};
  j["model"]["merges"] = {"a b"};
  j["added_tokens"] = json::array();
  j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}, {"trim_offsets", true}};
  EXPECT_EQ(load_json(j).encode("xxaxbxxab"), (ids{2, 2}));
  j["model"]["unk_token"] = "<unk>";
  EXPECT_EQ(load_json(j).encode("xxaxbxxab"), (ids{3, 3, 0, 3, 1, 3, 3, 2}));
  j["model"]["fuse_unk"] = true;
  EXPECT_EQ(load_json(j).encode("xxaxbxxab"), (ids{3, 0, 3, 1, 3, 2}));
}

std::string unsupported(const std::function<void(json&)>& change);

// The unknown token of older files is their end token: text must not write it.
TEST(tokenizer, text_without_a_token_does_not_become_a_special_one) {
  const auto with_special_unknown = [](json& j) {
    j["model"]["vocab"] = {{"a", 0}, {"<end>", 1}};
    j["model"]["merges"] = json::array();
    j["added_tokens"] = {{{"id", 1}, {"content", "<end>"}, {"special", true}, {"normalized", false}}};
    j["model"]["unk_token"] = "<end>";
  };
  EXPECT_EQ(unsupported(with_special_unknown),
            "model.unk_token: special token \"<end>\" also stands for bytes of text without a token, which is not supported");
  // With a token for every byte it is never needed.
  json j = trained();
  j["model"]["unk_token"] = j["added_tokens"][0]["content"];
  const tokenizer t = load_json(j);
  for (const std::int32_t id : t.encode("any \xFF text")) EXPECT_FALSE(t.is_special(id));
}

std::string unsupported(const std::function<void(json&)>& change) {
  json j = trained();
  change(j);
  const temporary_folder folder;
  const std::string path = folder.write("tokenizer.json", j);
  std::string text = error_of<model_error>([&] { static_cast<void>(tokenizer::load(path)); });
  EXPECT_TRUE(text.starts_with(path + ": ")) << text;
  return text.substr(std::min(text.size(), path.size() + 2));
}

TEST(tokenizer, names_kinds_that_are_not_supported) {
  EXPECT_EQ(unsupported([](json& j) { j["model"]["type"] = "Unigram"; }), "model: kind \"Unigram\" is not supported");
  EXPECT_EQ(unsupported([](json& j) { j["normalizer"] = {{"type", "NFC"}}; }), "normalizer: kind \"NFC\" is not supported");
  EXPECT_EQ(unsupported([](json& j) {
              j["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "_"}}}}};
            }),
            "normalizer.normalizers[0]: kind \"Prepend\" is not supported");
  EXPECT_EQ(unsupported([](json& j) {
              j["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Punctuation"}, {"behavior", "Contiguous"}};
            }),
            "pre_tokenizer.pretokenizers[0]: kind \"Punctuation\" is not supported");
  EXPECT_EQ(unsupported([](json& j) {
              j["pre_tokenizer"]["pretokenizers"].push_back({{"type", "Digits"}});
            }),
            "pre_tokenizer.pretokenizers[2]: kind \"Digits\" after \"ByteLevel\" is not supported");
  EXPECT_NE(unsupported([](json& j) { j["pre_tokenizer"] = nullptr; }).find("ByteLevel"), std::string::npos);
  EXPECT_EQ(unsupported([](json& j) { j["decoder"] = {{"type", "WordPiece"}}; }), "decoder: kind \"WordPiece\" is not supported");
  EXPECT_NE(unsupported([](json& j) { j["decoder"] = nullptr; }).find("decoder"), std::string::npos);
  EXPECT_EQ(unsupported([](json& j) { j["post_processor"] = {{"type", "Fancy"}}; }), "post_processor: kind \"Fancy\" is not supported");
  EXPECT_EQ(unsupported([](json& j) { j["model"]["continuing_subword_prefix"] = "##"; }),
            "model.continuing_subword_prefix: \"##\" is not supported");
  EXPECT_EQ(unsupported([](json& j) { j["model"]["dropout"] = 0.5; }), "model.dropout: a value other than 0 is not supported");
  EXPECT_NE(unsupported([](json& j) {
              j["model"]["byte_fallback"] = true;
              j["model"]["vocab"].erase("!");
              j["model"]["merges"] = json::array();
              for (auto it = j["model"]["vocab"].begin(); it != j["model"]["vocab"].end();)
                it = it.key().size() > 2 ? j["model"]["vocab"].erase(it) : std::next(it);
              j["added_tokens"] = json::array();
            }).find("byte_fallback"),
            std::string::npos);
  EXPECT_NE(unsupported([](json& j) {
              j["added_tokens"].push_back({{"id", j["model"]["vocab"]["!"]}, {"content", "!"}, {"special", true}});
            }).find("special token \"!\" is also that of a byte of text"),
            std::string::npos);
  const auto regex = [](const char* pattern) {
    return unsupported([&](json& j) {
      j["pre_tokenizer"]["pretokenizers"][0] = {
          {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    });
  };
  // What would mean something else, or nothing, to the regular expressions used here.
  for (const char* pattern : {R"(\bword)", R"([a&&b])", R"([[:alpha:]])", R"((?<n>a))", R"(\X)", R"(\K)", R"(\G)", R"(a{2}+)", R"((?#x))",
                              R"(\pL)", R"(\p{Grapheme_Base!})", R"([\W])", R"((*FAIL))", "\\", R"((?m:.))", R"(\1)"}) {
    EXPECT_NE(regex(pattern).find("pre_tokenizer.pretokenizers[0]: pattern"), std::string::npos) << pattern;
  }
  EXPECT_NE(regex("(a").find("is not a regular expression"), std::string::npos);
  EXPECT_NE(regex("[z-a]").find("is not a regular expression"), std::string::npos);
  EXPECT_NE(regex(R"(\p{Nonsense})").find("is not a regular expression"), std::string::npos);
  EXPECT_EQ(unsupported([](json& j) {
              j["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Split"}, {"pattern", {{"String", "x"}}}, {"behavior", "Sideways"}};
            }),
            "pre_tokenizer.pretokenizers[0].behavior: \"Sideways\" is not supported");
}

std::string malformed(const std::function<void(json&)>& change) {
  json j = trained();
  change(j);
  const temporary_folder folder;
  const std::string path = folder.write("tokenizer.json", j);
  std::string text = error_of<file_error>([&] { static_cast<void>(tokenizer::load(path)); });
  EXPECT_TRUE(text.starts_with(path + ": ")) << text;
  return text.substr(std::min(text.size(), path.size() + 2));
}

TEST(tokenizer, names_what_is_wrong_in_a_file) {
  EXPECT_EQ(malformed([](json& j) { j = json::array(); }), "the file is an array of 0, expected an object");
  EXPECT_EQ(malformed([](json& j) { j.erase("model"); }), "missing key model");
  EXPECT_EQ(malformed([](json& j) { j["model"].erase("vocab"); }), "missing key model.vocab");
  EXPECT_EQ(malformed([](json& j) { j["model"].erase("merges"); }), "missing key model.merges");
  EXPECT_EQ(malformed([](json& j) { j["model"]["vocab"] = json::array(); }), "model.vocab is an array of 0, expected an object");
  EXPECT_EQ(malformed([](json& j) { j["model"]["vocab"]["a"] = "x"; }), "model.vocab: id of token \"a\" is \"x\", expected an integer");
  EXPECT_EQ(malformed([](json& j) { j["model"]["vocab"]["a"] = -1; }), "model.vocab is -1, expected an integer from 0 to 16777215");
  EXPECT_EQ(malformed([](json& j) { j["model"]["vocab"]["a"] = 4000000000U; }),
            "model.vocab is 4000000000, expected an integer from 0 to 16777215");
  // Memory in proportion to the file, whatever number it names; holes as such are no fault.
  for (const char* where : {"vocab", "added"}) {
    EXPECT_EQ(malformed([&](json& j) {
                j["model"]["vocab"] = {{"a", 0}, {"b", 1}};
                j["model"]["merges"] = json::array();
                j["added_tokens"] = json::array();
                if (where == std::string("vocab")) {
                  j["model"]["vocab"]["c"] = 16777215;
                } else {
                  j["added_tokens"] = {{{"id", 16777215}, {"content", "<x>"}, {"special", true}}};
                }
              }),
              "model.vocab: id 16777215 of 3 tokens, expected ids below 65584");
  }
  json holes = trained();
  holes["model"]["vocab"] = {{"a", 0}, {"b", 65000}};
  holes["model"]["merges"] = json::array();
  holes["added_tokens"] = json::array();
  EXPECT_EQ(load_json(holes).encode("ab"), (ids{0, 65000}));
  EXPECT_NE(malformed([](json& j) { j["model"]["vocab"]["a"] = j["model"]["vocab"]["b"]; }).find("both have id"), std::string::npos);
  EXPECT_EQ(malformed([](json& j) {
              j["model"]["vocab"] = json::object();
              j["added_tokens"] = json::array();
            }),
            "model.vocab: the vocabulary is empty");
  EXPECT_EQ(malformed([](json& j) { j["model"]["merges"][3] = "abc"; }),
            "model.merges[3] is \"abc\", expected two tokens with one space between them");
  EXPECT_EQ(malformed([](json& j) { j["model"]["merges"][3] = "a b c"; }),
            "model.merges[3] is \"a b c\", expected two tokens with one space between them");
  EXPECT_EQ(malformed([](json& j) { j["model"]["merges"][3] = {"a"}; }), "model.merges[3] is an array of 1, expected a pair of tokens");
  EXPECT_EQ(malformed([](json& j) { j["model"]["merges"][3] = 7; }), "model.merges[3] is 7, expected a string");
  EXPECT_EQ(malformed([](json& j) { j["model"]["merges"][3] = {"a", "zzzz"}; }), "model.merges[3]: token \"azzzz\" is not in model.vocab");
  EXPECT_EQ(malformed([](json& j) { j["added_tokens"][0].erase("content"); }), "missing key added_tokens[0].content");
  EXPECT_EQ(malformed([](json& j) { j["added_tokens"][0]["content"] = ""; }),
            "added_tokens[0].content is \"\", expected a token of at least one character");
  EXPECT_EQ(malformed([](json& j) { j["added_tokens"][0]["lstrip"] = 1; }), "added_tokens[0].lstrip is 1, expected true or false");
  EXPECT_NE(malformed([](json& j) { j["added_tokens"][0]["id"] = 5; }).find("has id 5, but 0 in model.vocab"), std::string::npos);
  EXPECT_NE(malformed([](json& j) { j["added_tokens"].push_back(j["added_tokens"].back()); }).find("stands there twice"),
            std::string::npos);
  EXPECT_NE(malformed([](json& j) { j["added_tokens"].back()["id"] = 5000; }).find("has id 5000, but is number"), std::string::npos);
  EXPECT_EQ(malformed([](json& j) { j["pre_tokenizer"] = {{"type", 3}}; }), "pre_tokenizer.type is 3, expected a string");
  EXPECT_EQ(malformed([](json& j) { j["pre_tokenizer"] = json::object(); }), "missing key pre_tokenizer.type");
  const temporary_folder folder;
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(tokenizer::load(folder.path("absent.json"))); }),
            folder.path("absent.json") + ": no such file");
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(tokenizer::load(folder.path())); }), folder.path() + ": not a regular file");
  const std::string twice = folder.write("twice.json", R"({"model": {"type": "BPE", "type": "Unigram"}})");
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(tokenizer::load(twice)); }), twice + ": key \"type\" occurs twice in one object");
  const std::string deep = folder.write("deep.json", std::string(100000, '['));
  EXPECT_NE(error_of<file_error>([&] { static_cast<void>(tokenizer::load(deep)); }).find("nested deeper than 64"), std::string::npos);
}

// A file that is cut off is never taken for a whole one, and one that is changed is an error or a tokenizer that works.
TEST(tokenizer, hostile_files_are_errors_not_crashes) {
  json small = trained();
  small["model"]["merges"] = {"a b", "ab c"};
  small["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}};
  small["added_tokens"] = {{{"id", 5}, {"content", "<x>"}, {"special", true}, {"normalized", false}}};
  const std::string content = small.dump();
  const temporary_folder folder;
  const std::string path = folder.path("tokenizer.json");
  for (std::size_t n = 0; n < content.size(); ++n) {
    folder.write("tokenizer.json", content.substr(0, n));
    EXPECT_THROW(static_cast<void>(tokenizer::load(path)), file_error) << n;
  }
  std::mt19937 random(1);
  int loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string changed = content;
    for (unsigned k = 0; k <= random() % 3; ++k) {
      const std::size_t at = random() % changed.size();
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1U << random() % 8U));
    }
    folder.write("tokenizer.json", changed);
    try {
      const tokenizer t = tokenizer::load(path);
      static_cast<void>(t.decode(t.encode("abc <x> cab \xFF 123", mode::parse), true));
      ++loaded;
    } catch (const error&) {
    }
  }
  EXPECT_GT(loaded, 0);
}

// A pattern that backtracks without end is stopped.
TEST(tokenizer, patterns_without_end_are_stopped) {
  json j = trained();
  j["pre_tokenizer"]["pretokenizers"][0] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(?:a|b|ab)*(?:a|b|ab)*[cd]"}}}, {"behavior", "Isolated"}, {"invert", false}};
  const tokenizer t = load_json(j);
  std::string text;
  for (int i = 0; i < 40; ++i) text += "ab";
  EXPECT_NE(error_of<model_error>([&] { static_cast<void>(t.encode(text)); }).find("matching a text of 80 bytes"), std::string::npos);
}

}  // namespace
