// SPDX-License-Identifier: Apache-2.0
// Accuracy of the vectorised elementary functions, seen through the operations that use them, against double precision.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "vlbatch/backend/cpu.hpp"

namespace vlbatch {
namespace {

class functions_test : public testing::TestWithParam<cpu_level> {
 protected:
  const cpu b{GetParam()};
  cpu::stream s = b.make_stream(1);

  [[nodiscard]] std::vector<float> silu(const std::vector<float>& x) {
    const auto n = static_cast<std::int32_t>(x.size());
    std::vector<float> gate_up = x;
    gate_up.resize(2 * x.size(), 1.0F);
    std::vector<float> y(x.size());
    b.silu_mul(s, {gate_up.data(), 1, 2 * n}, {y.data(), 1, n});
    return y;
  }
  [[nodiscard]] std::vector<float> gelu(std::vector<float> x) {
    const std::vector<std::int64_t> shape{1, 1};
    const float one = 1.0F;
    const auto* data = static_cast<const std::byte*>(static_cast<const void*>(&one));
    const auto w = b.load_weight({"one", "test", dtype::f32, shape, data, 1}, weight_format::as_stored);
    const auto n = static_cast<std::int32_t>(x.size());
    std::vector<float> y(x.size());
    b.linear(s, {x.data(), n, 1}, w, {y.data(), n, 1}, {.act = linear_epilogue::activation::gelu_tanh});
    return y;
  }
};

// Every 1009th positive and negative float.
std::vector<float> many_floats() {
  std::vector<float> v;
  for (std::uint32_t bits = 0; bits < 0x7F800000U; bits += 1009) {
    v.push_back(std::bit_cast<float>(bits));
    v.push_back(std::bit_cast<float>(bits | 0x80000000U));
  }
  return v;
}

TEST_P(functions_test, silu_is_within_three_units_in_the_last_place) {
  const auto x = many_floats();
  const auto y = silu(x);
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = static_cast<double>(x[i]) / (1.0 + std::exp(-static_cast<double>(x[i])));
    // Around -88.7, where e^-x leaves the numbers, the result is 0 instead of -3e-37: there only the absolute error counts.
    const double unit = std::max(std::abs(exact) * 0x1.0p-23, 1e-37);
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - exact) / unit);
    ASSERT_LE(worst, 3.0) << "silu(" << x[i] << ") = " << y[i] << ", exact " << exact;
  }
}

TEST_P(functions_test, gelu_is_within_3e_7) {
  auto x = many_floats();
  std::erase_if(x, [](float v) { return std::abs(v) > 100.0F; });
  const auto y = gelu(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = static_cast<double>(x[i]);
    const double exact = 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
    ASSERT_NEAR(static_cast<double>(y[i]), exact, 3e-7 * std::max(1.0, std::abs(v))) << "gelu(" << x[i] << ")";
  }
}

TEST_P(functions_test, limits) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const auto odd_nan = std::bit_cast<float>(0x7FC00001U);  // a payload that careless exponent arithmetic turns into a number
  const auto y = silu({infinity, nan, odd_nan, 0.0F, -0.0F, 1000.0F, -1000.0F, 1.0F});
  EXPECT_EQ(y[0], infinity);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 0.0F);
  EXPECT_EQ(y[4], 0.0F);
  EXPECT_EQ(y[5], 1000.0F);
  EXPECT_EQ(y[6], 0.0F);
  EXPECT_NEAR(y[7], 0.7310586F, 1e-6F);
  const auto g = gelu({nan, odd_nan, 50.0F, -50.0F});
  EXPECT_TRUE(std::isnan(g[0]));
  EXPECT_TRUE(std::isnan(g[1]));
  EXPECT_EQ(g[2], 50.0F);
  EXPECT_EQ(g[3], 0.0F);
}

TEST_P(functions_test, softmax_weights_are_within_two_units_and_far_keys_weigh_nothing) {
  // Two keys of one element: key 0 scores 0, key 1 scores -x; values 0 and 1, so the result is the weight of key 1.
  for (const float x : {0.0F, 1e-3F, 0.5F, 1.0F, 3.3F, 10.0F, 40.0F, 80.0F, 86.0F, 100.0F, 1e30F}) {
    std::vector<float> qkv{1, 0, 0, 1, -x, 1};
    std::vector<float> y(2);
    b.full_attention(s, {qkv.data(), 2, 3}, 2, {1, 1, 1, 1.0F}, {y.data(), 2, 1});
    const double e = std::exp(-static_cast<double>(x));
    const double exact = e / (1.0 + e);
    // The score is rounded before it is a power: an error of x times half a unit.
    EXPECT_NEAR(static_cast<double>(y[0]), exact, exact * 0x1.0p-23 * (2.0 + static_cast<double>(x)) + 0x1.0p-125) << x;
    if (x > 1000.0F) {
      EXPECT_EQ(y[0], 0.0F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(levels, functions_test, testing::ValuesIn(available_cpu_levels().begin(), available_cpu_levels().end()),
                         [](const auto& level) { return std::string(name_of(level.param)); });

}  // namespace
}  // namespace vlbatch
