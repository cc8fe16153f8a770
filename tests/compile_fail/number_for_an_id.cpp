// expect: (could not convert|cannot convert|no viable conversion|invalid conversion|no known conversion)
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

using mine = vlbatch::engine<vlbatch::testing::fake_model, vlbatch::paged_kv, vlbatch::continuous>;
void cancel(mine& e) { e.cancel(5); }
