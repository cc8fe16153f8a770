// SPDX-License-Identifier: Apache-2.0
// Exact figures of the caches: offsets, capacities, tables. What holds for any cache is in the conformance suite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/kv/statistics_adaptor.hpp"

namespace vlbatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr kv_shape small_shape{.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .type = dtype::f32};  // 16 bytes a token

kv_binding binding(const kv_shape& shape = small_shape, std::int32_t max_positions = 100, std::int64_t* asked = nullptr) {
  return {.shape = shape, .max_positions = max_positions, .allocate = [asked](std::int64_t n) {
            if (asked != nullptr) {  // a size to look at, too large to have
              *asked = n;
              n = 1;
            }
            return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(n)], [](const std::byte* p) { delete[] p; });
          }};
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const invalid_argument& e) {
    return e.what();
  }
  return "no invalid_argument";
}

TEST(kv_shape, bytes_per_token) {
  EXPECT_EQ(small_shape.bytes_per_token(), 16);
  // SmolVLM-256M: 30 layers, 3 KV heads of 64, keys and values, 2 bytes each: 2 * 30 * 3 * 64 * 2.
  EXPECT_EQ((kv_shape{.num_layers = 30, .num_kv_heads = 3, .head_dim = 64, .type = dtype::bf16}).bytes_per_token(), 23040);
  // Does not fit 32 bits: 2 * 128 layers * 128 heads * 65536 * 4 bytes = 2^33.
  EXPECT_EQ((kv_shape{.num_layers = 128, .num_kv_heads = 128, .head_dim = 65536, .type = dtype::f32}).bytes_per_token(), 1LL << 33);
}

TEST(paged_kv_view, offsets_need_64_bits) {
  // One layer, 8 heads of 128, blocks of 16: a (block, K or V) is 8 * 16 * 128 = 16,384 elements, a block 32,768.
  paged_kv_view v{.block_size = 16, .shape = {.num_layers = 1, .num_kv_heads = 8, .head_dim = 128, .type = dtype::f16}};
  EXPECT_EQ(v.offset(0, 0, 0, 1), 2048);
  EXPECT_EQ(v.offset(0, 0, 1, 0), 16384);
  EXPECT_EQ(v.offset(65535, 0, 0, 0), 2147450880);   // 65,535 * 32,768: the last block that an int could reach
  EXPECT_EQ(v.offset(65535, 0, 1, 7), 2147481600);   // + 16,384 + 7 * 2,048
  EXPECT_EQ(v.offset(65536, 0, 0, 0), 2147483648);   // 2^31
  EXPECT_EQ(v.offset(65536, 0, 1, 3), 2147506176);   // + 16,384 + 3 * 2,048
  EXPECT_EQ(v.offset(131072, 0, 0, 0), 4294967296);  // 2^32: an unsigned would be 0
  // 24 layers: block stride 24 * 32,768 = 786,432, layer stride 32,768.
  v.shape.num_layers = 24;
  EXPECT_EQ(v.offset(0, 23, 1, 7), 23 * 32768 + 16384 + 7 * 2048);
  EXPECT_EQ(v.offset(65536, 23, 1, 7), 51540391936);  // 65,536 * 786,432 + 784,384
  EXPECT_EQ(v.offset(131072, 0, 0, 0), 103079215104);
}

TEST(paged_kv_view, block_of_reads_the_row_of_its_sequence) {
  const std::int32_t table[] = {7, 3, -1, 9, 2, 5};
  const paged_kv_view v{.block_table = table, .num_sequences = 2, .max_blocks = 3, .block_size = 16, .shape = small_shape};
  EXPECT_EQ(v.block_of(0, 0), 7);
  EXPECT_EQ(v.block_of(0, 15), 7);
  EXPECT_EQ(v.block_of(0, 16), 3);
  EXPECT_EQ(v.block_of(1, 15), 9);
  EXPECT_EQ(v.block_of(1, 47), 5);
}

