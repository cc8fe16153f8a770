// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/io/safetensors.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "support/files.hpp"
#include "vlbatch/core/error.hpp"

namespace {

using namespace vlbatch;
using nlohmann::json;
using vlbatch::testing::error_of;
using vlbatch::testing::read_file;
using vlbatch::testing::read_json;
using vlbatch::testing::temporary_folder;
using shape = std::vector<std::int64_t>;

// A file from its parts, right or wrong.
std::string file_of(const std::string& header, const std::string& data) {
  std::string out(8, '\0');
  const std::uint64_t n = header.size();
  std::memcpy(out.data(), &n, sizeof n);
  return out + header + data;
}

std::string bytes_of(const std::vector<float>& v) { return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)}; }

json entry(const char* type, const shape& s, std::int64_t begin, std::int64_t end) {
  return {{"dtype", type}, {"shape", s}, {"data_offsets", {begin, end}}};
}

std::string refused(const std::string& content) {
  const temporary_folder folder;
  const std::string path = folder.write("x.safetensors", content);
  const std::string text = error_of<file_error>([&] { static_cast<void>(checkpoint::open_file(path)); });
  EXPECT_TRUE(text.starts_with(path + ": ")) << text;
  return text.substr(std::min(text.size(), path.size() + 2));
}

std::string refused(const json& header, std::size_t data_bytes) { return refused(file_of(header.dump(), std::string(data_bytes, '\1'))); }

TEST(safetensors, reads_tensors) {
  const temporary_folder folder;
  // The first tensor takes one byte, so that the others are not aligned; the header is padded with spaces.
  const json header = {{"__metadata__", {{"format", "pt"}, {"dtype", "not a tensor"}}},
                       {"z", entry("I8", {1}, 0, 1)},
                       {"a", entry("F32", {2, 2}, 1, 17)},
                       {"scalar", entry("F32", {}, 17, 21)},
                       {"empty", entry("F32", {3, 0, 2}, 21, 21)},
                       {"h", entry("F16", {3}, 21, 27)},
                       {"b", entry("BF16", {2}, 27, 31)}};
  const std::string halves("\x00\x3C\x01\x00\xFF\x7B", 6);  // 1, the smallest subnormal, the largest number
  const std::string brains("\x80\x3F\x49\xC0", 4);          // 1, -3.140625
  const std::string path =
      folder.write("x.safetensors", file_of(header.dump() + "     ", "\xFB" + bytes_of({1, -2, 3, 4}) + bytes_of({7}) + halves + brains));
  const checkpoint c = checkpoint::open_file(path);
  EXPECT_EQ(c.source(), path);
  ASSERT_EQ(c.tensors().size(), 6U);
  std::vector<std::string> names;
  for (const tensor_view& t : c.tensors()) {
    names.emplace_back(t.name);
    EXPECT_EQ(t.file, path);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "empty", "h", "scalar", "z"}));

  const tensor_view& a = c.get("a", shape{2, 2});
  EXPECT_EQ(a.type, dtype::f32);
  std::vector<float> values(4);
  a.copy_to(values);
  EXPECT_EQ(values, (std::vector<float>{1, -2, 3, 4}));
  EXPECT_EQ(a.at(1), -2);
  EXPECT_EQ(c.get("scalar", shape{}).at(0), 7);
  EXPECT_EQ(c.get("scalar", shape{}).elements, 1);
  EXPECT_EQ(c.get("empty", shape{3, 0, 2}).elements, 0);
  c.find("empty")->copy_to({});
  std::vector<float> three(3);
  c.get("h", shape{3}).copy_to(three);
  EXPECT_EQ(three, (std::vector<float>{1, 0x1p-24F, 65504}));
  EXPECT_EQ(c.get("b", shape{2}).at(0), 1);
  EXPECT_EQ(c.get("b", shape{2}).at(1), -3.140625F);
  EXPECT_EQ(c.find("z")->at(0), -5);
  EXPECT_EQ(c.find("nothing"), nullptr);
  EXPECT_THROW(a.copy_to(three), invalid_argument);
}

