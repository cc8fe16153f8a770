// expect: (use of deleted function|call to deleted constructor)
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

using mine = vlbatch::engine<vlbatch::testing::fake_model, vlbatch::paged_kv, vlbatch::continuous>;
void copy(mine& e) { mine other(e); }
