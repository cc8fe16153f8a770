// SPDX-License-Identifier: Apache-2.0
/// \file
/// The step loop. Its contract, line by line, is docs/step_loop.md.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/batching/batching_policy.hpp"
#include "vlbatch/core/batch_gatherer.hpp"
#include "vlbatch/core/engine_core.hpp"
#include "vlbatch/core/hooks.hpp"
#include "vlbatch/kv/kv_allocator.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::inline v0 {

/// Composes a model, a KV cache and a batching policy. All strategies run in this one loop and differ in the plan alone.
///
/// `submit`, `cancel`, `take`, `wait`, `outstanding` and `idle` are thread-safe. Everything else belongs to one thread at a time, the one
/// that steps; callbacks run on it and may submit and cancel but not step. Not copyable, not movable.
template <vlm_model Model, kv_allocator Kv, batching_policy Policy, class Parts = parts<>>
requires runs_on<Model, typename Kv::view_type>
class engine {
  using lane_type = typename Parts::vision_type::template lane<Model, typename Parts::clock_type>;
  static_assert(vision_lane<lane_type>);

 public:
  /// A step under way.
  struct ticket {
    bool planned = false;                               ///< the plan was not empty
    bool runs = false;                                  ///< something of it runs
    std::optional<typename Model::ticket> computing{};  ///< the model's own ticket
    std::uint64_t seen = 0;                             ///< notifications before the step
  };

  /// Binds the cache to the model. \throws invalid_argument impossible settings; device_error not enough memory
  engine(Model model, Kv kv, Policy policy, Parts p = {}, const engine_options& options = {})
      : parts_(std::move(p)),
        model_(std::move(model)),
        kv_(std::move(kv)),
        policy_(std::move(policy)),
        threads_(options.threads, parts_.vision),
        core_(model_, policy_.limits(), options, [this] { return parts_.clock.now(); }),
        lane_(model_, parts_.vision, parts_.clock, threads_.lane, core_.wake),
        work_(model_.make_workspace(threads_.step)),
        gather_(model_.info().position_axes, model_.info().hidden_size) {
    kv_.bind({model_.info().kv, model_.info().max_positions, [this](std::int64_t n) { return model_.allocate(n); }});
  }
  engine(const engine&) = delete;

  /// Hands over a request. \return its id \throws invalid_argument a field out of range
  seq_id submit(request r) { return core_.submit(std::move(r), false); }
  /// Ends a request early, wherever it is; its result says `cancelled`.
  void cancel(seq_id id) { core_.door.cancel(id); }
  /// The result of \p id if it is there. Results of requests with `on_finish` go there instead.
  [[nodiscard]] std::optional<result> take(seq_id id) { return core_.board.take(id); }
  /// Waits for the result of \p id while somebody else steps. \throws what stopped the run loop
  [[nodiscard]] result wait(seq_id id) { return core_.board.wait(id); }
  /// Requests submitted and not ended.
  [[nodiscard]] std::int64_t outstanding() const noexcept { return core_.outstanding.load(std::memory_order_acquire); }
  /// True if every request ended.
  [[nodiscard]] bool idle() const noexcept { return outstanding() == 0; }

  /// The list call: results in the order of the requests. One that is refused or fails does not disturb the others.
  [[nodiscard]] std::vector<result> generate(std::span<const request> requests) {
    return core_.generate(requests, [this] { step(); });
  }
  /// Steps until every request ended.
  void run_until_idle() {
    while (!idle()) step();
  }
  /// One step, or a wait if nothing can run yet. \throws policy_error, policy_stalled; a request that fails does not throw
  step_result step() { return finish(launch()); }

  /// First half of a step: up to the launch of the forward pass.
  [[nodiscard]] ticket launch() {
    ticket t{.seen = core_.wake.count()};
    report_ = {.started = parts_.clock.now()};
    absorb();  // 1 events
    plan_.clear();
    const scheduler_state now = state();
    policy_.plan(now, plan_);  // 2 plan
    report_.planned = parts_.clock.now();
    t.planned = !plan_.empty();
    commit(now);  // 3 commit
    if (plan_.run.empty()) return t;
    t.runs = true;
    const forward_input in = gather_.gather(plan_, core_.store, core_.cache);  // 4 gather
    report_.launched = parts_.clock.now();
    core_.note_launch(plan_, report_);
    attempt([&] { t.computing = model_.forward(work_, in, kv_.view(gather_.sequences())); });  // 5 forward
    return t;
  }

  /// Second half: tokens exist, sequences end.
  step_result finish(const ticket& t) {
    if (!t.runs) return wait_for_events(t);
    if (!t.computing || !attempt([&] { model_.wait(work_, *t.computing); })) return {.progressed = true};
    report_.computed = parts_.clock.now();
    core_.account(report_);
    hook::on_step(policy_, plan_, report_.computed - report_.started);
    sample_and_retire();                   // 6 sample, 7 retire
    hook::on_step(parts_.watch, report_);  // 8 report
    return {.progressed = true, .rows = report_.rows, .sequences = static_cast<std::int32_t>(plan_.run.size())};
  }

  /// What the policy would see now. Valid until the next step.
  [[nodiscard]] scheduler_state state() {
    lane_view_ = lane_.view();
    return core_.state(parts_.clock.now(), kv_.budget(), std::span(&lane_view_, 1));
  }
  /// Counts so far.
  [[nodiscard]] const engine_stats& stats() const noexcept { return core_.stats; }
  /// The KV cache.
  [[nodiscard]] Kv& kv() noexcept { return kv_; }
  /// The observer.
  [[nodiscard]] typename Parts::observer_type& watch() noexcept { return parts_.watch; }
  /// What does not depend on the template arguments: encoder cache, results, notifications.
  [[nodiscard]] engine_core& core() noexcept { return core_; }

