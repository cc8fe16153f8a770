// SPDX-License-Identifier: Apache-2.0
/// \file
/// Conformance of a KV allocator, for users' own types too. Give a case
///
///     struct my_case {
///       using kv_type = my_kv;
///       static my_kv make();  // not bound yet; room for 4 blocks or more, and few enough to run out of in a test (say 64)
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(my_name, kv_allocator_suite, ::testing::Types<my_case>);
///
/// Views of type `paged_kv_view` are also written and read through, so that an allocator that mixes sequences up is found by its effect.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "vlbatch/kv/kv_allocator.hpp"

namespace vlbatch::testing {

/// What the suite's model keeps of a token, small and of no special shape.
inline constexpr kv_shape suite_kv_shape{.num_layers = 2, .num_kv_heads = 3, .head_dim = 2, .type = dtype::f32};
inline constexpr std::int32_t suite_max_positions = 512;

/// A binding whose memory is exactly as long as asked for, so that a sanitizer sees what lies beyond. \p asked counts the bytes.
[[nodiscard]] inline kv_binding suite_binding(std::int64_t* asked = nullptr) {
  return {.shape = suite_kv_shape, .max_positions = suite_max_positions, .allocate = [asked](std::int64_t n) {
            if (asked != nullptr) *asked += n;
            auto* p = new std::byte[static_cast<std::size_t>(n)]();
            return std::shared_ptr<std::byte>(p, [](const std::byte* q) { delete[] q; });
          }};
}

/// An allocator beside the simplest possible account of what it should hold. Every operation is done on both and compared; `wrong()` is the
/// first difference, empty if there is none.
template <kv_allocator Kv>
class kv_model {
 public:
  explicit kv_model(Kv kv) : kv_(std::move(kv)) {
    kv_.bind(suite_binding(&bytes_));
    start_ = kv_.budget();
    most_ = most_tokens_per_sequence(kv_);
    if (start_.free_blocks != start_.total_blocks || start_.total_blocks < 1 || start_.block_size < 1) say("budget of an empty cache");
    const std::int64_t needed = std::int64_t{start_.total_blocks} * start_.block_size * suite_kv_shape.bytes_per_token();
    if (bytes_ < needed) say("storage of " + std::to_string(bytes_) + " bytes for blocks of " + std::to_string(needed));
    compare();
  }

  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  [[nodiscard]] Kv& kv() { return kv_; }
  [[nodiscard]] std::int64_t most_tokens() const { return most_; }
  [[nodiscard]] kv_budget empty_budget() const { return start_; }
  [[nodiscard]] std::int32_t blocks_of(seq_id id) const {
    const auto it = tokens_.find(id);
    return it == tokens_.end() ? 0 : start_.blocks_for(it->second);
  }
  [[nodiscard]] std::int32_t tokens_of(seq_id id) const { return tokens_.contains(id) ? tokens_.at(id) : 0; }
  [[nodiscard]] std::int32_t blocks_used() const {
    std::int32_t sum = 0;
    for (const auto& [id, t] : tokens_) sum += start_.blocks_for(t);
    return sum;
  }
  [[nodiscard]] std::vector<seq_id> ids() const {
    std::vector<seq_id> out;
    for (const auto& [id, t] : tokens_) out.push_back(id);
    return out;
  }

  /// True if it succeeded.
  bool reserve(seq_id id, std::int32_t tokens) {
    const std::int32_t more = start_.blocks_for(tokens) - blocks_of(id);
    const bool expected = tokens <= most_ && more <= start_.total_blocks - blocks_used();
    const bool got = kv_.reserve(id, tokens);
    if (got != expected) say("reserve(" + text(id) + ", " + std::to_string(tokens) + ") is " + std::to_string(got));
    if (got) {
      const std::int32_t before = tokens_of(id);
      if (tokens > before) tokens_[id] = tokens;
      peak_ = std::max(peak_, blocks_used());
      write(id, before);
    }
    compare();
    return got;
  }
  void release(seq_id id) {
    kv_.release(id);
    tokens_.erase(id);
    compare();
  }

