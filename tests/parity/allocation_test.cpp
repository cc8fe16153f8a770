// SPDX-License-Identifier: Apache-2.0
// A steady step allocates nothing. Counts every operator new of this program, threads of the team included.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "parity/golden.hpp"
#include "support/count_allocations.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"

namespace vlbatch::testing {
namespace {

class steady_state : public ::testing::TestWithParam<std::int32_t> {
 protected:
  const idefics3<cpu> model_ = idefics3<cpu>::load(golden_model_folder("idefics3-f32-splitting"));
};

// 8 sequences decode from position 40 to 100, one row each; then 4 of them, then all again.
TEST_P(steady_state, decode_steps) {
  constexpr std::int32_t sequences = 8;
  constexpr std::int32_t length = 128;
  const auto memory = model_.allocate(model_.info().kv.bytes_per_token() * sequences * length);
  auto workspace = model_.make_workspace(GetParam());
  std::vector<std::int32_t> table(sequences), begin(sequences + 1), ones(sequences, 1), context(sequences), ids(sequences, 7),
      rows(sequences);
  std::iota(table.begin(), table.end(), 0);
  std::iota(begin.begin(), begin.end(), 0);
  std::iota(rows.begin(), rows.end(), 0);
  const auto step = [&](std::int32_t n, std::int32_t position) {
    const auto count = static_cast<std::size_t>(n);
    std::fill(context.begin(), context.end(), position);
    const std::span<const std::int32_t> all(context);
    const forward_input in{.map = {n, n, std::span<const std::int32_t>(begin).first(count + 1),
                                   std::span<const std::int32_t>(ones).first(count), all.first(count)},
                           .axes = 1,
                           .token_ids = std::span<const std::int32_t>(ids).first(count),
                           .positions = all.first(count),
                           .images = {},
                           .logit_rows = std::span<const std::int32_t>(rows).first(count)};
    const paged_kv_view kv{memory.get(), table.data(), n, 1, length, model_.info().kv};
    model_.wait(workspace, model_.forward(workspace, in, kv));
  };
  for (std::int32_t p = 0; p < 40; ++p) step(sequences, p);
  const std::int64_t before = allocations_so_far.load();
  for (std::int32_t p = 40; p < 60; ++p) step(sequences, p);
  for (std::int32_t p = 60; p < 80; ++p) step(sequences / 2, p);
  for (std::int32_t p = 60; p < 100; ++p) step(sequences, p);
  EXPECT_EQ(allocations_so_far.load() - before, 0);
}

TEST_P(steady_state, encoding) {
  const std::vector<golden_case> goldens = load_goldens("idefics3-f32-splitting");
  const prepared_request prompt = model_.prepare(goldens.front().ask);
  ASSERT_FALSE(prompt.images.empty());
  const auto pixels = prompt.images.front().pixels;
  auto workspace = model_.make_workspace(GetParam());
  const std::int64_t tile = std::int64_t{model_.info().tokens_per_tile} * model_.info().hidden_size;
  std::vector<float> out(static_cast<std::size_t>(tile * pixels->num_tiles));
  std::vector<tile_input> tiles;
  for (std::int32_t t = 0; t < pixels->num_tiles; ++t) tiles.push_back({pixels.get(), t, out.data() + t * tile});
  model_.encode(workspace, tiles);
  const std::int64_t before = allocations_so_far.load();
  for (int i = 0; i < 5; ++i) model_.encode(workspace, tiles);
  EXPECT_EQ(allocations_so_far.load() - before, 0);
}

INSTANTIATE_TEST_SUITE_P(threads, steady_state, ::testing::Values(1, 2));

}  // namespace
}  // namespace vlbatch::testing
