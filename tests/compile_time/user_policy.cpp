// SPDX-License-Identifier: Apache-2.0
// What a user compiles again and again: one policy, run on the shipped model. Measured by limit.sh, never run.
#include <vlbatch/engine.hpp>
#include <vlbatch/kv/paged.hpp>
#include <vlbatch/model/idefics3/idefics3.hpp>

namespace vb = vlbatch;

struct shortest_first {
  vb::limits bounds;
  vb::plan_ledger scratch{};

  static constexpr std::string_view name() { return "shortest_first"; }
  vb::limits limits() const { return bounds; }
  void plan(const vb::scheduler_state& state, vb::step_plan& plan) {
    vb::plan_builder b(state, plan, scratch);
    for (const vb::seq_slot s : state.running) b.try_run(b[s]);
    const auto shorter = [&](vb::seq_slot x, vb::seq_slot y) { return b[x].prompt_tokens < b[y].prompt_tokens; };
    const auto best = std::min_element(state.waiting.begin(), state.waiting.end(), shorter);
    if (best == state.waiting.end()) return;
    b.try_encode_all(b[*best]);
    if (b.try_promise(b[*best])) b.try_run(b[*best]);
  }
};

std::vector<vb::result> answer(const std::string& folder, const std::vector<vb::request>& requests) {
  vb::engine e{vb::idefics3<vb::cpu>::load(folder), vb::paged_kv{{.bytes = 64 << 20}}, shortest_first{{.max_num_seqs = 8}}};
  return e.generate(requests);
}
