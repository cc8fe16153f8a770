// SPDX-License-Identifier: Apache-2.0
/// \file
/// Conformance of a model, for users' own types too. Give a case
///
///     struct my_case {
///       using model_type = my_model;
///       static const my_model& model();                    // the same object each time
///       static std::vector<prepared_request> prompts();    // two or more, of different lengths; one with an image if the model sees
///       static bool available();                           // optional: false skips (an instruction set that is not there)
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(my_name, model_suite, ::testing::Types<my_case>);
///
/// Every comparison is bit for bit: it is what makes tokens independent of the policy, the cache and the lane.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance/model_driver.hpp"

// Typed tests derive from the suite: a local that is called as one of its members is no mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"

namespace vlbatch::testing {

/// True if both hold the same bits.
[[nodiscard]] inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

/// Expects logits equal bit for bit, and says where they are not.
inline void expect_same_rows(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t r = 0; r < a.size(); ++r) {
    if (same_bits(a[r], b[r])) continue;
    for (std::size_t c = 0; c < a[r].size(); ++c)
      ASSERT_TRUE(same_bits({&a[r][c], 1}, {&b[r][c], 1}))
          << what << ": row " << r << ", column " << c << ": " << a[r][c] << " and " << b[r][c];
  }
}

/// The suite; see the top of the file.
template <class Case>
class model_suite : public ::testing::Test {
 protected:
  using model_type = typename Case::model_type;
  using driver = model_driver<model_type>;
  using rows = typename driver::rows;
  using window = typename driver::window;
  static_assert(vlm_model<model_type>);

  void SetUp() override {
    if constexpr (requires { Case::available(); }) {
      if (!Case::available()) GTEST_SKIP() << "not available on this machine";
    }
    prompts_ = Case::prompts();
    ASSERT_GE(prompts_.size(), 2U) << "the suite needs two prompts";
  }
  // Tokens that a test decodes after prompt p: any will do, so long as they are the same in each run.
  [[nodiscard]] std::int32_t answer(std::size_t p, std::size_t step) const {
    return static_cast<std::int32_t>((p * 31 + step * 17 + 5) % static_cast<std::size_t>(Case::model().info().vocab_size));
  }
  // Logits of prompt p and of four decoded tokens, alone.
  [[nodiscard]] rows alone(std::size_t p, const driver_options& options = {}, std::int32_t chunk = 1 << 20) const {
    driver d(Case::model(), options);
    return alone(d, p, chunk);
  }
  [[nodiscard]] rows alone(driver& d, std::size_t p, std::int32_t chunk = 1 << 20) const {
    const std::int32_t s = d.add(prompts_[p]);
    rows out = d.run(s, chunk);
    for (std::size_t i = 0; i < 4; ++i) {
      d.append(s, answer(p, i));
      out.push_back(d.run(s).back());
    }
    return out;
  }

  std::vector<prepared_request> prompts_;
};
TYPED_TEST_SUITE_P(model_suite);

TYPED_TEST_P(model_suite, info_describes_something_that_can_run) {
  const model_info& info = TypeParam::model().info();
  EXPECT_GT(info.vocab_size, 0);
  EXPECT_GT(info.hidden_size, 0);
  EXPECT_GT(info.max_positions, 0);
  EXPECT_GT(info.kv.bytes_per_token(), 0);
  EXPECT_FALSE(info.name.empty());
  for (const std::int32_t id : info.eos_tokens) EXPECT_TRUE(id >= 0 && id < info.vocab_size) << id;
  for (const prepared_request& p : this->prompts_) {
    for (const std::int32_t id : p.tokens) EXPECT_TRUE(id >= 0 && id < info.vocab_size) << id;
    for (const prepared_image& image : p.images) EXPECT_EQ(image.tokens_per_tile, info.tokens_per_tile);
  }
  EXPECT_EQ(typename TypeParam::model_type(TypeParam::model()).info(), info) << "a copy";
}

