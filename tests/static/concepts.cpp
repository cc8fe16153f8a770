// SPDX-License-Identifier: Apache-2.0
// Every concept with what satisfies it and with types that miss it by one thing. It compiles, or it does not: there is nothing to run.
#include "support/fake_model.hpp"
#include "vlbatch/observe/latency_recorder.hpp"
#include "vlbatch/observe/observers.hpp"
#include "vlbatch/observe/timeline.hpp"
#include "vlbatch/vlbatch.hpp"

namespace vlbatch::testing {
namespace {

// ---- batching_policy
static_assert(batching_policy<sequential>);
static_assert(batching_policy<static_batching>);
static_assert(batching_policy<padded_static>);
static_assert(batching_policy<continuous>);
static_assert(!batching_policy<int>);
static_assert(!batching_policy<paged_kv>);

struct smallest_policy {
  static constexpr const char* name() { return "smallest"; }
  vlbatch::limits limits() const { return {}; }
  void plan(const scheduler_state&, step_plan&) {}
};
static_assert(batching_policy<smallest_policy>);
struct policy_without_plan : smallest_policy {
  void plan(const scheduler_state&, step_plan&) = delete;
};
static_assert(!batching_policy<policy_without_plan>);
struct policy_that_returns_a_plan : smallest_policy {
  step_plan plan(const scheduler_state&, step_plan&) { return {}; }
};
static_assert(!batching_policy<policy_that_returns_a_plan>);
struct policy_that_changes_the_state : smallest_policy {
  void plan(scheduler_state&, step_plan&) {}
};
static_assert(!batching_policy<policy_that_changes_the_state>);
struct policy_without_name : smallest_policy {
  static constexpr int name() { return 0; }
};
static_assert(!batching_policy<policy_without_name>);
struct policy_with_limits_that_change : smallest_policy {
  vlbatch::limits limits() { return {}; }  // not const
};
static_assert(!batching_policy<policy_with_limits_that_change>);
struct policy_with_other_limits : smallest_policy {
  int limits() const { return 4; }
};
static_assert(!batching_policy<policy_with_other_limits>);
struct policy_that_stays : smallest_policy {
  policy_that_stays(policy_that_stays&&) = delete;
};
static_assert(!batching_policy<policy_that_stays>);
struct const_policy : smallest_policy {
  void plan(const scheduler_state&, step_plan&) const {}
};
static_assert(batching_policy<const_policy>);

// ---- kv_allocator
static_assert(kv_allocator<paged_kv>);
static_assert(kv_allocator<contiguous_kv>);
static_assert(kv_allocator<statistics_adaptor<paged_kv>>);
static_assert(kv_allocator<statistics_adaptor<statistics_adaptor<contiguous_kv>>>);
static_assert(!kv_allocator<block_tables>, "the tables alone know no name and no view_type");
static_assert(!kv_allocator<continuous>);
struct kv_without_reserve : paged_kv {
  bool reserve(seq_id, std::int32_t) = delete;
};
static_assert(!kv_allocator<kv_without_reserve>);
struct kv_whose_reserve_says_how_much : paged_kv {
  std::int32_t reserve(seq_id, std::int32_t n) { return n; }
};
static_assert(!kv_allocator<kv_whose_reserve_says_how_much>);
struct kv_whose_release_may_throw : paged_kv {
  void release(seq_id) {}
};
static_assert(!kv_allocator<kv_whose_release_may_throw>);
struct kv_whose_budget_is_not_const : paged_kv {
  kv_budget budget() { return {}; }
};
static_assert(!kv_allocator<kv_whose_budget_is_not_const>);
struct kv_with_an_owning_view : paged_kv {
  struct view_type {
    std::vector<std::int32_t> table;
  };
  view_type view(std::span<const seq_id>) { return {}; }
};
static_assert(!kv_allocator<kv_with_an_owning_view>, "what a kernel gets is trivially copyable");
struct kv_with_another_view : paged_kv {
  struct view_type {
    void* pages = nullptr;
  };
  view_type view(std::span<const seq_id>) { return {}; }
};
static_assert(kv_allocator<kv_with_another_view>);
static_assert(std::is_trivially_copyable_v<paged_kv_view> && std::is_standard_layout_v<paged_kv_view>);

// ---- vlm_model, runs_on
static_assert(vlm_model<fake_model>);
static_assert(vlm_model<idefics3<cpu>>);
static_assert(runs_on<fake_model, paged_kv_view>);
static_assert(runs_on<idefics3<cpu>, paged_kv_view>);
static_assert(!runs_on<fake_model, kv_with_another_view::view_type>);
static_assert(!runs_on<idefics3<cpu>, kv_with_another_view::view_type>);
static_assert(!runs_on<int, paged_kv_view>);
static_assert(!vlm_model<cpu>);
struct model_without_encode : fake_model {
  void encode(workspace&, std::span<const tile_input>) const = delete;
};
static_assert(!vlm_model<model_without_encode>);
struct model_that_changes_in_encode : fake_model {
  void encode(workspace&, std::span<const tile_input>) {}
};
static_assert(!vlm_model<model_that_changes_in_encode>, "weights are immutable: const");
struct model_that_is_one : fake_model {
  model_that_is_one(const model_that_is_one&) = delete;
};
static_assert(!vlm_model<model_that_is_one>, "a handle is copied");
struct model_with_other_logits : fake_model {
  std::vector<float> logits(workspace&) const { return {}; }
};
static_assert(!vlm_model<model_with_other_logits>);
struct model_without_forward : fake_model {
  ticket forward(workspace&, const forward_input&, const paged_kv_view&) const = delete;
};
static_assert(vlm_model<model_without_forward> && !runs_on<model_without_forward, paged_kv_view>);

// ---- backend
static_assert(backend<cpu>);
static_assert(!backend<int>);
static_assert(!backend<fake_model>);
struct backend_without_linear : cpu {
  void linear(stream&, matrix_view<const float>, const weight&, matrix_view<float>, linear_epilogue) const = delete;
};
static_assert(!backend<backend_without_linear>);
struct backend_that_is_one : cpu {
  backend_that_is_one(const backend_that_is_one&) = delete;
};
static_assert(!backend<backend_that_is_one>);

// ---- vision_lane
static_assert(vision_lane<inline_vision::lane<fake_model, wall_clock>>);
static_assert(vision_lane<async_vision::lane<fake_model, wall_clock>>);
static_assert(inline_vision::lane<fake_model, wall_clock>::in_step);
static_assert(!async_vision::lane<fake_model, wall_clock>::in_step);
static_assert(!vision_lane<inline_vision>, "the settings are not the lane");
struct smallest_lane {
  static constexpr bool in_step = true;
  void start(tile_job) {}
  void flush() {}
  void poll(std::vector<tile_done>&) {}
  lane_view view() const { return {}; }
};
static_assert(vision_lane<smallest_lane>);
struct lane_without_in_step {
  void start(tile_job) {}
  void flush() {}
  void poll(std::vector<tile_done>&) {}
  lane_view view() const { return {}; }
};
static_assert(!vision_lane<lane_without_in_step>);
struct lane_without_poll : smallest_lane {
  void poll(std::vector<tile_done>&) = delete;
};
static_assert(!vision_lane<lane_without_poll>);

// ---- engine_clock
static_assert(engine_clock<wall_clock>);
static_assert(!engine_clock<std::chrono::steady_clock>);
struct clock_of_seconds : wall_clock {
  double now() const { return 0.0; }
};
static_assert(!engine_clock<clock_of_seconds>);
struct clock_that_cannot_wait : wall_clock {
  void wait_until(time_point, wakeup&, std::uint64_t) = delete;
};
static_assert(!engine_clock<clock_that_cannot_wait>);

// ---- sampler, observer
static_assert(sampler<default_sampler>);
struct sampler_of_ids {
  std::int32_t sample(std::span<const float>, const sampling_params&, const sampling_context&) { return 0; }
};
static_assert(!sampler<sampler_of_ids>);
struct sampler_without_context {
  sampled_token sample(std::span<const float>, const sampling_params&) { return {}; }
};
static_assert(!sampler<sampler_without_context>);
static_assert(observer<null_observer> && observer<latency_recorder> && observer<timeline_recorder>);
static_assert(observer<observers<latency_recorder, timeline_recorder>>);
struct observer_that_stays {
  observer_that_stays(observer_that_stays&&) = delete;
};
static_assert(!observer<observer_that_stays>);

// ---- what must stay cheap, and what may not be copied by accident
static_assert(std::is_trivially_copyable_v<sequence_view>);
static_assert(std::is_trivially_copyable_v<image_view>);
static_assert(std::is_trivially_copyable_v<run_item> && std::is_trivially_copyable_v<encode_item>);
static_assert(std::is_trivially_copyable_v<row_map> && std::is_trivially_copyable_v<forward_input>);
using some_engine = engine<fake_model, paged_kv, continuous>;
static_assert(!std::is_copy_constructible_v<some_engine> && !std::is_move_constructible_v<some_engine>);
static_assert(!std::is_convertible_v<std::uint64_t, seq_id> && !std::is_convertible_v<seq_id, std::uint64_t>);
static_assert(!std::is_convertible_v<client_id, session_id>);

}  // namespace
}  // namespace vlbatch::testing
