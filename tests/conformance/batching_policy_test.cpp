// SPDX-License-Identifier: Apache-2.0
// The batching policy conformance suite on the shipped policies, and on broken ones that it must find.
#include "conformance/batching_policy_suite.hpp"

#include <gmock/gmock.h>

#include "support/count_allocations.hpp"
#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"

namespace vlbatch::testing {
namespace {

template <class Policy>
struct shipped_case {
  using policy_type = Policy;
  static Policy make(const limits& l) { return Policy(l); }
  static std::int64_t allocations() { return allocations_so_far; }
};
using cases =
    ::testing::Types<shipped_case<sequential>, shipped_case<static_batching>, shipped_case<padded_static>, shipped_case<continuous>>;
INSTANTIATE_TYPED_TEST_SUITE_P(shipped, batching_policy_suite, cases);

// Policies that are right but for one thing.
struct remembers_planning : continuous {
  using continuous::continuous;
  int calls = 0;
  void plan(const scheduler_state& s, step_plan& p) {
    continuous::plan(s, p);
    if (++calls % 5 == 0 && !p.run.empty()) p.run.pop_back();
  }
};
struct remembers_quietly : continuous {  // planning twice in a row agrees, but who planned less often is behind
  using continuous::continuous;
  time_point last{};
  int steps = 0;
  void plan(const scheduler_state& s, step_plan& p) {
    steps += s.now != last ? 1 : 0;
    last = s.now;
    continuous::plan(s, p);
    if (steps % 3 == 0 && p.run.size() > 1) p.run.pop_back();
  }
};
struct allocates : continuous {
  using continuous::continuous;
  void plan(const scheduler_state& s, step_plan& p) {
    const std::vector<seq_slot> copy(s.waiting.begin(), s.waiting.end());
    continuous::plan(s, p);
  }
};
struct lazy : continuous {
  using continuous::continuous;
  void plan(const scheduler_state& s, step_plan& p) {
    if (!s.running.empty() || s.waiting.size() > 2) continuous::plan(s, p);
  }
};
struct greedy_for_blocks : continuous {
  using continuous::continuous;
  void plan(const scheduler_state& s, step_plan& p) {
    continuous::plan(s, p);
    for (run_item& r : p.run) {
      if (s.table.find(r.id)->remaining() > r.num_tokens) ++r.num_tokens;
    }
  }
};
struct names_twice : continuous {
  using continuous::continuous;
  void plan(const scheduler_state& s, step_plan& p) {
    continuous::plan(s, p);
    if (p.run.size() == 3) p.run.push_back(p.run.front());
  }
};
struct evicts_for_ever {
  vlbatch::limits bounds;
  plan_ledger scratch{};
  static constexpr std::string_view name() { return "evicts_for_ever"; }
  vlbatch::limits limits() const { return bounds; }
  void plan(const scheduler_state& s, step_plan& p) {
    plan_builder b(s, p, scratch);
    for (const seq_slot slot : s.running) b.try_evict(b[slot]);
    if (p.evict.empty()) b.try_run(b[s.waiting.front()], 1);
  }
};
struct counts_tokens : continuous {  // keeps its decision state in hooks, as it should
  using continuous::continuous;
  int tokens = 0;
  void on_token(const sequence_view&) { ++tokens; }
  void plan(const scheduler_state& s, step_plan& p) {
    continuous::plan(s, p);
    if (tokens % 7 == 6 && p.run.size() > 1) p.run.pop_back();
  }
};

template <class Policy>
std::string find() {
  for (const policy_scenario& s : policy_scenarios()) {
    for (std::uint32_t seed = 1; seed <= 4; ++seed) {
      const std::string wrong = run_scenario([](const limits& l) { return Policy{l}; }, s, seed, [] { return allocations_so_far.load(); });
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

TEST(batching_policy_suite_itself, finds_broken_policies) {
  using ::testing::StartsWith;
  EXPECT_EQ(find<counts_tokens>(), "");
  EXPECT_THAT(find<remembers_planning>(), StartsWith("planning twice gives two plans"));
  EXPECT_THAT(find<remembers_quietly>(), StartsWith("equal history and state, another plan"));
  EXPECT_THAT(find<allocates>(), StartsWith("plan() allocates when it is warm: 1 times"));
  EXPECT_THAT(find<lazy>(), StartsWith("no progress: "));
  EXPECT_THAT(find<greedy_for_blocks>(), StartsWith("illegal plan: run["));
  EXPECT_THAT(find<names_twice>(), ::testing::HasSubstr("sequence named twice"));
  EXPECT_THAT(find<evicts_for_ever>(), StartsWith("no end: 24 requests"));
}

}  // namespace
}  // namespace vlbatch::testing