// Every one of the 65,536 halves, by the definition of the format.
TEST(safetensors, halves_become_f32_exactly) {
  const temporary_folder folder;
  std::string data;
  for (unsigned i = 0; i < 65536; ++i) data += {static_cast<char>(i & 0xFFU), static_cast<char>(i >> 8U)};
  const json header = {{"h", entry("F16", {65536}, 0, 131072)}, {"b", entry("BF16", {65536}, 131072, 262144)}};
  const checkpoint c = checkpoint::open_file(folder.write("x.safetensors", file_of(header.dump(), data + data)));
  std::vector<float> h(65536);
  std::vector<float> b(65536);
  c.get("h", shape{65536}).copy_to(h);
  c.get("b", shape{65536}).copy_to(b);
  for (unsigned i = 0; i < 65536; ++i) {
    const double sign = (i & 0x8000U) != 0 ? -1.0 : 1.0;
    const auto check = [&](float got, unsigned exponent, unsigned fraction, int fraction_bits, unsigned special, int bias) {
      if (exponent == special) {
        if (fraction != 0) return std::isnan(got) && std::signbit(got) == (sign < 0);
        return std::isinf(got) && std::signbit(got) == (sign < 0);
      }
      const double expected =
          exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                        : std::ldexp(fraction + std::ldexp(1.0, fraction_bits), static_cast<int>(exponent) - bias - fraction_bits);
      return static_cast<double>(got) == sign * expected && std::signbit(got) == (sign < 0);
    };
    EXPECT_TRUE(check(h[i], (i >> 10U) & 31U, i & 1023U, 10, 31, 15)) << i;
    EXPECT_TRUE(check(b[i], (i >> 7U) & 255U, i & 127U, 7, 255, 127)) << i;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(c.find("h")->at(i)), std::bit_cast<std::uint32_t>(h[i]));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(c.find("b")->at(i)), std::bit_cast<std::uint32_t>(b[i]));
  }
}

TEST(safetensors, get_names_what_does_not_fit) {
  const temporary_folder folder;
  const json header = {{"w", entry("F32", {2, 3}, 0, 24)}, {"i", entry("I64", {2}, 24, 40)}, {"q", entry("I8", {2}, 40, 42)}};
  const std::string path = folder.write("x.safetensors", file_of(header.dump(), std::string(42, '\0')));
  const checkpoint c = checkpoint::open_file(path);
  const auto refused_get = [&](const char* name, const shape& s) {
    return error_of<model_error>([&] { static_cast<void>(c.get(name, s)); });
  };
  EXPECT_EQ(refused_get("v", {2, 3}), path + ": tensor \"v\" of shape [2, 3] is missing");
  EXPECT_EQ(refused_get("w", {3, 2}), path + ": tensor \"w\" has shape [2, 3], expected [3, 2]");
  EXPECT_EQ(refused_get("w", {6}), path + ": tensor \"w\" has shape [2, 3], expected [6]");
  EXPECT_EQ(refused_get("w", {2, 3, 1}), path + ": tensor \"w\" has shape [2, 3], expected [2, 3, 1]");
  EXPECT_EQ(refused_get("i", {2}), path + ": tensor \"i\" has dtype I64, expected F32, F16 or BF16");
  EXPECT_EQ(refused_get("q", {2}), path + ": tensor \"q\" has dtype I8, expected F32, F16 or BF16");
  // Numbers that nothing here reads are listed apart.
  EXPECT_EQ(c.find("i"), nullptr);
  ASSERT_EQ(c.foreign_tensors().size(), 1U);
  EXPECT_EQ(c.foreign_tensors()[0].name, "i");
  EXPECT_EQ(c.foreign_tensors()[0].type, "I64");
  EXPECT_EQ(c.foreign_tensors()[0].file, path);
}