TYPED_TEST_P(model_suite, logits_are_finite_and_differ_between_rows) {
  for (std::size_t p = 0; p < this->prompts_.size(); ++p) {
    const auto rows = this->alone(p);
    for (const auto& row : rows) {
      for (const float x : row) ASSERT_TRUE(std::isfinite(x)) << "prompt " << p;
    }
    for (std::size_t r = 1; r < rows.size(); ++r) ASSERT_FALSE(same_bits(rows[r], rows[r - 1])) << "prompt " << p << ", row " << r;
  }
}

TYPED_TEST_P(model_suite, prompt_cut_into_chunks) {
  for (std::size_t p = 0; p < this->prompts_.size(); ++p) {
    const auto whole = this->alone(p);
    for (const std::int32_t chunk : {1, 7, 16, 65})
      expect_same_rows(whole, this->alone(p, {}, chunk), "chunks of " + std::to_string(chunk));
  }
}

TYPED_TEST_P(model_suite, layout_of_the_cache) {
  for (std::size_t p = 0; p < this->prompts_.size(); ++p) {
    const auto expected = this->alone(p);
    const auto longest = static_cast<std::int32_t>(this->prompts_[p].tokens.size()) + 4;
    for (const std::int32_t block : {1, 5, 64, longest}) {
      // NaN everywhere: what nobody wrote may not enter the arithmetic, not even times zero.
      const driver_options options{.block_size = block, .blocks = longest / block + 3, .garbage = std::numeric_limits<float>::quiet_NaN()};
      expect_same_rows(expected, this->alone(p, options, 11), "blocks of " + std::to_string(block));
    }
  }
}

TYPED_TEST_P(model_suite, number_of_threads) {
  for (std::size_t p = 0; p < this->prompts_.size(); ++p) {
    const auto one = this->alone(p, {.threads = 1});
    for (const std::int32_t threads : {2, 3})
      expect_same_rows(one, this->alone(p, {.threads = threads}), std::to_string(threads) + " threads");
  }
}

// All prompts in one batch, each at its own pace, between pads and empty rows: prefill chunks of some beside decode rows of others.
TYPED_TEST_P(model_suite, company_in_the_batch) {
  using driver = typename TestFixture::driver;
  using window = typename TestFixture::window;
  const std::size_t n = this->prompts_.size();
  driver d(TypeParam::model(), {.blocks = 512});
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> answered(n, 0);
  std::vector<typename TestFixture::rows> got(n);
  for (const prepared_request& p : this->prompts_) ids.push_back(d.add(p));
  for (std::int32_t step = 0;; ++step) {
    std::vector<window> windows;
    std::vector<std::size_t> who;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t p = (i + static_cast<std::size_t>(step)) % n;  // the order changes too
      if (d.remaining(ids[p]) == 0 && answered[p] < 4) d.append(ids[p], this->answer(p, answered[p]++));
      if (d.remaining(ids[p]) == 0) continue;
      const std::int32_t chunk = 9 + 14 * static_cast<std::int32_t>(p);
      windows.push_back({ids[p], std::min(chunk, d.remaining(ids[p])), step % 3});
      who.push_back(p);
    }
    if (windows.empty()) break;
    auto rows = d.step(windows, step % 4);
    std::size_t next = 0;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      for (std::int32_t r = 0; r < windows[i].tokens; ++r) got[who[i]].push_back(std::move(rows[next++]));
    }
  }
  for (std::size_t p = 0; p < n; ++p) expect_same_rows(this->alone(p), got[p], "prompt " + std::to_string(p));
}

