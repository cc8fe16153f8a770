// expect: p.plan\(state, plan\)
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct mine {
  static constexpr const char* name() { return "mine"; }
  vlbatch::limits limits() const { return {}; }
  vlbatch::step_plan plan(const vlbatch::scheduler_state&) { return {}; }
};
static_assert(vlbatch::batching_policy<mine>);