TEST(block_tables, eight_tokens_in_blocks_of_four_are_two_full_blocks) {
  block_tables t;
  t.bind(binding(), 3, 4, "3 blocks");
  ASSERT_TRUE(t.reserve(seq_id{1}, 8));
  EXPECT_THAT(t.table_of(seq_id{1}), ElementsAre(0, 1)) << "the last block is full, a third one is not taken ahead";
  EXPECT_EQ(t.budget(), (kv_budget{.free_blocks = 1, .total_blocks = 3, .block_size = 4}));
  EXPECT_EQ(t.usage(), (kv_usage{.blocks_used = 2, .peak_blocks_used = 2, .tokens_stored = 8, .sequences = 1}));
  ASSERT_TRUE(t.reserve(seq_id{1}, 9));
  EXPECT_THAT(t.table_of(seq_id{1}), ElementsAre(0, 1, 2)) << "the ninth token takes it";
  EXPECT_FALSE(t.reserve(seq_id{1}, 13));
  EXPECT_TRUE(t.reserve(seq_id{1}, 12)) << "exactly the pool";
  EXPECT_EQ(t.budget().free_blocks, 0);
}

TEST(block_tables, blocks_go_out_lowest_first_and_come_back_last_freed_first) {
  block_tables t;
  t.bind(binding(), 6, 4, "6 blocks");
  ASSERT_TRUE(t.reserve(seq_id{1}, 5));
  ASSERT_TRUE(t.reserve(seq_id{2}, 4));
  ASSERT_TRUE(t.reserve(seq_id{1}, 9));
  EXPECT_THAT(t.table_of(seq_id{1}), ElementsAre(0, 1, 3));
  EXPECT_THAT(t.table_of(seq_id{2}), ElementsAre(2));
  t.release(seq_id{1});
  EXPECT_TRUE(t.table_of(seq_id{1}).empty());
  ASSERT_TRUE(t.reserve(seq_id{3}, 16));
  EXPECT_THAT(t.table_of(seq_id{3}), ElementsAre(0, 1, 3, 4)) << "warm blocks before a cold one";
  EXPECT_EQ(t.usage(), (kv_usage{.blocks_used = 5, .peak_blocks_used = 5, .tokens_stored = 20, .sequences = 2}));
}

TEST(block_tables, a_view_pads_short_rows) {
  block_tables t;
  t.bind(binding(), 6, 4, "6 blocks");
  ASSERT_TRUE(t.reserve(seq_id{1}, 9));
  ASSERT_TRUE(t.reserve(seq_id{2}, 1));
  const seq_id ids[] = {seq_id{2}, seq_id{1}};
  const paged_kv_view v = t.view(ids);
  EXPECT_EQ(v.max_blocks, 3);
  EXPECT_EQ(v.block_size, 4);
  EXPECT_THAT(std::vector<std::int32_t>(v.block_table, v.block_table + 6), ElementsAre(3, -1, -1, 0, 1, 2));
}

TEST(paged_kv, capacity_by_bytes_is_rounded_down_to_blocks) {
  std::int64_t asked = 0;
  paged_kv kv{{.bytes = 16 * 16 * 5 + 255, .block_size = 16}};
  kv.bind(binding());
  EXPECT_EQ(kv.budget(), (kv_budget{.free_blocks = 5, .total_blocks = 5, .block_size = 16}));
  paged_kv large{{.blocks = 131073, .block_size = 16}};  // bytes are ignored when blocks are given
  large.bind(binding({.num_layers = 24, .num_kv_heads = 8, .head_dim = 128, .type = dtype::bf16}, 8192, &asked));
  EXPECT_EQ(large.budget().total_blocks, 131073);
  EXPECT_EQ(asked, 131073LL * 16 * 98304) << "98,304 bytes a token";
}

TEST(paged_kv, impossible_settings_name_both_numbers) {
  EXPECT_THAT(error_of([] { paged_kv({.block_size = 15}); }), HasSubstr("block_size 15 is not in 16..256"));
  EXPECT_THAT(error_of([] { paged_kv({.block_size = 257}); }), HasSubstr("257"));
  EXPECT_THAT(error_of([] { paged_kv({.blocks = -1}); }), HasSubstr("blocks -1"));
  EXPECT_THAT(error_of([] { paged_kv({.bytes = -5}); }), HasSubstr("bytes -5"));
  EXPECT_NO_THROW(paged_kv({.block_size = 16}));
  EXPECT_NO_THROW(paged_kv({.block_size = 256}));
  const std::string small = error_of([] {
    paged_kv kv{{.bytes = 255, .block_size = 16}};
    kv.bind(binding());
  });
  EXPECT_THAT(small, HasSubstr("255 bytes"));
  EXPECT_THAT(small, HasSubstr("256 bytes"));
  paged_kv one{{.bytes = 256, .block_size = 16}};
  one.bind(binding());
  EXPECT_EQ(one.budget().total_blocks, 1) << "exactly one block fits";
}

