// expect: is_trivially_copyable
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct my_kv : vlbatch::paged_kv {
  struct view_type {
    std::vector<int> table;
  };
  view_type view(std::span<const vlbatch::seq_id>) { return {}; }
};
static_assert(vlbatch::kv_allocator<my_kv>);