TEST(safetensors, headers_that_lie) {
  using namespace std::string_literals;
  EXPECT_EQ(refused(""s), "0 bytes, expected a header length of 8 bytes");
  EXPECT_EQ(refused("1234567"s), "7 bytes, expected a header length of 8 bytes");
  EXPECT_EQ(refused(std::string(8, '\xFF')), "header of 18446744073709551615 bytes, expected at most 0 in a file of 8");
  EXPECT_EQ(refused("\x03\0\0\0\0\0\0\0{}"s), "header of 3 bytes, expected at most 2 in a file of 10");
  EXPECT_NE(refused("\0\0\0\0\0\0\0\0"s).find("not valid JSON"), std::string::npos);
  EXPECT_EQ(refused(file_of("[]", "")), "the file is an array of 0, expected an object");
  EXPECT_NE(refused(file_of("{} x", "")).find("not valid JSON"), std::string::npos);
  EXPECT_NE(refused(file_of("{\"\xFF\":1}", "")).find("not valid JSON"), std::string::npos);
  EXPECT_EQ(
      refused(file_of(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x")),
      "key \"a\" occurs twice in one object");
  EXPECT_EQ(refused(file_of(R"({"a":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x")),
            "key \"dtype\" occurs twice in one object");
}

// The parser behind this would stop at a byte 0 and pass over a byte order mark.
TEST(safetensors, nothing_hides_around_the_header) {
  using namespace std::string_literals;
  const std::string one = R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})";
  const std::string at = std::to_string(one.size() + 1);
  EXPECT_EQ(refused(file_of(one + "\0"s, "x")), "not valid JSON at byte " + at + ": a byte of value 0");
  EXPECT_EQ(refused(file_of(one + "\0{\"b\":1}"s, "x")), "not valid JSON at byte " + at + ": a byte of value 0");
  EXPECT_EQ(refused(file_of("\0"s + one, "x")), "not valid JSON at byte 1: a byte of value 0");
  EXPECT_EQ(refused(file_of("\xEF\xBB\xBF" + one, "x")), "not valid JSON at byte 1: a byte order mark");
}

TEST(safetensors, metadata_is_strings) {
  const json tensor = entry("I8", {1}, 0, 1);
  EXPECT_EQ(refused({{"__metadata__", json::array()}, {"a", tensor}}, 1), "__metadata__ is an array of 0, expected an object");
  EXPECT_EQ(refused({{"__metadata__", {{"x", 1}}}, {"a", tensor}}, 1), "__metadata__ \"x\" is 1, expected a string");
  EXPECT_EQ(refused({{"__metadata__", tensor}}, 0), "__metadata__ \"data_offsets\" is an array of 2, expected a string");
}

// 100 MB of header is the limit of the format. The files have holes: nothing of that size is written.
TEST(safetensors, headers_beyond_the_limit_are_refused_unread) {
  const temporary_folder folder;
  const std::uint64_t length = 100'000'001;
  std::string head(8, '\0');
  std::memcpy(head.data(), &length, sizeof length);
  const std::string path = folder.write("x.safetensors", head);
  std::filesystem::resize_file(path, 200'000'000);
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(checkpoint::open_file(path)); }),
            path + ": header of 100000001 bytes, expected at most 100000000 in a file of 200000000");
}

// Bytes of this process in memory.
std::int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0;
  in >> pages >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