  /// Everything that can be seen from outside.
  void compare() {
    const std::int32_t used = blocks_used();
    const kv_budget b = kv_.budget();
    if (b.total_blocks != start_.total_blocks || b.block_size != start_.block_size) say("capacity changed");
    if (b.free_blocks + b.evictable_blocks != start_.total_blocks - used)
      say("free blocks are " + std::to_string(b.free_blocks + b.evictable_blocks) + ", expected " +
          std::to_string(start_.total_blocks - used));
    std::int64_t stored = 0;
    for (const auto& [id, t] : tokens_) {
      stored += t;
      if (kv_.blocks_of(id) != start_.blocks_for(t)) say("blocks of " + text(id) + " are " + std::to_string(kv_.blocks_of(id)));
    }
    const kv_usage expected{
        .blocks_used = used, .peak_blocks_used = peak_, .tokens_stored = stored, .sequences = static_cast<std::int32_t>(tokens_.size())};
    const kv_usage u = kv_.usage();
    if (u != expected)
      say("usage is " + std::to_string(u.blocks_used) + " blocks, peak " + std::to_string(u.peak_blocks_used) + ", " +
          std::to_string(u.tokens_stored) + " tokens, " + std::to_string(u.sequences) + " sequences; expected " + std::to_string(used) +
          ", " + std::to_string(peak_) + ", " + std::to_string(stored) + ", " + std::to_string(tokens_.size()));
  }

  /// The view of \p ids: right table, no block twice, ids within range, and every token still what was written.
  void read(const std::vector<seq_id>& ids) {
    if constexpr (std::is_same_v<typename Kv::view_type, paged_kv_view>) {
      const paged_kv_view v = kv_.view(ids);
      if (v.num_sequences != static_cast<std::int32_t>(ids.size()) || v.block_size != start_.block_size || v.shape != suite_kv_shape)
        say("the view's header");
      std::set<std::int32_t> seen;
      for (std::int32_t s = 0; s < v.num_sequences; ++s) {
        const seq_id id = ids[static_cast<std::size_t>(s)];
        if (blocks_of(id) > v.max_blocks) {
          say("the table is narrower than " + text(id));
          return;
        }
        for (std::int32_t k = 0; k < blocks_of(id); ++k) {
          const std::int32_t block = v.block_table[s * v.max_blocks + k];
          if (block < 0 || block >= start_.total_blocks) {
            say("block id " + std::to_string(block));
            return;
          }
          if (!seen.insert(block).second) say("block " + std::to_string(block) + " twice");
        }
        for (std::int32_t p = 0; p < tokens_of(id); ++p)
          visit(v, s, p, [&](float& x, std::int32_t e) {
            if (x != value(id, p, e)) say("token " + std::to_string(p) + " of " + text(id) + " was overwritten");
          });
      }
    }
  }

