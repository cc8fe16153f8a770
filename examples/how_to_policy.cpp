// SPDX-License-Identifier: Apache-2.0
// docs/how_to/add_a_policy.md shows this file.
#include <cstdio>
#include <vlbatch/vlbatch.hpp>

namespace vb = vlbatch;

//! [policy]
// Shortest prompt first: like continuous batching without preemption, but the waiting request with the fewest prompt tokens goes next.
struct shortest_prompt_first {
  vb::limits bounds;
  vb::plan_ledger scratch{};
  std::vector<vb::seq_slot> order{};

  static constexpr std::string_view name() { return "shortest_prompt_first"; }
  vb::limits limits() const { return bounds; }

  void plan(const vb::scheduler_state& state, vb::step_plan& plan) {
    vb::plan_builder b(state, plan, scratch);
    for (const vb::seq_slot s : state.running) b.try_run(b[s]);
    order.assign(state.waiting.begin(), state.waiting.end());
    std::stable_sort(order.begin(), order.end(), [&](auto x, auto y) { return b[x].prompt_tokens < b[y].prompt_tokens; });
    for (const vb::seq_slot s : order) {
      if (b.ledger().free_sequences() == 0) break;
      b.try_encode_all(b[s]);
      if (b.ready(b[s]) && b.try_promise(b[s])) b.try_run(b[s]);
    }
  }
};
static_assert(vb::batching_policy<shortest_prompt_first>);
//! [policy]

int main(int argc, char** argv) {
  if (argc < 2) return std::printf("usage: how_to_policy MODEL_FOLDER\n"), 2;
  //! [use]
  const auto model = vb::idefics3<vb::cpu>::load(argv[1]);
  // Requests are prepared in the step, not by a thread beside it: the policy sees all three at once, whatever the machine is doing.
  vb::engine e{model, vb::paged_kv{{.bytes = 16 << 20}}, shortest_prompt_first{{.max_num_seqs = 2}}, vb::parts<>{},
               vb::engine_options{.preparation_threads = 0}};
  std::vector<vb::request> requests(3);
  const char* prompts[] = {"Describe the picture in as many words as you can find.", "Describe the picture.", "Hello."};
  for (int i = 0; i < 3; ++i) {
    requests[i].messages = {{.role = "user", .parts = {vb::text_part{prompts[i]}}}};
    requests[i].max_new_tokens = 4;
    requests[i].ignore_eos = true;
  }
  const std::vector<vb::result> results = e.generate(requests);
  for (const vb::result& r : results)
    std::printf("%s, first token after %.1f ms\n", vb::name_of(r.outcome), 1e3 * vb::to_seconds(r.when.first_token - r.when.arrival));
  //! [use]
  return results[0].outcome == vb::status::finished && results[2].when.first_token <= results[0].when.first_token ? 0 : 1;
}