TEST(contiguous_kv, one_piece_a_sequence) {
  contiguous_kv kv{{.bytes = 3 * 100 * 16 + 1599}};  // pieces of max_positions = 100 tokens, 16 bytes each
  kv.bind(binding());
  EXPECT_EQ(kv.budget(), (kv_budget{.free_blocks = 3, .total_blocks = 3, .block_size = 100}));
  EXPECT_EQ(kv.max_tokens_per_sequence(), 100);
  EXPECT_EQ(most_tokens_per_sequence(kv), 100);
  EXPECT_FALSE(kv.reserve(seq_id{1}, 101)) << "although three pieces are free";
  EXPECT_TRUE(kv.reserve(seq_id{1}, 100));
  EXPECT_EQ(kv.budget().free_blocks, 2);

  contiguous_kv counted{{.sequences = 2, .tokens_per_sequence = 40}};
  counted.bind(binding());
  EXPECT_EQ(counted.budget(), (kv_budget{.free_blocks = 2, .total_blocks = 2, .block_size = 40}));
  EXPECT_THAT(error_of([] { contiguous_kv({.sequences = -2}); }), HasSubstr("sequences -2"));
  const std::string small = error_of([] {
    contiguous_kv one{{.bytes = 1599}};
    one.bind(binding());
  });
  EXPECT_THAT(small, HasSubstr("1599 bytes"));
  EXPECT_THAT(small, HasSubstr("1600 bytes"));
}

TEST(most_tokens_per_sequence, is_the_whole_pool_of_a_paged_cache_and_one_piece_of_a_contiguous_one_behind_an_adaptor_too) {
  statistics_adaptor<paged_kv> paged(paged_kv{{.blocks = 5, .block_size = 16}});
  paged.bind(binding());
  EXPECT_EQ(most_tokens_per_sequence(paged), 80);
  statistics_adaptor<contiguous_kv> pieces(contiguous_kv{{.sequences = 5, .tokens_per_sequence = 16}});
  pieces.bind(binding());
  EXPECT_EQ(most_tokens_per_sequence(pieces), 16);
}

TEST(statistics_adaptor, counts_and_refuses_on_demand) {
  statistics_adaptor<paged_kv> kv(paged_kv{{.blocks = 4, .block_size = 16}});
  kv.bind(binding());
  ASSERT_TRUE(kv.reserve(seq_id{1}, 4));  // 1 of 16 slots quarters: 12 / 16 lost
  EXPECT_DOUBLE_EQ(kv.statistics().peak_fragmentation, 0.75);
  ASSERT_TRUE(kv.reserve(seq_id{1}, 16));
  ASSERT_TRUE(kv.reserve(seq_id{2}, 33));
  EXPECT_FALSE(kv.reserve(seq_id{3}, 1)) << "the pool is full";
  kv.release(seq_id{2});
  EXPECT_EQ(kv.statistics().reserves, 4);
  EXPECT_EQ(kv.statistics().failed_reserves, 1);
  EXPECT_EQ(kv.statistics().releases, 1);
  EXPECT_EQ(kv.statistics().peak_blocks_used, 4);
  EXPECT_DOUBLE_EQ(kv.statistics().peak_fragmentation, 0.75) << "49 of 64 slots: less was lost later";

  kv.fail_reserves(1, 2);
  EXPECT_TRUE(kv.reserve(seq_id{4}, 1));
  const kv_usage before = kv.usage();
  EXPECT_FALSE(kv.reserve(seq_id{4}, 17));
  EXPECT_FALSE(kv.reserve(seq_id{5}, 1));
  EXPECT_EQ(kv.usage(), before);
  EXPECT_TRUE(kv.reserve(seq_id{4}, 17));
  EXPECT_EQ(kv.statistics().failed_reserves, 3);
}

}  // namespace
}  // namespace vlbatch