 private:
  static std::string text(seq_id id) { return std::to_string(static_cast<std::uint64_t>(id)); }
  static float value(seq_id id, std::int32_t position, std::int32_t element) {
    return static_cast<float>((static_cast<std::int64_t>(id) * 1031 + position) * 24 + element);
  }
  template <class F>
  static void visit(const paged_kv_view& v, std::int32_t s, std::int32_t p, F&& f) {
    auto* data = reinterpret_cast<float*>(v.data);
    std::int32_t element = 0;
    for (std::int32_t layer = 0; layer < v.shape.num_layers; ++layer)
      for (std::int32_t kind = 0; kind < 2; ++kind)
        for (std::int32_t head = 0; head < v.shape.num_kv_heads; ++head)
          for (std::int32_t d = 0; d < v.shape.head_dim; ++d)
            f(data[v.offset(v.block_of(s, p), layer, kind, head) + p % v.block_size * v.shape.head_dim + d], element++);
  }
  void write(seq_id id, std::int32_t from) {
    if constexpr (std::is_same_v<typename Kv::view_type, paged_kv_view>) {
      if (!wrong_.empty()) return;
      const paged_kv_view v = kv_.view(std::span(&id, 1));
      for (std::int32_t p = from; p < tokens_of(id); ++p) visit(v, 0, p, [&](float& x, std::int32_t e) { x = value(id, p, e); });
    }
  }
  void say(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  Kv kv_;
  kv_budget start_;
  std::int64_t most_ = 0;
  std::int64_t bytes_ = 0;
  std::int32_t peak_ = 0;
  std::map<seq_id, std::int32_t> tokens_;
  std::string wrong_;
};

/// \p steps operations drawn with \p seed on \p kv. \return the first thing that is not as it should be, empty if all is well
template <kv_allocator Kv>
[[nodiscard]] std::string check_kv_operations(Kv kv, std::uint32_t seed, int steps) {
  kv_model<Kv> m(std::move(kv));
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t n) { return static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(n)); };
  for (int i = 0; i < steps && m.wrong().empty(); ++i) {
    const seq_id id{1 + static_cast<std::uint64_t>(below(9))};
    switch (below(8)) {
      case 0:
        m.release(id);
        break;
      case 1:  // anything at all
        m.reserve(id, below(m.most_tokens() + m.empty_budget().block_size + 1));
        break;
      case 2: {  // exactly what is free
        const kv_budget b = m.kv().budget();
        const std::int64_t all = std::int64_t{m.blocks_of(id) + b.free_blocks} * b.block_size;
        if (all < 1 << 20) m.reserve(id, static_cast<std::int32_t>(all) + below(2));
        break;
      }
      case 3:  // less than it holds: no change
        m.reserve(id, below(m.tokens_of(id) + 1));
        break;
      default:  // grows by a step or a chunk
        m.reserve(id, m.tokens_of(id) + 1 + (below(3) == 0 ? below(2 * m.empty_budget().block_size) : 0));
    }
    if (i % 7 == 0) m.read(m.ids());
  }
  m.read(m.ids());
  for (std::uint64_t id = 1; id <= 9; ++id) m.release(seq_id{id});
  if (!m.wrong().empty()) return m.wrong();
  if (m.kv().usage().blocks_used != 0 || m.kv().usage().tokens_stored != 0 || m.kv().usage().sequences != 0)
    return "usage is not zero at the end";
  if (m.kv().budget() != m.empty_budget()) return "budget at the end is not that of the beginning";
  return {};
}

/// The suite; see the top of the file.
template <class Case>
class kv_allocator_suite : public ::testing::Test {
 protected:
  using kv_type = typename Case::kv_type;
  kv_model<kv_type> m_{Case::make()};
  void TearDown() override { EXPECT_EQ(m_.wrong(), ""); }
};
TYPED_TEST_SUITE_P(kv_allocator_suite);

TYPED_TEST_P(kv_allocator_suite, has_a_name_and_starts_empty) {
  EXPECT_FALSE(std::string_view(TypeParam::kv_type::name()).empty());
  EXPECT_EQ(this->m_.kv().usage(), kv_usage{});
  EXPECT_EQ(this->m_.kv().blocks_of(seq_id{7}), 0);
  ASSERT_GE(this->m_.kv().budget().total_blocks, 4) << "the case's cache is too small for this suite";
}

TYPED_TEST_P(kv_allocator_suite, releasing_what_is_not_there_is_no_error) {
  this->m_.release(seq_id{3});
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, 1));
  this->m_.release(seq_id{3});
  this->m_.release(seq_id{1});
  this->m_.release(seq_id{1});
  EXPECT_EQ(this->m_.kv().usage().blocks_used, 0);
}

TYPED_TEST_P(kv_allocator_suite, a_reservation_of_nothing_holds_nothing) {
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, 0));
  EXPECT_EQ(this->m_.kv().usage(), kv_usage{});
}

