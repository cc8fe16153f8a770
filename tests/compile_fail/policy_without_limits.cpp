// expect: cp.limits\(\)
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct mine {
  static constexpr const char* name() { return "mine"; }
  void plan(const vlbatch::scheduler_state&, vlbatch::step_plan&) {}
};
static_assert(vlbatch::batching_policy<mine>);
