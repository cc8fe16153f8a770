// SPDX-License-Identifier: Apache-2.0
// The KV allocator conformance suite on the shipped caches, and on broken ones that it must find.
#include "conformance/kv_allocator_suite.hpp"

#include <gmock/gmock.h>

#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/kv/statistics_adaptor.hpp"

namespace vlbatch::testing {
namespace {

template <std::int32_t BlockSize>
struct paged_case {
  using kv_type = paged_kv;
  static paged_kv make() { return paged_kv{{.bytes = 0, .blocks = 21, .block_size = BlockSize}}; }
};
struct paged_bytes_case {
  using kv_type = paged_kv;
  static paged_kv make() { return paged_kv{{.bytes = 6 * 16 * suite_kv_shape.bytes_per_token() + 1, .block_size = 16}}; }
};
struct contiguous_case {
  using kv_type = contiguous_kv;
  static contiguous_kv make() { return contiguous_kv{{.bytes = 0, .sequences = 5, .tokens_per_sequence = 37}}; }
};
struct contiguous_bytes_case {
  using kv_type = contiguous_kv;
  static contiguous_kv make() { return contiguous_kv{{.bytes = 4 * suite_max_positions * suite_kv_shape.bytes_per_token()}}; }
};
template <class Base>
struct counted {
  using kv_type = statistics_adaptor<typename Base::kv_type>;
  static kv_type make() { return kv_type(Base::make()); }
};
using cases = ::testing::Types<paged_case<16>, paged_case<32>, paged_case<256>, paged_bytes_case, contiguous_case, contiguous_bytes_case,
                               counted<paged_case<16>>, counted<contiguous_case>>;
INSTANTIATE_TYPED_TEST_SUITE_P(shipped, kv_allocator_suite, cases);

// Allocators that are right but for one thing.
struct broken_base : paged_kv {
  broken_base() : paged_kv(settings{.bytes = 0, .blocks = 9, .block_size = 16}) {}
};
struct leaks : broken_base {
  void release(seq_id id) noexcept {
    if (id != seq_id{3}) broken_base::release(id);
  }
};
struct half_reserves : broken_base {
  [[nodiscard]] bool reserve(seq_id id, std::int32_t tokens) {
    if (broken_base::reserve(id, tokens)) return true;
    if (budget().free_blocks > 0) static_cast<void>(broken_base::reserve(id, 16 * (blocks_of(id) + 1)));
    return false;
  }
};
struct shares_a_block : broken_base {
  view_type view(std::span<const seq_id> ids) {
    view_type v = broken_base::view(ids);
    table.assign(v.block_table, v.block_table + v.num_sequences * v.max_blocks);
    for (std::int32_t& b : table) b = b == 4 ? 5 : b;
    v.block_table = table.data();
    return v;
  }
  std::vector<std::int32_t> table;
};
struct gives_up_early : broken_base {
  [[nodiscard]] bool reserve(seq_id id, std::int32_t tokens) {
    return budget().blocks_for(tokens) - blocks_of(id) < budget().free_blocks && broken_base::reserve(id, tokens);
  }
};

TEST(kv_allocator_suite_itself, finds_broken_allocators) {
  using ::testing::AnyOf;
  using ::testing::HasSubstr;
  EXPECT_EQ(check_kv_operations(broken_base(), 1, 400), "");
  EXPECT_THAT(check_kv_operations(leaks(), 1, 400), HasSubstr("free blocks are"));
  EXPECT_THAT(check_kv_operations(half_reserves(), 1, 400), HasSubstr("free blocks are"));
  EXPECT_THAT(check_kv_operations(shares_a_block(), 1, 400), AnyOf(HasSubstr("twice"), HasSubstr("was overwritten")));
  EXPECT_THAT(check_kv_operations(gives_up_early(), 1, 400), HasSubstr("reserve("));
}

}  // namespace
}  // namespace vlbatch::testing