TYPED_TEST_P(kv_allocator_suite, a_block_is_taken_when_its_first_token_is) {
  const std::int32_t size = this->m_.empty_budget().block_size;
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, 1));
  EXPECT_EQ(this->m_.kv().blocks_of(seq_id{1}), 1);
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, size));
  EXPECT_EQ(this->m_.kv().blocks_of(seq_id{1}), 1);
  if (size + 1 > this->m_.most_tokens()) {
    EXPECT_FALSE(this->m_.reserve(seq_id{1}, size + 1));
    return;
  }
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, size + 1));
  EXPECT_EQ(this->m_.kv().blocks_of(seq_id{1}), 2);
}

TYPED_TEST_P(kv_allocator_suite, never_shrinks) {
  const auto all = static_cast<std::int32_t>(std::min<std::int64_t>(this->m_.most_tokens(), 3LL * this->m_.empty_budget().block_size));
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, all));
  const kv_usage before = this->m_.kv().usage();
  for (const std::int32_t less : {all - 1, 1, 0}) {
    ASSERT_TRUE(this->m_.reserve(seq_id{1}, less));
    EXPECT_EQ(this->m_.kv().usage(), before);
  }
}

TYPED_TEST_P(kv_allocator_suite, the_last_block_fits_and_one_more_does_not) {
  const kv_budget b = this->m_.empty_budget();
  const auto piece = static_cast<std::int32_t>(std::min<std::int64_t>(this->m_.most_tokens(), 2LL * b.block_size));
  std::uint64_t id = 0;
  while (this->m_.kv().budget().free_blocks >= b.blocks_for(piece)) ASSERT_TRUE(this->m_.reserve(seq_id{++id}, piece));
  while (this->m_.kv().budget().free_blocks > 0) ASSERT_TRUE(this->m_.reserve(seq_id{++id}, b.block_size));
  EXPECT_EQ(this->m_.kv().usage().blocks_used, b.total_blocks);
  const kv_usage full = this->m_.kv().usage();
  EXPECT_FALSE(this->m_.reserve(seq_id{id + 1}, 1));
  EXPECT_EQ(this->m_.kv().blocks_of(seq_id{id + 1}), 0);
  EXPECT_FALSE(this->m_.reserve(seq_id{id}, this->m_.tokens_of(seq_id{id}) + 1)) << "no block is left for it to grow";
  EXPECT_EQ(this->m_.kv().usage(), full) << "a refused reservation changes nothing";
  this->m_.read(this->m_.ids());
  this->m_.release(seq_id{1});
  EXPECT_TRUE(this->m_.reserve(seq_id{id + 1}, 1)) << "what was released is free again";
}

TYPED_TEST_P(kv_allocator_suite, a_view_shows_the_sequences_asked_for_in_their_order) {
  const std::int32_t size = this->m_.empty_budget().block_size;
  ASSERT_TRUE(this->m_.reserve(seq_id{1}, 1));
  ASSERT_TRUE(this->m_.reserve(seq_id{2}, static_cast<std::int32_t>(std::min<std::int64_t>(this->m_.most_tokens(), 2LL * size))));
  ASSERT_TRUE(this->m_.reserve(seq_id{3}, size));
  for (const std::vector<seq_id>& ids : {std::vector<seq_id>{}, {seq_id{2}}, {seq_id{3}, seq_id{1}}, {seq_id{2}, seq_id{3}, seq_id{1}}})
    this->m_.read(ids);
}

TYPED_TEST_P(kv_allocator_suite, random_operations_agree_with_a_simple_account) {
  for (std::uint32_t seed = 1; seed <= 6; ++seed) ASSERT_EQ(check_kv_operations(TypeParam::make(), seed, 250), "") << "seed " << seed;
}

REGISTER_TYPED_TEST_SUITE_P(kv_allocator_suite, has_a_name_and_starts_empty, releasing_what_is_not_there_is_no_error,
                            a_reservation_of_nothing_holds_nothing, a_block_is_taken_when_its_first_token_is, never_shrinks,
                            the_last_block_fits_and_one_more_does_not, a_view_shows_the_sequences_asked_for_in_their_order,
                            random_operations_agree_with_a_simple_account);

}  // namespace vlbatch::testing
