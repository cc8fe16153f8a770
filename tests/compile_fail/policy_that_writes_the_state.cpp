// expect: (read-only|not assignable)
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct mine {
  static constexpr const char* name() { return "mine"; }
  vlbatch::limits limits() const { return {}; }
  void plan(const vlbatch::scheduler_state& state, vlbatch::step_plan&) {
    state.table[state.waiting[0]].computed_tokens = 5;  // the state is the engine's
  }
};
static_assert(vlbatch::batching_policy<mine>);
