// SPDX-License-Identifier: Apache-2.0
// The CPU backend's own promises: levels, memory, weights and error texts.
#include "vlbatch/backend/cpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/rope_table.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A tensor that owns its numbers.
template <class T>
struct numbers {
  dtype type;
  std::vector<std::int64_t> shape;
  std::vector<T> values;
  [[nodiscard]] tensor_view view() const {
    return {"layer.weight",
            "model.safetensors",
            type,
            shape,
            static_cast<const std::byte*>(static_cast<const void*>(values.data())),
            static_cast<std::int64_t>(values.size())};
  }
};

[[nodiscard]] numbers<float> sequence(std::int64_t out, std::int64_t in) {
  numbers<float> n{dtype::f32, {out, in}, std::vector<float>(static_cast<std::size_t>(out * in))};
  for (std::size_t i = 0; i < n.values.size(); ++i) n.values[i] = static_cast<float>(i) * 0.25F;
  return n;
}

[[nodiscard]] std::vector<float> row_of(const cpu& b, const cpu::weight& w, std::int32_t row) {
  auto s = b.make_stream(1);
  std::vector<float> y(static_cast<std::size_t>(w.in()));
  b.embed(s, std::vector<std::int32_t>{row}, w, {y.data(), 1, w.in()});
  return y;
}

TEST(cpu_levels, best_is_the_fastest_available_and_the_reference_always_is) {
  const auto levels = available_cpu_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), cpu_level::reference);
  if (levels.back() == cpu_level::avx512_bf16) {
    EXPECT_GE(cpu{}.level(), cpu_level::avx512);  // which of both is faster depends on the maker
  } else {
    EXPECT_EQ(cpu{}.level(), levels.back());
  }
  EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
  for (const auto level : levels) EXPECT_EQ(cpu{level}.level(), level);
}

TEST(cpu_levels, one_that_the_machine_lacks_is_refused_by_name) {
  const auto levels = available_cpu_levels();
  for (const auto level : {cpu_level::scalar, cpu_level::avx2, cpu_level::avx512, cpu_level::avx512_bf16, cpu_level::amx}) {
    if (std::find(levels.begin(), levels.end(), level) != levels.end()) continue;
    EXPECT_THAT([&] { cpu{level}; }, ThrowsMessage<invalid_argument>(
                                         AllOf(HasSubstr(std::string(name_of(level))), HasSubstr(std::string(name_of(cpu{}.level()))))));
  }
  EXPECT_EQ(name_of(cpu_level::avx512), "avx512");
  EXPECT_EQ(name_of(cpu_level::best), "best");
}

// Each level packs weights for its own products: another's are refused, never misread.
TEST(cpu_levels, weights_of_another_level_are_refused_or_right) {
  constexpr std::int32_t out = 40;
  constexpr std::int32_t in = 70;
  const numbers<std::uint16_t> ones{dtype::bf16, {out, in}, std::vector<std::uint16_t>(out * in, 0x3F80)};
  const std::vector<float> x(in, 1.0F);
  for (const auto loads : available_cpu_levels()) {
    const auto w = cpu{loads}.load_weight(ones.view(), weight_format::as_stored);
    for (const auto multiplies : available_cpu_levels()) {
      const cpu b{multiplies};
      auto s = b.make_stream(1);
      std::vector<float> y(out, 0.0F);
      try {
        b.linear(s, {x.data(), 1, in, in}, w, {y.data(), 1, out, out}, {});
        for (const float v : y) ASSERT_EQ(v, static_cast<float>(in)) << name_of(loads) << ", " << name_of(multiplies);
      } catch (const invalid_argument& e) {
        EXPECT_NE(loads, multiplies);
        EXPECT_THAT(e.what(), HasSubstr(std::string(name_of(multiplies))));
      }
    }
  }
}

