// SPDX-License-Identifier: Apache-2.0
/// \file
/// The batching policy concept and its contract.
#pragma once

#include <concepts>
#include <string_view>

#include "vlbatch/core/plan_builder.hpp"
#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/core/step_plan.hpp"

namespace vlbatch::inline v0 {

/// Decides, before every step, which sequences run now and how many tokens of each, which images are encoded, and who is evicted.
///
/// 1. `plan(state, plan)` fills an empty plan. It reads the state, the policy's settings and what its hooks recorded, and changes nothing
/// but scratch: equal
///    history and state give an equal plan, byte for byte.
/// 2. The engine validates the whole plan before it carries out any of it (`check_plan`); an illegal one ends the step with `policy_error`
/// and changes
///    nothing. Each id at most once; token counts within what is known and ready; never more blocks than there are after its own evictions;
///    limits kept.
/// 3. Progress: if something waits, nothing runs or encodes and the head fits, the plan is not empty or has a `wake_at`. Otherwise:
/// `policy_stalled`.
/// 4. No allocation after warm-up.
/// 5. `limits()` are the bounds the engine holds the policy to; they do not change.
/// 6. Optional hooks, found by `requires`, called on the engine's thread in this order within a step: `on_arrival(const sequence_view&)`,
///    `on_encoded(const sequence_view&, image index)`, then after the step `on_step(const step_plan& committed, duration)`,
///    `on_token(const sequence_view&)`, `on_finish(const sequence_view&)` or `on_drop(const sequence_view&)`. Decision state changes in
///    hooks only.
/// 7. A policy that uses the true output length says so: `using oracle = true_output_length`.
///
/// `tests/conformance/batching_policy_suite.hpp` checks all this on any policy. Iteration-level scheduling is Orca's idea (Yu et al., OSDI
/// 2022).
template <class P>
concept batching_policy = std::movable<P> && requires(P p, const P cp, const scheduler_state& state, step_plan& plan) {
  { P::name() } -> std::convertible_to<std::string_view>;
  { cp.limits() } -> std::same_as<limits>;
  { p.plan(state, plan) } -> std::same_as<void>;
};

}  // namespace vlbatch::inline v0