// A file of 64 GiB (a hole) opens at once, and reading one element of it brings in one page, not the tensor.
TEST(safetensors, files_larger_than_memory_are_mapped_and_read_where_touched) {
  const temporary_folder folder;
  constexpr std::int64_t elements = 1LL << 34U;
  const json header = {{"big", entry("F32", {elements / 4, 4}, 0, elements * 4)},
                       {"last", entry("F32", {}, elements * 4, elements * 4 + 4)}};
  const std::string head = file_of(header.dump(), "");
  const std::string path = folder.write("x.safetensors", head);
  std::error_code ec;
  std::filesystem::resize_file(path, head.size() + elements * 4 + 4, ec);
  if (ec) GTEST_SKIP() << "no file of 64 GiB with a hole here: " << ec.message();
  const std::int64_t before = resident_bytes();
  const checkpoint c = checkpoint::open_file(path);
  const tensor_view& big = c.get("big", shape{elements / 4, 4});
  for (const std::int64_t i : {std::int64_t{0}, elements / 2, elements - 1}) EXPECT_EQ(big.at(i), 0.0F);
  EXPECT_EQ(c.get("last", shape{}).at(0), 0.0F);
  EXPECT_LT(resident_bytes() - before, 64LL << 20U);
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

// What the `safetensors` package reads is read with the same bytes, and what it refuses is refused; the exceptions are listed here.
TEST(safetensors, agrees_with_the_safetensors_package) {
  const std::map<std::string, const char*> stricter = {
      {"tensor twice", "two readers may see two tensors"},         {"tensor twice, one escaped", "two readers may see two tensors"},
      {"metadata's key twice", "no key occurs twice in any file"}, {"tensor [\"I8\",[1],[0,1]]", "an accident of the package's parser"},
      {"shape [9223372036854775808,0]", "sizes are signed here"},  {"rank 17", "no tensor of a model has as many dimensions"},
      {"rank 64", "no tensor of a model has as many dimensions"}};
  const std::map<std::string, const char*> looser = {{"shape [-0]", "it is the number 0"}, {"offsets minus zero", "it is the number 0"}};
  const json golden = read_json(std::string(VLBATCH_SOURCE_DIR) + "/tests/golden/safetensors/cases.json");
  const temporary_folder folder;
  std::size_t read = 0;
  std::size_t exceptions = 0;
  for (const json& one : golden["cases"]) {
    const std::string name = one["name"];
    const std::string path = folder.write("x.safetensors", from_hex(one["head"]) + from_hex(one["data"]));
    const bool theirs = one.contains("tensors");
    bool ours = false;
    try {
      const checkpoint c = checkpoint::open_file(path);
      ours = true;
      if (theirs) {
        ++read;
        EXPECT_EQ(c.tensors().size() + c.foreign_tensors().size(), one["tensors"].size()) << name;
        for (const tensor_view& t : c.tensors()) {
          const json& expected = one["tensors"].at(std::string(t.name));
          const char* spelled = t.type == dtype::f32 ? "F32" : t.type == dtype::f16 ? "F16" : t.type == dtype::bf16 ? "BF16" : "I8";
          EXPECT_EQ(expected[0], spelled) << name;
          EXPECT_EQ(expected[1], json(shape(t.shape.begin(), t.shape.end()))) << name;
          const std::string bytes(reinterpret_cast<const char*>(t.data), static_cast<std::size_t>(t.elements * size_of(t.type)));
          EXPECT_EQ(from_hex(expected[2]), bytes) << name;
        }
        for (const foreign_tensor& t : c.foreign_tensors())
          EXPECT_EQ(one["tensors"].at(std::string(t.name))[0], std::string(t.type)) << name;
      }
    } catch (const file_error& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with(path + ": ")) << e.what();
    }
    const bool expected = (theirs && !stricter.contains(name)) || looser.contains(name);
    EXPECT_EQ(ours, expected) << name << (theirs ? "" : ": " + one["refused"].get<std::string>());
    exceptions += static_cast<std::size_t>(ours != theirs);
  }
  EXPECT_GT(read, 150U);
  EXPECT_EQ(exceptions, stricter.size() + looser.size());  // every one of them is there
}

