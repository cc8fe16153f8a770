// SPDX-License-Identifier: Apache-2.0
// 10,000 generated strings a tokenizer file against the `tokenizers` package, by hashes: tests/golden/make_tokenizer_hashes.py, which draws
// the same strings.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "tokenizer_support.hpp"
#include "vlbatch/core/utf8.hpp"

namespace {

using namespace vlbatch;
using vlbatch::testing::golden_text;
using vlbatch::testing::gpt2_tokenizer;
using vlbatch::testing::load_tokenizer;
using vlbatch::testing::read_json;
using vlbatch::testing::trained_tokenizer;
using mode = tokenizer::special_tokens;
using nlohmann::json;

const json& golden() {
  static const json j = read_json(golden_text("tokenizer_hashes.json"));
  return j;
}

// SplitMix64.
class drawn_numbers {
 public:
  explicit drawn_numbers(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t n) {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (z ^ (z >> 31)) % n;
  }

 private:
  std::uint64_t state_;
};

void append_utf8(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

// Draws in the order of draw() in the script.
std::string drawn_string(drawn_numbers& r) {
  const json& bits = golden()["bits"];
  const json& ranges = golden()["ranges"];
  std::string out;
  const std::uint64_t parts = 1 + r.below(12);
  for (std::uint64_t i = 0; i < parts; ++i) {
    const std::uint64_t kind = r.below(10);
    if (kind < 5) {
      out += bits[r.below(bits.size())].get_ref<const std::string&>();
    } else if (kind < 8) {
      const json& range = ranges[r.below(ranges.size())];
      const std::uint32_t low = range[0];
      const std::uint32_t high = range[1];
      append_utf8(out, low + static_cast<std::uint32_t>(r.below(high - low + 1)));
    } else if (kind < 9) {
      out.append(1 + r.below(40), ' ');
    } else {
      const std::uint64_t length = 1 + r.below(15);
      for (std::uint64_t k = 0; k < length; ++k) out += static_cast<char>('a' + r.below(26));
    }
  }
  return out;
}

// FNV-1a, 64 bits.
class hash {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  void add(std::uint32_t number) {
    for (int shift = 0; shift < 32; shift += 8) value_ = (value_ ^ (number >> shift & 0xFF)) * 0x100000001B3;
  }
  void add(const std::vector<std::int32_t>& ids) {
    add(static_cast<std::uint32_t>(ids.size()));
    for (const std::int32_t id : ids) add(static_cast<std::uint32_t>(id));
  }
  std::string hex() const {
    std::array<char, 17> text{};
    std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value_));
    return text.data();
  }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325;
};

void expect_hashes(const tokenizer& t, const json& blocks) {
  drawn_numbers r(golden()["seed"].get<std::uint64_t>());
  const int block = golden()["block"];
  ASSERT_EQ(blocks.size() * static_cast<std::size_t>(block), 10'000U);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    hash parse;
    hash as_text;
    hash decoded;
    for (int i = 0; i < block; ++i) {
      const std::string text = drawn_string(r);
      const std::vector<std::int32_t> ids = t.encode(text, mode::parse);
      parse.add(ids);
      decoded.add(t.decode(ids, true));
      decoded.add(std::string_view("\0", 1));
      as_text.add(t.encode(text));
    }
    const std::string where = "strings " + std::to_string(b * static_cast<std::size_t>(block)) + " on";
    EXPECT_EQ(parse.hex(), blocks[b][0]) << where;
    EXPECT_EQ(as_text.hex(), blocks[b][1]) << where;
    EXPECT_EQ(decoded.hex(), blocks[b][2]) << where;
  }
}

TEST(tokenizer_hashes, ten_thousand_strings_a_file_as_the_tokenizers_package_has_them) {
  const json cases = read_json(golden_text("tokenizer_cases.json"))["cases"];
  ASSERT_EQ(golden()["files"].size(), 3U);
  for (const json& file : golden()["files"]) {
    SCOPED_TRACE(file["name"].get<std::string>());
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const json& c) { return c["name"] == file["name"]; });
    ASSERT_NE(found, cases.end());
    json changed = trained_tokenizer();
    changed.merge_patch((*found)["patch"]);
    expect_hashes(load_tokenizer(changed), file["blocks"]);
  }
}

TEST(tokenizer_hashes, ten_thousand_strings_with_the_vocabulary_of_gpt2) {
  VLBATCH_SAMPLE_OR_SKIP(folder, "gpt2-tokenizer");
  expect_hashes(load_tokenizer(gpt2_tokenizer(folder)), golden()["gpt2"]);
}

}  // namespace