TEST(cpu_memory, is_zeroed_and_aligned) {
  const cpu b;
  for (const std::int64_t bytes : {0, 1, 100, 5'000'000}) {
    const auto p = b.allocate(bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(std::bit_cast<std::uintptr_t>(p.get()) % 64, 0U);
    EXPECT_TRUE(std::all_of(p.get(), p.get() + bytes, [](std::byte v) { return v == std::byte{0}; }));
    std::fill_n(p.get(), bytes, std::byte{1});
  }
  EXPECT_THAT([&] { static_cast<void>(b.allocate(std::int64_t{1} << 60)); },
              ThrowsMessage<device_error>(HasSubstr("1152921504606846976 bytes")));
  EXPECT_THROW(static_cast<void>(b.allocate(-1)), device_error);
}

TEST(cpu_stream, counts_its_threads) {
  const cpu b;
  EXPECT_EQ(b.make_stream(1).threads(), 1);
  EXPECT_EQ(b.make_stream(3).threads(), 3);
  EXPECT_THAT([&] { static_cast<void>(b.make_stream(0)); }, ThrowsMessage<invalid_argument>(HasSubstr("0 threads")));
  auto a = b.make_stream(2);
  a = b.make_stream(3);
  EXPECT_EQ(a.threads(), 3);
}

TEST(cpu_weight, keeps_every_number_in_every_layout) {
  for (const auto level : available_cpu_levels()) {
    const cpu b{level};
    const auto n = sequence(70, 9);
    for (const auto use : {weight_use::product, weight_use::rows}) {
      for (const auto format : {weight_format::as_stored, weight_format::bf16}) {  // quarters below 160 are exact in bf16 up to 64
        const auto w = b.load_weight(n.view(), format, use);
        EXPECT_EQ(w.out(), 70);
        EXPECT_EQ(w.in(), 9);
        for (const std::int32_t r : {0, 1, 27}) {
          EXPECT_THAT(row_of(b, w, r), testing::ElementsAreArray(n.values.begin() + r * 9, n.values.begin() + (r + 1) * 9));
        }
      }
    }
  }
}

TEST(cpu_weight, bytes_are_those_of_the_stored_format) {
  const cpu b{cpu_level::reference};
  const auto n = sequence(4, 6);
  EXPECT_EQ(b.load_weight(n.view(), weight_format::as_stored).bytes(), 4 * 6 * 4);
  EXPECT_EQ(b.load_weight(n.view(), weight_format::bf16).bytes(), 4 * 6 * 2);
  const numbers<std::uint16_t> half{dtype::bf16, {4, 6}, std::vector<std::uint16_t>(24, 0x3F80)};
  EXPECT_EQ(b.load_weight(half.view(), weight_format::as_stored).bytes(), 4 * 6 * 2);
  EXPECT_EQ(b.load_weight(half.view(), weight_format::f32).bytes(), 4 * 6 * 4);
  const numbers<std::uint16_t> f16{dtype::f16, {4, 6}, std::vector<std::uint16_t>(24, 0x3C00)};
  EXPECT_EQ(b.load_weight(f16.view(), weight_format::as_stored).bytes(), 4 * 6 * 4);
  const auto f32_view = n.view();
  const auto bf16_view = half.view();
  const tensor_view* const mixed[] = {&bf16_view, &f32_view};
  EXPECT_EQ(b.stack_weights(mixed, weight_format::as_stored).bytes(), 8 * 6 * 4);
}

TEST(cpu_weight, converts_between_formats) {
  for (const auto level : available_cpu_levels()) {
    const cpu b{level};
    // 1, -2, the smallest f16, the largest f16
    const numbers<std::uint16_t> f16{dtype::f16, {1, 4}, {0x3C00, 0xC000, 0x0001, 0x7BFF}};
    EXPECT_THAT(row_of(b, b.load_weight(f16.view(), weight_format::as_stored), 0), testing::ElementsAre(1.0F, -2.0F, 0x1.0p-24F, 65504.0F));
    // To nearest, ties to even: 1 + 2^-8 is halfway between 1 and 1 + 2^-7.
    const numbers<float> f32{dtype::f32, {1, 3}, {0x1.01p0F, 0x1.03p0F, -0x1.0101p0F}};
    EXPECT_THAT(row_of(b, b.load_weight(f32.view(), weight_format::bf16), 0), testing::ElementsAre(1.0F, 0x1.04p0F, -0x1.02p0F));
  }
}

TEST(cpu_weight, flattens_higher_dimensions) {
  const cpu b;
  numbers<float> n = sequence(4, 12);
  n.shape = {4, 3, 2, 2};
  const auto w = b.load_weight(n.view(), weight_format::as_stored);
  EXPECT_EQ(w.out(), 4);
  EXPECT_EQ(w.in(), 12);
}

TEST(cpu_weight, refuses_what_is_no_matrix_of_floats) {
  const cpu b;
  const auto load = [&](const tensor_view& t) { return [&b, t] { static_cast<void>(b.load_weight(t, weight_format::as_stored)); }; };
  numbers<float> n = sequence(4, 6);
  n.shape = {24};
  EXPECT_THAT(load(n.view()),
              ThrowsMessage<model_error>(AllOf(HasSubstr("model.safetensors"), HasSubstr("layer.weight"), HasSubstr("[24]"))));
  n.shape = {4, 7};
  EXPECT_THAT(load(n.view()), ThrowsMessage<model_error>(AllOf(HasSubstr("24"), HasSubstr("28"))));
  n.shape = {0, 7};
  EXPECT_THROW(load(n.view())(), model_error);
  n.shape = {std::int64_t{1} << 40, 2};
  EXPECT_THROW(load(n.view())(), model_error);
  n.shape = {4, 6};
  n.type = dtype::i8;
  EXPECT_THAT(load(n.view()), ThrowsMessage<model_error>(HasSubstr("i8")));
  const auto a = sequence(4, 6);
  const auto c = sequence(4, 5);
  const auto va = a.view();
  const auto vc = c.view();
  const tensor_view* const both[] = {&va, &vc};
  EXPECT_THAT([&] { static_cast<void>(b.stack_weights(both, weight_format::as_stored)); },
              ThrowsMessage<model_error>(AllOf(HasSubstr("[4, 6]"), HasSubstr("[4, 5]"))));
  EXPECT_THROW(static_cast<void>(b.stack_weights({}, weight_format::as_stored)), model_error);
}

TEST(cpu_operations, refuse_shapes_that_do_not_fit_and_name_both) {
  const cpu b;
  auto s = b.make_stream(1);
  std::vector<float> memory(1000, 1.0F);
  const auto m = [&](std::int32_t r, std::int32_t c) { return matrix_view<float>{memory.data(), r, c}; };
  const auto n = sequence(4, 6);
  const auto w = b.load_weight(n.view(), weight_format::as_stored);
  const auto both = [](const char* found, const char* expected) {
    return ThrowsMessage<invalid_argument>(AllOf(HasSubstr(found), HasSubstr(expected)));
  };
  EXPECT_THAT([&] { b.linear(s, m(2, 5), w, m(2, 4), {}); }, both("[2, 5]", "[2, 6]"));
  EXPECT_THAT([&] { b.linear(s, m(2, 6), w, m(3, 4), {}); }, both("[3, 4]", "[2, 4]"));
  EXPECT_THROW(b.linear(s, m(2, 6), cpu::weight{}, m(2, 4), {}), invalid_argument);
  EXPECT_THAT([&] { b.layer_norm(s, m(2, 5), memory.data(), memory.data(), 1.0F, m(2, 4)); }, both("[2, 4]", "[2, 5]"));
  EXPECT_THAT([&] { b.rms_norm(s, m(2, 5), memory.data(), 1.0F, m(1, 5)); }, both("[1, 5]", "[2, 5]"));
  EXPECT_THAT([&] { b.silu_mul(s, m(2, 5), m(2, 3)); }, both("[2, 5]", "[2, 6]"));
  EXPECT_THAT([&] { b.embed(s, std::vector<std::int32_t>{0, 1}, w, m(2, 4)); }, both("[2, 4]", "[2, 6]"));
  EXPECT_THAT([&] { b.inject(s, std::vector<injected_rows>{{1, 2, memory.data()}}, m(2, 4)); }, both("[1, +2)", "[2, 4]"));
  EXPECT_THAT([&] { b.add_rows(s, m(3, 4), m(6, 5)); }, both("[3, 4]", "[3, 5]"));
  EXPECT_THAT([&] { b.add_rows(s, m(4, 4), m(6, 4)); }, both("4", "6"));
  EXPECT_THAT([&] { b.gather_rows(s, m(3, 4), std::vector<std::int32_t>{1}, m(2, 4)); }, both("[2, 4]", "[1, 4]"));
  EXPECT_THAT([&] { b.pixel_shuffle(s, m(16, 2), 4, 3, m(1, 18)); }, both("3", "4"));
  EXPECT_THAT([&] { b.pixel_shuffle(s, m(16, 2), 4, 2, m(4, 4)); }, both("[4, 4]", "[4, 8]"));
  EXPECT_THAT([&] { b.full_attention(s, m(4, 6), 3, {1, 1, 2, 1.0F}, m(4, 2)); }, both("3", "4"));
  EXPECT_THAT([&] { b.full_attention(s, m(4, 5), 2, {1, 1, 2, 1.0F}, m(4, 2)); }, both("[4, 5]", "[4, 6]"));
  if (b.level() != cpu_level::reference) {
    const auto rows = b.load_weight(n.view(), weight_format::as_stored, weight_use::rows);
    EXPECT_THAT([&] { b.linear(s, m(2, 6), rows, m(2, 4), {}); }, both("rows", "product"));
  }
}

TEST(cpu_operations, refuse_a_cache_that_does_not_fit) {
  const cpu b;
  auto s = b.make_stream(1);
  std::vector<float> memory(1000, 1.0F);
  std::vector<float> cache(64);
  const std::vector<std::int32_t> table{0};
  const std::vector<std::int32_t> begin{0, 1};
  const std::vector<std::int32_t> tokens{1};
  std::vector<std::int32_t> context{3};
  auto* data = static_cast<std::byte*>(static_cast<void*>(cache.data()));
  const auto attend = [&](const paged_kv_view& kv, std::int32_t layer) {
    return [&, kv, layer] {
      b.causal_attention(s, {memory.data(), 1, 6}, {1, 1, 2, 1.0F}, {1, 1, begin, tokens, context}, kv, layer, {memory.data() + 100, 1, 2});
    };
  };
  const paged_kv_view good{data, table.data(), 1, 1, 8, {1, 1, 2, dtype::f32}};
  EXPECT_NO_THROW(attend(good, 0)());
  EXPECT_THAT(attend(good, 1), ThrowsMessage<invalid_argument>(HasSubstr("layer 1 of a cache of 1")));
  paged_kv_view bad = good;
  bad.shape.type = dtype::bf16;
  EXPECT_THAT(attend(bad, 0), ThrowsMessage<invalid_argument>(AllOf(HasSubstr("bf16"), HasSubstr("f32"))));
  bad = good;
  bad.shape.head_dim = 4;
  EXPECT_THAT(attend(bad, 0), ThrowsMessage<invalid_argument>(AllOf(HasSubstr("4"), HasSubstr("2"))));
  context[0] = 8;
  EXPECT_THAT(attend(good, 0), ThrowsMessage<invalid_argument>(AllOf(HasSubstr("9"), HasSubstr("8"))));
}

TEST(rope_table, holds_cosines_and_sines_of_single_precision_angles) {
  rope_table t;
  t.prepare(1e5F, 64, std::vector<std::int32_t>{0, 5});
  const auto check = [&](std::int32_t p) {
    for (std::int32_t i = 0; i < 32; ++i) {
      // The products are rounded to single precision, as in the models' own code.
      const float frequency = 1.0F / static_cast<float>(std::pow(1e5, static_cast<double>(static_cast<float>(2 * i) / 64.0F)));
      const auto angle = static_cast<double>(static_cast<float>(p) * frequency);
      EXPECT_NEAR(static_cast<double>(t.row(p)[i]), std::cos(angle), 1e-7);
      EXPECT_NEAR(static_cast<double>(t.row(p)[32 + i]), std::sin(angle), 1e-7);
    }
  };
  check(0);
  check(5);
  t.prepare(1e5F, 64, std::vector<std::int32_t>{8000});
  check(5);
  check(8000);
  // Another model on the same stream.
  t.prepare(1e4F, 2, std::vector<std::int32_t>{1});
  EXPECT_NEAR(t.row(1)[0], std::cos(1.0), 1e-7);
  EXPECT_NEAR(t.row(1)[1], std::sin(1.0), 1e-7);
}

}  // namespace
}  // namespace vlbatch