TEST(safetensors, entries_that_do_not_fit) {
  EXPECT_EQ(refused({{"a", 1}}, 0), "tensor \"a\" is 1, expected an object");
  EXPECT_EQ(refused({{"a", {{"shape", {1}}, {"data_offsets", {0, 1}}}}}, 1), "missing key tensor \"a\".dtype");
  EXPECT_EQ(refused({{"a", {{"dtype", "I8"}, {"data_offsets", {0, 1}}}}}, 1), "missing key tensor \"a\".shape");
  EXPECT_EQ(refused({{"a", {{"dtype", "I8"}, {"shape", {1}}}}}, 1), "missing key tensor \"a\".data_offsets");
  EXPECT_EQ(refused({{"a", entry("F31", {1}, 0, 4)}}, 4),
            "tensor \"a\".dtype is \"F31\", expected a dtype of the format such as F32, F16 or BF16");
  EXPECT_EQ(refused({{"a", entry("F32", {-1}, 0, 4)}}, 4),
            "tensor \"a\".shape[0] is -1, expected an integer from 0 to 9223372036854775807");
  EXPECT_EQ(refused({{"a", {{"dtype", "F32"}, {"shape", {1.5}}, {"data_offsets", {0, 4}}}}}, 4),
            "tensor \"a\".shape[0] is 1.5, expected an integer from 0 to 9223372036854775807");
  EXPECT_EQ(refused({{"a", {{"dtype", "F32"}, {"shape", 1}, {"data_offsets", {0, 4}}}}}, 4), "tensor \"a\".shape is 1, expected an array");
  EXPECT_EQ(refused({{"a", entry("F32", shape(17, 1), 0, 4)}}, 4), "tensor \"a\".shape is an array of 17, expected at most 16 dimensions");
  EXPECT_EQ(refused({{"a", {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {0, 4, 8}}}}}, 4),
            "tensor \"a\".data_offsets is an array of 3, expected two offsets");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 0, 8)}}, 4), "tensor \"a\".data_offsets[1] is 8, expected an integer from 0 to 4");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 4, 0)}}, 4), "tensor \"a\".data_offsets[1] is 0, expected an integer from 4 to 4");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, -4, 0)}}, 4), "tensor \"a\".data_offsets[0] is -4, expected an integer from 0 to 4");
  EXPECT_EQ(refused({{"a", entry("F32", {2}, 0, 4)}}, 4), "tensor \"a\": shape [2] of F32 takes 8 bytes, but data_offsets [0, 4] hold 4");
  EXPECT_EQ(refused({{"a", entry("F4", {3}, 0, 1)}}, 1),
            "tensor \"a\": shape [3] of F4 takes 1 bytes and a part, but data_offsets [0, 1] hold 1");
  // Products that leave 64 bits, also where a zero hides them.
  EXPECT_NE(refused({{"a", entry("F32", {1LL << 32U, 1LL << 32U}, 0, 0)}}, 0).find("more elements than"), std::string::npos);
  EXPECT_NE(refused({{"a", entry("F32", {1LL << 62U}, 0, 0)}}, 0).find("more elements than"), std::string::npos);
  EXPECT_NE(refused({{"a", entry("F32", {1LL << 32U, 1LL << 32U, 0}, 0, 0)}}, 0).find("more elements than"), std::string::npos);
}

TEST(safetensors, data_must_be_filled_exactly) {
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 2, 6)}}, 6),
            "tensor \"b\" begins at byte 2 of the data, but tensor \"a\" before it ends at 4 (overlap)");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 0, 4)}}, 4),
            "tensor \"b\" begins at byte 0 of the data, but tensor \"a\" before it ends at 4 (overlap)");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 0, 4)}, {"b", entry("F32", {1}, 5, 9)}}, 9),
            "tensor \"b\" begins at byte 5 of the data, but tensor \"a\" before it ends at 4 (hole)");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 1, 5)}}, 5), "tensor \"a\" begins at byte 1 of the data, but the data begins at 0 (hole)");
  EXPECT_EQ(refused({{"a", entry("F32", {1}, 0, 4)}}, 5), "the tensors take 4 bytes, but the file has 5 bytes of data");
  EXPECT_EQ(refused(json::object(), 1), "the tensors take 0 bytes, but the file has 1 bytes of data");
  // Without data or tensors there is nothing wrong.
  const temporary_folder folder;
  EXPECT_EQ(checkpoint::open_file(folder.write("x.safetensors", file_of("{}", ""))).tensors().size(), 0U);
}

TEST(safetensors, files_that_are_none) {
  const temporary_folder folder;
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(checkpoint::open_file(folder.path("x"))); }), folder.path("x") + ": no such file");
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(checkpoint::open_file(folder.path())); }), folder.path() + ": not a regular file");
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(checkpoint::open(folder.path("x"))); }), folder.path("x") + ": no such folder");
  EXPECT_EQ(error_of<file_error>([&] { static_cast<void>(checkpoint::open(folder.path())); }),
            folder.path() + ": holds neither model.safetensors nor model.safetensors.index.json");
}

tensor_to_write floats(const std::string& name, const std::vector<float>& v) {
  tensor_to_write t{name, dtype::f32, {static_cast<std::int64_t>(v.size())}, std::vector<std::byte>(v.size() * 4)};
  std::memcpy(t.bytes.data(), v.data(), t.bytes.size());
  return t;
}

