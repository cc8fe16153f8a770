// expect: runs_on
// SPDX-License-Identifier: Apache-2.0
#include "support/fake_model.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/paged.hpp"

struct pages {
  void* first = nullptr;
};
struct my_kv : vlbatch::paged_kv {
  using paged_kv::paged_kv;
  using view_type = pages;
  pages view(std::span<const vlbatch::seq_id>) { return {}; }
};
static_assert(vlbatch::kv_allocator<my_kv>);
using mine = vlbatch::engine<vlbatch::testing::fake_model, my_kv, vlbatch::continuous>;
