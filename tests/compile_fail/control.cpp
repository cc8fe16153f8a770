// expect: success
// SPDX-License-Identifier: Apache-2.0
// The control: what the other files of this folder get wrong, done right.
#include "support/fake_model.hpp"
#include "vlbatch/batching/batching_policy.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct mine {
  static constexpr const char* name() { return "mine"; }
  vlbatch::limits limits() const { return {}; }
  void plan(const vlbatch::scheduler_state&, vlbatch::step_plan&) {}
};
int main() { vlbatch::engine e{vlbatch::testing::fake_model(), vlbatch::paged_kv{{.blocks = 4}}, mine()}; }
