// SPDX-License-Identifier: Apache-2.0
/// \file
/// The part of the engine that depends on no template argument: bookkeeping around the step loop of engine.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "vlbatch/core/admission.hpp"
#include "vlbatch/core/hooks.hpp"
#include "vlbatch/core/intake.hpp"
#include "vlbatch/core/parts.hpp"
#include "vlbatch/core/plan_ledger.hpp"
#include "vlbatch/core/result_board.hpp"
#include "vlbatch/core/sequence_store.hpp"
#include "vlbatch/vision/lane.hpp"

namespace vlbatch::inline v0 {

/// What a step did.
struct step_result {
  bool progressed = false;     ///< the plan was not empty; false: it waited, or there was nothing to do
  std::int32_t rows = 0;       ///< rows computed
  std::int32_t sequences = 0;  ///< sequences that ran
};

/// Split of an engine's threads between step and vision lane.
struct thread_budget {
  std::int32_t step = 1;  ///< threads of the step
  std::int32_t lane = 1;  ///< threads of the lane; a lane inside the step takes turns with it and has as many

  /// \p total 0: as many as the machine has processors.
  template <class Vision>
  thread_budget(std::int32_t total, const Vision& vision) {
    const auto all = std::max(total > 0 ? total : static_cast<std::int32_t>(std::thread::hardware_concurrency()), 1);
    const std::int32_t beside = std::clamp(vision.threads_beside(all), 0, all - 1);
    step = all - beside;
    lane = beside > 0 ? beside : all;
  }
};

/// A request that ended, and where to tell it.
struct ended_request {
  result outcome{};                                ///< what came of it
  std::function<void(const result&)> on_finish{};  ///< the user's callback, or none
  bool keep = true;                                ///< leave it on the board
};

/// What became of a sequence with its newest token.
struct token_outcome {
  bool ended = false;                 ///< no further token
  status outcome = status::finished;  ///< how
  std::string reason{};               ///< why it failed
};

/// Queues, encoder cache, validation, tokens and results. Owned by one engine; the engine's thread alone uses it, except where a member
/// says otherwise.
class engine_core {
 public:
  /// A copy of the model's handle goes to the preparation pool. \throws invalid_argument limits out of range
  template <class Model>
  engine_core(const Model& model, const limits& lim, const engine_options& options, std::function<time_point()> now)
      : engine_core(
            model.info(), [model](std::int64_t n) { return model.allocate(n); }, [model](const request& r) { return model.prepare(r); },
            lim, options, std::move(now)) {}
  /// The same from the model's parts.
  engine_core(model_info model, encoder_cache::allocator allocate, intake::prepare_function prepare, const limits& lim,
              const engine_options& options, std::function<time_point()> now);
  engine_core(const engine_core&) = delete;
  engine_core& operator=(const engine_core&) = delete;
  ~engine_core();

  wakeup wake;                               ///< thread-safe: notified by submitters, preparation and lanes
  encoder_cache cache;                       ///< embeddings
  sequence_store store;                      ///< live sequences
  engine_stats stats;                        ///< counts
  result_board board;                        ///< thread-safe: results to be taken
  std::atomic<std::int64_t> outstanding{0};  ///< thread-safe: submitted and not ended
  std::atomic<bool> driven{false};           ///< thread-safe: a run loop steps
  std::vector<arrived_request> arrived;      ///< scratch: collected in this step
  std::vector<seq_id> cancelled;             ///< scratch: cancelled in this step
  std::vector<tile_done> tiles;              ///< scratch: tiles that left the lane in this step

  /// Thread-safe.
  seq_id submit(request r, bool keep_result);
  /// As engine::generate; \p step is called until every result is there, unless a run loop steps.
  [[nodiscard]] std::vector<result> generate(std::span<const request> requests, const std::function<void()>& step);