TEST(safetensors, what_is_written_is_read) {
  const temporary_folder folder;
  std::vector<tensor_to_write> tensors;
  tensors.push_back({"q", dtype::i8, {3}, std::vector<std::byte>(3, std::byte{0x80})});
  tensors.push_back({"half", dtype::f16, {1, 2}, std::vector<std::byte>(4, std::byte{0x3C})});
  tensors.push_back(floats("w \"\xC3\xA9\"", {1.5F, -0.0F}));
  tensors.push_back({"b", dtype::bf16, {}, std::vector<std::byte>(2, std::byte{0x40})});
  tensors.push_back({"nothing", dtype::f32, {0, 5}, {}});
  const std::string path = folder.path("model.safetensors");
  write_safetensors(path, tensors);
  const checkpoint c = checkpoint::open(folder.path());
  ASSERT_EQ(c.tensors().size(), tensors.size());
  for (const tensor_to_write& t : tensors) {
    const tensor_view* v = c.find(t.name);
    ASSERT_NE(v, nullptr) << t.name;
    EXPECT_EQ(v->type, t.type);
    EXPECT_TRUE(std::equal(v->shape.begin(), v->shape.end(), t.shape.begin(), t.shape.end()));
    ASSERT_EQ(static_cast<std::size_t>(v->elements) * static_cast<std::size_t>(size_of(v->type)), t.bytes.size());
    EXPECT_TRUE(std::equal(t.bytes.begin(), t.bytes.end(), v->data));
    // The map begins at a page, so that addresses tell the alignment in the file.
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(v->data) % static_cast<std::uintptr_t>(size_of(v->type)), 0U) << t.name;
  }
  // transformers wants to be told the format.
  const std::string content = read_file(path);
  std::uint64_t n = 0;
  std::memcpy(&n, content.data(), sizeof n);
  EXPECT_EQ(json::parse(content.substr(8, n))["__metadata__"]["format"], "pt");
}

TEST(safetensors, refuses_to_write_what_does_not_fit) {
  const temporary_folder folder;
  const std::string path = folder.path("x.safetensors");
  const auto refused_write = [&](std::vector<tensor_to_write> t) {
    return error_of<invalid_argument>([&] { write_safetensors(path, t); });
  };
  EXPECT_EQ(refused_write({{"a", dtype::f32, {2, 2}, std::vector<std::byte>(15)}}),
            path + ": tensor \"a\" of shape [2, 2] and dtype F32 takes 16 bytes, given 15");
  EXPECT_NE(refused_write({floats("a", {1}), floats("a", {1})}).find("given twice"), std::string::npos);
  EXPECT_NE(refused_write({floats("__metadata__", {1})}).find("reserved name"), std::string::npos);
  EXPECT_NE(refused_write({{"a", dtype::f32, {-1}, {}}}).find("shape [-1]"), std::string::npos);
  EXPECT_NE(refused_write({{"a", dtype::f32, {1LL << 40U, 1LL << 40U}, {}}}).find("has shape"), std::string::npos);
  EXPECT_NE(refused_write({floats("\xFF", {1})}).find("not valid UTF-8"), std::string::npos);
  EXPECT_NE(
      error_of<file_error>([&] { write_safetensors(folder.path("absent/x"), std::vector{floats("a", {1})}); }).find("cannot be created"),
      std::string::npos);
}

// ---- sharded folders

struct shards {
  temporary_folder folder;
  shards() {
    write_safetensors(folder.path("a.safetensors"), std::vector{floats("x", {1}), floats("y", {2, 3})});
    write_safetensors(folder.path("b.safetensors"), std::vector{floats("z", {4})});
  }
  void index(const json& weight_map) const {
    folder.write("model.safetensors.index.json", json{{"metadata", {{"total_size", 16}}}, {"weight_map", weight_map}});
  }
  std::string refused() const {
    return error_of<file_error>([&] { static_cast<void>(checkpoint::open(folder.path())); });
  }
};

const json good_map = {{"x", "a.safetensors"}, {"y", "a.safetensors"}, {"z", "b.safetensors"}};

TEST(safetensors, reads_shards) {
  const shards s;
  s.index(good_map);
  const checkpoint c = checkpoint::open(s.folder.path());
  ASSERT_EQ(c.tensors().size(), 3U);
  EXPECT_EQ(c.source(), s.folder.path());
  EXPECT_EQ(c.get("y", shape{2}).at(1), 3);
  EXPECT_EQ(c.get("z", shape{1}).at(0), 4);
  EXPECT_EQ(c.find("z")->file, s.folder.path("b.safetensors"));
  // One file beside them comes first, as in transformers.
  write_safetensors(s.folder.path("model.safetensors"), std::vector{floats("x", {9})});
  EXPECT_EQ(checkpoint::open(s.folder.path()).get("x", shape{1}).at(0), 9);
}