 private:
  void absorb() {
    core_.collect(parts_.clock.now());
    for (const seq_id id : core_.cancelled) end_if_live(id, status::cancelled, "cancelled");
    for (arrived_request& a : core_.arrived) {
      if (auto refused = core_.refusal(a, most_tokens_per_sequence(kv_), parts_.clock.now())) {
        core_.deliver(std::move(*refused), parts_.watch);
        continue;
      }
      const sequence_view& v = core_.enqueue(std::move(a));
      hook::on_arrival(policy_, v);
      hook::on_arrival(parts_.watch, v);
    }
    take_encoded();
  }

  void take_encoded() {
    std::size_t i = core_.tiles.size();
    for (lane_.poll(core_.tiles); i < core_.tiles.size(); ++i) {
      core_.complete(core_.tiles[i], [&](const sequence_view& v, std::int32_t image) {
        hook::on_encoded(policy_, v, image);
        hook::on_encoded(parts_.watch, core_.tiles[i], v, image);
      });
    }
    for (const auto& [id, why] : core_.take_doomed()) end_if_live(id, status::failed, why);
    report_.encoded = core_.tiles;
  }

  void commit(const scheduler_state& now) {
    core_.validate(now, plan_, Policy::name(), false);  // all or nothing: throws before anything changed
    for (const drop_item& d : plan_.drop) end_if_live(d.id, status::dropped, d.reason);
    for (const encode_item& e : plan_.encode) {  // before evictions, which take entries up again that the plan was not checked with
      core_.start_encode(e, report_.planned, [&](tile_job job) { lane_.start(std::move(job)); });
    }
    for (const evict_item& e : plan_.evict) {
      kv_.release(e.id);
      core_.evict(e.id);
      hook::on_evict(parts_.watch, e.id, report_.planned);
    }
    std::erase_if(plan_.run, [&](const run_item& item) { return !admit(item); });
    lane_.flush();
    if constexpr (lane_type::in_step) {
      take_encoded();  // ready in the same plan; a sequence whose picture failed is gone
      std::erase_if(plan_.run, [&](const run_item& i) { return core_.store.table().find(i.id) == nullptr; });
    }
  }

  // An allocator that refuses what its budget allows costs a step, not an answer.
  bool admit(const run_item& item) {
    sequence_view& v = core_.edit(item.id);
    const bool reserved = kv_.reserve(v.id, v.computed_tokens + item.num_tokens);
    v.kv_blocks = v.releasable_blocks = kv_.blocks_of(v.id);
    if (!reserved) ++core_.stats.failed_reserves;
    if (reserved && v.where == phase::waiting) core_.store.admit(v);
    return reserved;
  }

  void sample_and_retire() {
    const matrix_view<const float> logits = model_.logits(work_);
    for (std::int32_t row = 0; const run_item& item : plan_.run) {
      sequence_view& v = core_.edit(item.id);
      core_.advance(v, item.num_tokens);
      if (v.remaining() > 0) continue;  // its next token is known: it is still in its prompt
      const std::span<const float> mine(logits.row(row++), static_cast<std::size_t>(logits.cols));
      token_outcome o{.ended = v.max_new_tokens == 0};
      if (!o.ended) {
        o = engine_core::guarded([&] {
          const sampled_token t = parts_.choose.sample(mine, core_.sampling_of(v), core_.context_of(v));
          return core_.append(v, t, report_.computed, [&](std::int32_t id, std::string& out) { model_.append_text(id, out); });
        });
        hook::on_token(policy_, v), hook::on_token(parts_.watch, v);
      }
      if (o.ended) end(v, o.outcome, o.reason);
    }
  }

  // Every sequence leaves through here.
  void end(const sequence_view& v, status s, const std::string& reason) {
    s == status::finished ? hook::on_finish(policy_, v) : hook::on_drop(policy_, v);
    kv_.release(v.id);
    core_.deliver(core_.conclude(v, s, reason, parts_.clock.now()), parts_.watch);
  }
  void end_if_live(seq_id id, status s, const std::string& reason) {
    if (const sequence_view* v = core_.store.table().find(id)) end(*v, s, reason);
  }
  // A model that throws fails the sequences of the step; the others go on.
  template <class F>
  bool attempt(F&& f) {
    std::string why = "unknown exception";
    try {
      f();
      return true;
    } catch (const std::exception& e) {
      why = e.what();
    } catch (...) {
    }
    for (const run_item& item : plan_.run) end(core_.edit(item.id), status::failed, "forward: " + why);
    return false;
  }

  step_result wait_for_events(const ticket& t) {
    if (t.planned || idle()) return {.progressed = t.planned};
    const time_point until = std::min(plan_.wake_at.value_or(never), core_.door.next_arrival());
    const bool to_come = until != never || core_.door.preparing() || lane_.view().tiles_in_flight > 0;
    if (!to_come && core_.wake.count() == t.seen) core_.throw_stalled(Policy::name());
    parts_.clock.wait_until(until, core_.wake, t.seen);
    return {};
  }

  Parts parts_;
  Model model_;
  Kv kv_;
  Policy policy_;
  thread_budget threads_;
  engine_core core_;
  lane_type lane_;
  typename Model::workspace work_;
  batch_gatherer gather_;
  step_plan plan_;
  step_report report_;
  lane_view lane_view_;
};

}  // namespace vlbatch::inline v0