TYPED_TEST_P(model_suite, wanted_rows_alone_are_computed_the_same) {
  using driver = typename TestFixture::driver;
  using wanted = typename driver::wanted_rows;
  for (std::size_t p = 0; p < this->prompts_.size(); ++p) {
    const auto all = this->alone(p);
    driver d(TypeParam::model());
    const std::int32_t s = d.add(this->prompts_[p]);
    const auto length = static_cast<std::int32_t>(this->prompts_[p].tokens.size());
    const typename driver::window most{s, length - 1};
    EXPECT_TRUE(d.step({&most, 1}, 0, wanted::none).empty());
    const typename driver::window last{s, 1};
    const auto one = d.step({&last, 1}, 0, wanted::last_of_each);
    ASSERT_EQ(one.size(), 1U);
    expect_same_rows({all[static_cast<std::size_t>(length) - 1]}, one, "last row of prompt " + std::to_string(p));
  }
}

TYPED_TEST_P(model_suite, tiles_alone_together_and_in_any_order) {
  const auto& model = TypeParam::model();
  auto workspace = model.make_workspace(1);
  using driver = typename TestFixture::driver;
  const driver d(model);
  std::vector<tile_input> tiles;
  for (const prepared_request& p : this->prompts_) {
    for (const prepared_image& image : p.images) {
      for (std::int32_t t = 0; t < image.pixels->num_tiles; ++t) tiles.push_back({image.pixels.get(), t, nullptr});
    }
  }
  if (tiles.empty()) GTEST_SKIP() << "no prompt has an image";
  const auto run = [&](const std::vector<std::size_t>& order, std::size_t group) {
    std::vector<std::shared_ptr<std::byte>> memory;
    for (std::size_t i = 0; i < tiles.size(); ++i) memory.push_back(d.embedding_memory(1));
    for (std::size_t first = 0; first < order.size(); first += group) {
      std::vector<tile_input> some;
      for (std::size_t i = first; i < std::min(first + group, order.size()); ++i) {
        tile_input t = tiles[order[i]];
        t.embeddings = driver::floats(memory[order[i]]);
        some.push_back(t);
      }
      model.encode(workspace, some);
    }
    std::vector<std::vector<float>> out;
    for (const auto& m : memory) out.emplace_back(driver::floats(m), driver::floats(m) + d.tile_elements());
    return out;
  };
  std::vector<std::size_t> order(tiles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto single = run(order, 1);
  for (const auto& e : single) {
    for (const float x : e) ASSERT_TRUE(std::isfinite(x));
  }
  expect_same_rows(single, run(order, order.size()), "all together");
  std::reverse(order.begin(), order.end());
  expect_same_rows(single, run(order, 3), "in threes, backwards");
}

// What an engine and an asynchronous lane do: forward passes on one workspace while tiles are encoded on another, weights shared.
TYPED_TEST_P(model_suite, two_workspaces_at_once) {
  const auto expected0 = this->alone(0);
  const auto expected1 = this->alone(1);
  typename TestFixture::rows got0, got1;
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) got1 = this->alone(1, {.threads = 2});
  });
  for (int i = 0; i < 3; ++i) got0 = this->alone(0);
  other.join();
  expect_same_rows(expected0, got0, "this thread");
  expect_same_rows(expected1, got1, "the other thread");
}

// A workspace keeps memory from call to call: what an earlier, larger batch left there may not show.
TYPED_TEST_P(model_suite, workspace_used_before) {
  using driver = typename TestFixture::driver;
  driver used(TypeParam::model(), {.blocks = 512});
  for (std::size_t p = this->prompts_.size(); p-- > 0;)
    expect_same_rows(this->alone(p), this->alone(used, p), "prompt " + std::to_string(p));
}

REGISTER_TYPED_TEST_SUITE_P(model_suite, info_describes_something_that_can_run, logits_are_finite_and_differ_between_rows,
                            prompt_cut_into_chunks, layout_of_the_cache, number_of_threads, company_in_the_batch,
                            wanted_rows_alone_are_computed_the_same, tiles_alone_together_and_in_any_order, two_workspaces_at_once,
                            workspace_used_before);

}  // namespace vlbatch::testing

#pragma GCC diagnostic pop