TEST(safetensors, index_and_shards_agree) {
  const shards s;
  const std::string index = s.folder.path("model.safetensors.index.json");
  const std::string a = s.folder.path("a.safetensors");
  json map = good_map;
  map["w"] = "b.safetensors";
  s.index(map);
  EXPECT_EQ(s.refused(), s.folder.path("b.safetensors") + ": lacks tensor \"w\", which " + index + " places there");
  map = good_map;
  map.erase("y");
  s.index(map);
  EXPECT_EQ(s.refused(), a + ": holds tensor \"y\", but " + index + " does not name it");
  map = good_map;
  map["y"] = "b.safetensors";
  s.index(map);
  EXPECT_EQ(s.refused(), a + ": holds tensor \"y\", but " + index + " places it in b.safetensors");
  map = good_map;
  map["z"] = "c.safetensors";
  s.index(map);
  EXPECT_EQ(s.refused(), s.folder.path("c.safetensors") + ": no such file, but " + index + " names it as a shard");
  // The same tensor in two shards.
  write_safetensors(s.folder.path("b.safetensors"), std::vector{floats("z", {4}), floats("x", {5})});
  s.index(good_map);
  EXPECT_EQ(s.refused(), s.folder.path("b.safetensors") + ": holds tensor \"x\", but " + index + " places it in a.safetensors");
  for (const json& wrong : {json::array(), json("x"), json(nullptr), json::object()}) {
    s.index(wrong);
    EXPECT_TRUE(s.refused().starts_with(index + ": weight_map")) << wrong;
  }
  s.folder.write("model.safetensors.index.json", "{}");
  EXPECT_EQ(s.refused(), index + ": missing key weight_map");
  s.folder.write("model.safetensors.index.json", R"({"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}})");
  EXPECT_EQ(s.refused(), index + ": key \"x\" occurs twice in one object");
}

// Links that lead nowhere, folders, one file under two names.
TEST(safetensors, shards_that_are_no_files_of_their_own) {
  const shards s;
  json map = good_map;
  map["z"] = "c.safetensors";
  s.index(map);
  const std::string c = s.folder.path("c.safetensors");
  std::filesystem::create_symlink("nowhere", c);
  EXPECT_TRUE(s.refused().starts_with(c + ": no such file")) << s.refused();
  std::filesystem::remove(c);
  std::filesystem::create_directory(c);
  EXPECT_TRUE(s.refused().starts_with(c + ": not a regular file")) << s.refused();
  std::filesystem::remove(c);
  std::filesystem::create_symlink("a.safetensors", c);  // its tensors are those of the other shard
  EXPECT_EQ(s.refused(), c + ": holds tensor \"x\", but " + s.folder.path("model.safetensors.index.json") + " places it in a.safetensors");
  std::filesystem::remove(c);
  map["z"] = "model.safetensors.index.json";
  s.index(map);
  EXPECT_TRUE(s.refused().starts_with(s.folder.path("model.safetensors.index.json") + ": header of ")) << s.refused();
  // The index itself.
  std::filesystem::remove(s.folder.path("model.safetensors.index.json"));
  std::filesystem::create_directory(s.folder.path("model.safetensors.index.json"));
  EXPECT_NE(s.refused().find("not a regular file"), std::string::npos) << s.refused();
}

// A shard that is broken is named, not the index.
TEST(safetensors, broken_shards_are_named) {
  const shards s;
  s.index(good_map);
  s.folder.write("b.safetensors", "1234567");
  EXPECT_EQ(s.refused(), s.folder.path("b.safetensors") + ": 7 bytes, expected a header length of 8 bytes");
  s.folder.write("b.safetensors", file_of(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "1234"));
  EXPECT_EQ(s.refused(), s.folder.path("b.safetensors") + ": tensor \"z\".data_offsets[1] is 8, expected an integer from 0 to 4");
}

