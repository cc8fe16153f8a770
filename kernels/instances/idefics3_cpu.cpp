// SPDX-License-Identifier: Apache-2.0
// The Idefics3 family on the CPU backend, compiled once: users' files see `extern template` alone.
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/model/idefics3/detail/idefics3_impl.hpp"

namespace vlbatch::inline v0 {

template class idefics3<cpu>;

static_assert(vlm_model<idefics3<cpu>>);
static_assert(runs_on<idefics3<cpu>, paged_kv_view>);

}  // namespace vlbatch::inline v0
