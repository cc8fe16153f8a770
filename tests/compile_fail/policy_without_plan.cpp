// expect: batching_policy
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct mine {
  static constexpr const char* name() { return "mine"; }
  vlbatch::limits limits() const { return {}; }
};
using refused = vlbatch::engine<vlbatch::testing::fake_model, vlbatch::paged_kv, mine>;