// The index of a downloaded folder must not make the reader open files elsewhere.
TEST(safetensors, shards_stay_in_the_folder) {
  const shards s;
  const temporary_folder other;
  write_safetensors(other.path("z.safetensors"), std::vector{floats("z", {4})});
  for (const std::string& name : {std::string("../x.safetensors"), other.path("z.safetensors"), std::string("a/../b.safetensors"),
                                  std::string(".."), std::string("."), std::string(""), std::string("a\\b"),
                                  std::string("b.safetensors\0", 14), std::string("b\n.safetensors"), std::string("\x7F")}) {
    json map = good_map;
    map["z"] = name;
    s.index(map);
    EXPECT_NE(s.refused().find("expected the name of a file in the same folder"), std::string::npos) << name;
  }
  json map = good_map;
  map["z"] = "link.safetensors";
  s.index(map);
  std::filesystem::create_symlink(other.path("z.safetensors"), s.folder.path("link.safetensors"));
  EXPECT_NE(s.refused().find("is a link that leads out of the folder"), std::string::npos);
  // A link within the folder is no harm, nor are links in a folder that consists of links, as the Hugging Face cache makes them.
  std::filesystem::remove(s.folder.path("link.safetensors"));
  std::filesystem::create_symlink("b.safetensors", s.folder.path("link.safetensors"));
  EXPECT_EQ(checkpoint::open(s.folder.path()).get("z", shape{1}).at(0), 4);
  const temporary_folder cache;
  for (const char* file : {"a.safetensors", "link.safetensors", "model.safetensors.index.json"}) {
    std::filesystem::create_symlink(s.folder.path(file), cache.path(file));
  }
  EXPECT_EQ(checkpoint::open(cache.path()).get("z", shape{1}).at(0), 4);
}

// ---- hostile files

TEST(safetensors, a_file_cut_anywhere_is_an_error) {
  const temporary_folder folder;
  write_safetensors(folder.path("whole"), std::vector{floats("x", {1, 2, 3}), floats("y", {4})});
  const std::string content = read_file(folder.path("whole"));
  for (std::size_t n = 0; n < content.size(); ++n) {
    EXPECT_THROW(static_cast<void>(checkpoint::open_file(folder.write("cut", content.substr(0, n)))), file_error) << n;
  }
}

TEST(safetensors, changed_bits_are_an_error_or_a_file_that_can_be_read) {
  const temporary_folder folder;
  const json header = {{"x", entry("F32", {2, 3}, 0, 24)},
                       {"h", entry("F16", {5}, 24, 34)},
                       {"i", entry("I64", {1}, 34, 42)},
                       {"b", entry("BF16", {2}, 42, 46)}};
  const std::string content = file_of(header.dump(), std::string(46, '\x3F'));
  std::mt19937 random(4);
  int opened = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string changed = content;
    for (unsigned k = 0; k <= random() % 3; ++k) {
      const std::size_t at = random() % (content.size() - 46);
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1U << random() % 8U));
    }
    try {
      const checkpoint c = checkpoint::open_file(folder.write("changed", changed));
      ++opened;
      for (const tensor_view& t : c.tensors()) {
        std::vector<float> values(static_cast<std::size_t>(t.elements));
        t.copy_to(values);
      }
    } catch (const file_error&) {
    }
  }
  EXPECT_GT(opened, 0);
}

// ---- files of other programs

TEST(safetensors, reads_files_of_other_programs) {
  VLBATCH_SAMPLE_OR_SKIP(folder, "safetensors");
  // F32 and I64, one of them a scalar; written by PyTorch.
  const checkpoint mixed = checkpoint::open_file(folder + "/multi_layer.safetensors");
  EXPECT_FALSE(mixed.tensors().empty());
  ASSERT_FALSE(mixed.foreign_tensors().empty());
  EXPECT_EQ(mixed.foreign_tensors()[0].type, "I64");
  for (const tensor_view& t : mixed.tensors()) {
    std::vector<float> values(static_cast<std::size_t>(t.elements));
    t.copy_to(values);
    for (const float v : values) ASSERT_TRUE(std::isfinite(v)) << t.name;
  }
  // Codes in I64 behind a padded header.
  const checkpoint codes = checkpoint::open_file(folder + "/jfk-codes.safetensors");
  EXPECT_TRUE(codes.tensors().empty());
  EXPECT_EQ(codes.foreign_tensors().size(), 1U);
}

}  // namespace
