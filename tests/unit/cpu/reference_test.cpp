// SPDX-License-Identifier: Apache-2.0
// The reference loops against numbers that were worked out by hand (or with a calculator), since everything else is compared with them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "vlbatch/backend/cpu.hpp"

namespace vlbatch {
namespace {

class reference_test : public testing::Test {
 protected:
  const cpu b{cpu_level::reference};
  cpu::stream s = b.make_stream(1);
};

cpu::weight weight_of(const cpu& b, std::vector<float> values, std::int64_t out, std::int64_t in) {
  const std::vector<std::int64_t> shape{out, in};
  const auto* data = static_cast<const std::byte*>(static_cast<const void*>(values.data()));
  return b.load_weight({"w", "test", dtype::f32, shape, data, out * in}, weight_format::as_stored);
}

TEST_F(reference_test, linear) {
  const auto w = weight_of(b, {1, 2, 3, -1, 0.5F, 4}, 2, 3);
  std::vector<float> x{1, 10, 100, 2, 0, -1};
  std::vector<float> y{1000, 2000, 3000, 4000};
  const std::vector<float> bias{0.25F, -0.5F};
  b.linear(s, {x.data(), 2, 3}, w, {y.data(), 2, 2}, {.accumulate = true});
  EXPECT_EQ(y, (std::vector<float>{1321, 2404, 2999, 3994}));
  b.linear(s, {x.data(), 2, 3}, w, {y.data(), 2, 2}, {.bias = bias.data()});
  EXPECT_EQ(y, (std::vector<float>{321.25F, 403.5F, -0.75F, -6.5F}));
}

TEST_F(reference_test, gelu_tanh) {
  const auto w = weight_of(b, {1}, 1, 1);
  std::vector<float> x{1, -1, 0, 3, -10};
  std::vector<float> y(5);
  b.linear(s, {x.data(), 5, 1}, w, {y.data(), 5, 1}, {.act = linear_epilogue::activation::gelu_tanh});
  EXPECT_NEAR(y[0], 0.8411920F, 1e-6F);
  EXPECT_NEAR(y[1], -0.1588080F, 1e-6F);
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_NEAR(y[3], 2.9963627F, 1e-6F);
  EXPECT_NEAR(y[4], 0.0F, 1e-6F);
}

TEST_F(reference_test, norms) {
  std::vector<float> x{1, 2, 3, 6};
  const std::vector<float> gamma{1, 1, 2, 10};
  const std::vector<float> beta{0, 1, 0, 0};
  std::vector<float> y(4);
  // Mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5, with eps 0.5: deviation 2.
  b.layer_norm(s, {x.data(), 1, 4}, gamma.data(), beta.data(), 0.5F, {y.data(), 1, 4});
  EXPECT_EQ(y, (std::vector<float>{-1, 0.5F, 0, 15}));
  // Mean square (1 + 4 + 9 + 36) / 4 = 12.5, with eps 3.5: root 4.
  b.rms_norm(s, {x.data(), 1, 4}, gamma.data(), 3.5F, {y.data(), 1, 4});
  EXPECT_EQ(y, (std::vector<float>{0.25F, 0.5F, 1.5F, 15}));
}

TEST_F(reference_test, silu_mul) {
  std::vector<float> x{1, -2, 10, 100};
  std::vector<float> y(2);
  b.silu_mul(s, {x.data(), 1, 4}, {y.data(), 1, 2});
  EXPECT_NEAR(y[0], 7.3105858F, 1e-5F);    // 1 / (1 + e^-1) times 10
  EXPECT_NEAR(y[1], -23.8405844F, 3e-5F);  // -2 / (1 + e^2) times 100
}

// A cache of one block of eight tokens, one layer, one head of two elements.
struct small_cache {
  std::vector<float> values = std::vector<float>(32, std::numeric_limits<float>::quiet_NaN());
  std::vector<std::int32_t> table{0};
  [[nodiscard]] paged_kv_view view() {
    return {static_cast<std::byte*>(static_cast<void*>(values.data())), table.data(), 1, 1, 8, {1, 1, 2, dtype::f32}};
  }
};

TEST_F(reference_test, rope_rotates_by_position_and_stores_keys_and_values) {
  small_cache cache;
  const std::vector<std::int32_t> begin{0, 2};
  const std::vector<std::int32_t> tokens{1};
  const std::vector<std::int32_t> context{3};
  const row_map map{1, 2, begin, tokens, context};
  std::vector<float> qkv{1, 0, 0, 2, 5, 6, 9, 9, 9, 9, 9, 9};  // the second row is a pad
  const std::vector<std::int32_t> positions{3, 0};
  b.rope_store(s, {qkv.data(), 2, 6}, positions, 1e4F, {1, 1, 2, 1.0F}, map, cache.view(), 0);
  // The only pair of a head of two turns by one radian a position.
  EXPECT_NEAR(qkv[0], std::cos(3.0), 1e-7);
  EXPECT_NEAR(qkv[1], std::sin(3.0), 1e-7);
  EXPECT_NEAR(qkv[2], -2.0 * std::sin(3.0), 1e-7);
  EXPECT_NEAR(qkv[3], 2.0 * std::cos(3.0), 1e-7);
  for (std::size_t i = 6; i < 12; ++i) EXPECT_EQ(qkv[i], 9.0F);
  EXPECT_EQ(cache.values[6], qkv[2]);
  EXPECT_EQ(cache.values[7], qkv[3]);
  EXPECT_EQ(cache.values[16 + 6], 5.0F);
  EXPECT_EQ(cache.values[16 + 7], 6.0F);
  for (const std::size_t i : {0U, 5U, 8U, 16U, 31U}) EXPECT_TRUE(std::isnan(cache.values[i])) << i;
}

TEST_F(reference_test, causal_attention_weighs_the_keys_so_far) {
  small_cache cache;
  // Three keys with scores 0, ln 2 and ln 4 for the query (1, 0), and a fourth that comes later.
  const std::vector<float> keys{0, 7, std::log(2.0F), 7, std::log(4.0F), 7, 100, 7};
  const std::vector<float> values{7, 0, 14, 70, 21, 0, 1000, 1000};
  std::copy(keys.begin(), keys.end(), cache.values.begin());
  std::copy(values.begin(), values.end(), cache.values.begin() + 16);
  const std::vector<std::int32_t> begin{0, 1};
  const std::vector<std::int32_t> tokens{1};
  const std::vector<std::int32_t> context{2};
  const row_map map{1, 2, begin, tokens, context};  // the second row belongs to nobody
  std::vector<float> qkv(12, 0.0F);
  qkv[0] = 1.0F;
  std::vector<float> y(4, 5.0F);
  b.causal_attention(s, {qkv.data(), 2, 6}, {1, 1, 2, 1.0F}, map, cache.view(), 0, {y.data(), 2, 2});
  // Weights 1/7, 2/7, 4/7.
  EXPECT_NEAR(y[0], 17.0F, 1e-5F);
  EXPECT_NEAR(y[1], 20.0F, 1e-5F);
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_EQ(y[3], 0.0F);
}

TEST_F(reference_test, full_attention_sees_its_group_alone) {
  // Two groups of two rows, one head of one element: rows are (q, k, v).
  std::vector<float> qkv{1, 0, 3, 0, std::log(2.0F), 6, 5, 8, 1, 5, 8, 2};
  std::vector<float> y(4);
  b.full_attention(s, {qkv.data(), 4, 3}, 2, {1, 1, 1, 1.0F}, {y.data(), 4, 1});
  EXPECT_NEAR(y[0], 5.0F, 1e-6F);  // weights 1/3 and 2/3
  EXPECT_NEAR(y[1], 4.5F, 1e-6F);  // equal weights
  EXPECT_NEAR(y[2], 1.5F, 1e-6F);
  EXPECT_NEAR(y[3], 1.5F, 1e-6F);
}

TEST_F(reference_test, patches_are_cut_by_channel_then_rows) {
  pixel_tiles like;
  like.num_tiles = 1;
  like.height = 2;
  like.width = 4;
  for (std::uint8_t i = 0; i < 24; ++i) like.values.push_back(i);  // pixel p has the channels 3p, 3p + 1, 3p + 2
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t v = 0; v < 256; ++v) like.normalised[c][v] = static_cast<float>(v + 1000 * c);
  }
  const std::vector<const std::uint8_t*> tiles{like.tile(0)};
  std::vector<float> y(24);
  b.patches(s, tiles, like, 2, {y.data(), 2, 12});
  EXPECT_EQ(y, (std::vector<float>{0, 3, 12, 15, 1001, 1004, 1013, 1016, 2002, 2005, 2014, 2017,  //
                                   6, 9, 18, 21, 1007, 1010, 1019, 1022, 2008, 2011, 2020, 2023}));
}

TEST_F(reference_test, pixel_shuffle_is_idefics3s) {
  // transformers 4.57.6, Idefics3Connector.pixel_shuffle on arange(32).view(1, 16, 2) with scale_factor 2.
  std::vector<float> x(32);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  std::vector<float> y(32);
  b.pixel_shuffle(s, {x.data(), 16, 2}, 4, 2, {y.data(), 4, 8});
  EXPECT_EQ(y, (std::vector<float>{0,  1,  2,  3,  8,  9,  10, 11, 4,  5,  6,  7,  12, 13, 14, 15,
                                   16, 17, 18, 19, 24, 25, 26, 27, 20, 21, 22, 23, 28, 29, 30, 31}));
}

}  // namespace
}  // namespace vlbatch