  /// Collects arrivals and cancellations.
  void collect(time_point now);
  /// Why a collected request does not get in, as its end; empty if it does.
  [[nodiscard]] std::optional<ended_request> refusal(arrived_request& a, std::int64_t max_kv_tokens, time_point now) const;
  /// It gets in.
  sequence_view& enqueue(arrived_request a) { return store.add(std::move(a), cache, bytes_per_embedding_); }

  /// The policy's view of everything.
  [[nodiscard]] scheduler_state state(time_point now, const kv_budget& kv, std::span<const lane_view> lanes) const;
  /// \throws policy_error the first objection to the plan: what, which item, both values
  void validate(const scheduler_state& s, const step_plan& plan, std::string_view policy, bool swappable);
  /// Nothing can ever happen again.
  [[noreturn]] void throw_stalled(std::string_view policy) const;

  /// View of a live sequence.
  [[nodiscard]] sequence_view& edit(seq_id id) { return store.view(store.table().find(id)->slot); }
  /// Running becomes waiting.
  void evict(seq_id id);
  /// Gives the tiles of \p item to a lane, reserving the cache's bytes.
  void start_encode(const encode_item& item, time_point now, const std::function<void(tile_job)>& start);
  /// A tile left the lane. \p tell(view, image index) for every sequence that waited for it; those it failed: take_doomed().
  void complete(const tile_done& d, const std::function<void(const sequence_view&, std::int32_t)>& tell);

  /// The plan's items are about to be computed: counts them.
  void note_launch(const step_plan& plan, step_report& report);
  /// How the next token of \p v is chosen.
  [[nodiscard]] const sampling_params& sampling_of(const sequence_view& v) { return store.record(v.slot).origin.what.sampling; }
  /// What \p choose returns: how a new token went. A sampler or a model's text that throws fails that sequence alone.
  template <class F>
  [[nodiscard]] static token_outcome guarded(F&& choose) {
    try {
      return choose();
    } catch (const std::exception& e) {
      return {true, status::failed, std::string("sample: ") + e.what()};
    } catch (...) {
      return {true, status::failed, "sample: unknown exception"};
    }
  }
  /// What \p v has so far.
  [[nodiscard]] sampling_context context_of(const sequence_view& v) {
    const std::span<const std::int32_t> all = store.record(v.slot).tokens;
    const auto prompt = static_cast<std::size_t>(v.prompt_tokens);
    return {static_cast<std::uint64_t>(v.generated_tokens), all.first(prompt), all.subspan(prompt)};
  }
  /// Sequences whose picture could not be encoded since the last call.
  [[nodiscard]] std::vector<std::pair<seq_id, std::string>> take_doomed() { return std::exchange(doomed_, {}); }
  /// Counts a computed step.
  void account(step_report& report);
  /// The KV of \p n further tokens is stored.
  void advance(sequence_view& v, std::int32_t n);
  /// Takes in a sampled token: text, stop conditions, callback.
  [[nodiscard]] token_outcome append(sequence_view& v, const sampled_token& t, time_point when,
                                     const std::function<void(std::int32_t, std::string&)>& append_text);
  /// The sequence ends: its result, with whatever was generated so far. Its slot is free afterwards.
  [[nodiscard]] ended_request conclude(const sequence_view& v, status s, const std::string& reason, time_point now);
  /// Tells the observer and the user. A throwing `on_finish` turns the result into a failed one on the board.
  template <class Observer>
  void deliver(ended_request e, Observer& watch) {
    hook::on_finish(watch, e.outcome);
    settle(std::move(e));
  }

 private:
  // The user's callback, and the board.
  void settle(ended_request e);

  model_info info_;
  limits limits_;
  std::int64_t bytes_per_embedding_ = 0;
  std::int32_t tokens_in_flight_ = 0;
  time_point last_batch_{};
  plan_ledger ledger_;
  // Nobody gets the embeddings of \p e: whoever waits for them is doomed.
  void fail(encoder_cache::entry& e, const std::string& why);

  std::vector<std::pair<seq_id, std::string>> doomed_;

 public:
  intake door;  ///< thread-safe: submit and cancel. Last, so that its threads end before what they notify.
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/engine_core-inl.hpp"
#endif
