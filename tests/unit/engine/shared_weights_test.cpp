// SPDX-License-Identifier: Apache-2.0
// A model is loaded once: engines on different threads share its weights and nothing else.
#include <gtest/gtest.h>

#include <thread>

#include "parity/golden.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {
namespace {

TEST(shared_weights, two_engines_of_one_model_on_two_threads) {
  const auto model = idefics3<cpu>::load(golden_model_folder("smolvlm-bf16-tied-sharded"));
  std::vector<request> requests;
  for (int i = 0; i < 4; ++i) {
    for (const golden_case& g : load_goldens("smolvlm-bf16-tied-sharded")) {
      requests.push_back(g.ask);
      requests.back().max_new_tokens = 4 + i;
      requests.back().ignore_eos = true;
    }
  }
  std::vector<result> one;
  std::vector<result> other;
  {
    engine a{model, paged_kv{{.bytes = 0, .blocks = 40, .block_size = 16}}, continuous{{.max_num_seqs = 5}}, parts<async_vision>{},
             engine_options{.threads = 2}};
    engine b{model, contiguous_kv{{.bytes = 0, .sequences = 2}}, sequential{}, parts<inline_vision>{}, engine_options{.threads = 1}};
    std::thread first([&] { one = a.generate(requests); });
    std::thread second([&] { other = b.generate(requests); });
    first.join();
    second.join();
  }
  ASSERT_EQ(one.size(), requests.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].outcome, status::finished) << one[i].reason;
    EXPECT_EQ(one[i].tokens.size(), static_cast<std::size_t>(requests[i].max_new_tokens));
    EXPECT_EQ(one[i].tokens, other[i].tokens) << i;
  }
}

}  // namespace
}  // namespace vlbatch::testing
