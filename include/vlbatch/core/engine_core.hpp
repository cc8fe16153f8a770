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
      : cache(options.encoder_cache, [model](std::int64_t n) { return model.allocate(n); }),
        info_(model.info()),
        limits_(lim),
        bytes_per_embedding_(std::int64_t{model.info().hidden_size} * static_cast<std::int64_t>(sizeof(float))),
        door([model](const request& r) { return model.prepare(r); }, std::move(now), options.preparation_threads, wake) {
    if (lim.max_num_seqs < 1 || lim.max_num_batched_tokens < 1 || lim.max_encoder_tokens < 0) {
      throw invalid_argument("limits: max_num_seqs " + std::to_string(lim.max_num_seqs) + ", max_num_batched_tokens " +
                             std::to_string(lim.max_num_batched_tokens) + ", max_encoder_tokens " + std::to_string(lim.max_encoder_tokens) +
                             ": expected >= 1, >= 1, >= 0");
    }
  }

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
  seq_id submit(request r, bool keep_result) {
    check_request(r);
    outstanding.fetch_add(1, std::memory_order_acq_rel);
    const bool keep = keep_result || !r.on_finish;
    return door.submit(std::move(r), keep);
  }
  /// As engine::generate; \p step is called until every result is there, unless a run loop steps.
  template <class Step>
  [[nodiscard]] std::vector<result> generate(std::span<const request> requests, Step&& step) {
    std::vector<result> results(requests.size());
    std::vector<seq_id> ids(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      try {
        ids[i] = submit(requests[i], true);
      } catch (const invalid_argument& e) {
        results[i].outcome = status::refused;
        results[i].reason = e.what();
      }
    }
    try {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] == seq_id{}) continue;
        std::optional<result> r;
        while (!(r = board.take(ids[i]))) {
          if (driven.load(std::memory_order_acquire)) r = board.wait(ids[i]);
          if (r) break;
          step();
        }
        results[i] = std::move(*r);
      }
    } catch (...) {
      for (const seq_id id : ids) door.cancel(id);  // the engine goes on without them
      throw;
    }
    return results;
  }

  /// Collects arrivals and cancellations.
  void collect(time_point now) {
    arrived.clear();
    cancelled.clear();
    tiles.clear();
    door.collect(now, arrived, cancelled);
  }
  /// Why a collected request does not get in, as its end; empty if it does.
  [[nodiscard]] std::optional<ended_request> refusal(arrived_request& a, std::int64_t max_kv_tokens, time_point now) const {
    std::string why = a.error;
    status s = status::failed;
    if (a.cancelled) {
      s = status::cancelled;
      why = "cancelled";
    } else if (why.empty()) {
      s = status::refused;
      why = why_impossible(*a.ready, a.what.max_new_tokens, info_, limits_, max_kv_tokens, cache.settings().bytes, bytes_per_embedding_);
      if (why.empty()) return std::nullopt;
    }
    ended_request e{.on_finish = std::move(a.what.on_finish), .keep = a.keep_result};
    e.outcome.id = a.id;
    e.outcome.outcome = s;
    e.outcome.reason = std::move(why);
    e.outcome.prompt_tokens = a.ready ? static_cast<std::int32_t>(a.ready->tokens.size()) : 0;
    e.outcome.when = a.when;
    e.outcome.when.finished = now;
    return e;
  }
  /// It gets in.
  sequence_view& enqueue(arrived_request a) { return store.add(std::move(a), cache, bytes_per_embedding_); }

  /// The policy's view of everything.
  [[nodiscard]] scheduler_state state(time_point now, const kv_budget& kv, std::span<const lane_view> lanes) const {
    return {.now = now,
            .lim = limits_,
            .table = store.table(),
            .waiting = store.waiting(),
            .running = store.running(),
            .swapped = store.swapped(),
            .kv = kv,
            .encoder = {.free_bytes = cache.settings().bytes - cache.used_bytes(),
                        .total_bytes = cache.settings().bytes,
                        .tokens_in_flight = tokens_in_flight_,
                        .cache = &cache},
            .lanes = lanes,
            .estimate = {}};
  }
  /// \throws policy_error the first objection to the plan: what, which item, both values
  void validate(const scheduler_state& s, const step_plan& plan, std::string_view policy, bool swappable) {
    std::string where;
    objection o = check_plan(s, plan, ledger_, where);
    const auto swaps = [](const evict_item& e) { return e.how == eviction::swap; };
    if (!o && !swappable && (!plan.resume.empty() || std::any_of(plan.evict.begin(), plan.evict.end(), swaps))) {
      o = {"the KV cache cannot swap", 1, 0};
      where = "evict/resume";
    }
    if (o) throw policy_error("policy " + std::string(policy) + ": " + where + ": " + o.text());
  }
  /// Nothing can ever happen again.
  [[noreturn]] void throw_stalled(std::string_view policy) const {
    throw policy_stalled("policy " + std::string(policy) + ": " + std::to_string(store.waiting().size()) + " waiting, " +
                         std::to_string(store.running().size()) +
                         " running, nothing planned, nothing in flight, no arrival to come and no wake_at");
  }

  /// View of a live sequence.
  [[nodiscard]] sequence_view& edit(seq_id id) { return store.view(store.table().find(id)->slot); }
  /// Running becomes waiting.
  void evict(seq_id id) {
    ++stats.preemptions;
    store.restart(edit(id), cache, bytes_per_embedding_);
  }
  /// Gives the tiles of \p item to a lane, reserving the cache's bytes.
  template <class Start>
  void start_encode(const encode_item& item, time_point now, Start&& start) {
    const sequence_view& v = *store.table().find(item.id);
    const sequence_record& r = store.record(v.slot);
    encoder_cache::entry& e = *cache.find(r.entries[static_cast<std::size_t>(item.image)]);
    // Two sequences may share a picture that both asked for in this plan: the first encodes it.
    if (e.tiles_started != item.first_tile || !cache.reserve(e, v, ledger_.named())) return;
    const std::int32_t per_tile = r.images[static_cast<std::size_t>(item.image)].tokens_per_tile;
    for (const encoder_cache::sharer& s : e.sharers) {
      timings& t = store.record(s.sequence->slot).outcome.when;
      t.encode_start = std::min(t.encode_start, now);
    }
    for (std::int32_t t = item.first_tile; t < item.first_tile + item.num_tiles; ++t) {
      auto* out = reinterpret_cast<float*>(e.memory.get()) + static_cast<std::int64_t>(t) * per_tile * info_.hidden_size;
      start(tile_job{.entry = e.id, .tile = t, .pixels = e.pixels, .memory = e.memory, .embeddings = out});
    }
    cache.start(e, item.num_tiles);
    tokens_in_flight_ += item.num_tiles * per_tile;
  }
  /// A tile left the lane. \p tell(view, image index) for every sequence that waited for it; those it failed: take_doomed().
  template <class Tell>
  void complete(const tile_done& d, Tell&& tell) {
    ++stats.encoded_tiles;
    if (d.started != last_batch_) stats.encode_time += d.ended - d.started;
    last_batch_ = d.started;
    tokens_in_flight_ -= info_.tokens_per_tile;
    encoder_cache::entry* e = cache.find(d.entry);
    if (e == nullptr) return;
    if (!d.error.empty() && !e->failed) {
      for (const encoder_cache::sharer& s : e->sharers) doomed_.emplace_back(s.sequence->id, "encode: " + d.error);
      cache.mark_failed(*e);
    }
    if (d.error.empty()) {
      for (const encoder_cache::sharer& s : e->sharers) {
        sequence_record& r = store.record(s.sequence->slot);
        r.outcome.when.encoded = d.ended;
        tell(*s.sequence, static_cast<std::int32_t>(s.image - r.images.data()));
      }
    }
    cache.complete(*e);  // may forget the entry
  }

  /// The plan's items are about to be computed: counts them.
  void note_launch(const step_plan& plan, step_report& report) {
    for (const run_item& item : plan.run) {
      sequence_view& v = edit(item.id);
      sequence_record& r = store.record(v.slot);
      (v.in_prefill() ? report.prefill_rows : report.decode_rows) += item.num_tokens;
      report.pad_tokens += item.pad_tokens;
      report.rows += item.num_tokens + item.pad_tokens;
      report.recomputed_tokens += std::clamp(r.computed_before - v.computed_tokens, 0, item.num_tokens);
      if (r.outcome.when.first_scheduled == never) r.outcome.when.first_scheduled = report.launched;
      v.in_flight_tokens = item.num_tokens;
    }
    report.empty_rows = plan.empty_rows;
    report.rows += plan.empty_rows;
    report.run = plan.run;
  }
  /// How the next token of \p v is chosen.
  [[nodiscard]] const sampling_params& sampling_of(const sequence_view& v) { return store.record(v.slot).origin.what.sampling; }
  /// Sequences whose picture could not be encoded since the last call.
  [[nodiscard]] std::vector<std::pair<seq_id, std::string>> take_doomed() { return std::exchange(doomed_, {}); }
  /// Counts a computed step.
  void account(step_report& report) {
    report.index = stats.steps++;
    stats.rows += report.rows;
    stats.prefill_rows += report.prefill_rows;
    stats.decode_rows += report.decode_rows;
    stats.pad_tokens += report.pad_tokens;
    stats.empty_rows += report.empty_rows;
    stats.recomputed_tokens += report.recomputed_tokens;
    stats.plan_time += report.planned - report.started;
    stats.forward_time += report.computed - report.launched;
  }
  /// The KV of \p n further tokens is stored.
  void advance(sequence_view& v, std::int32_t n) {
    v.computed_tokens += n;
    v.in_flight_tokens = 0;
    sequence_record& r = store.record(v.slot);
    r.computed_before = std::max(r.computed_before, v.computed_tokens);
    if (!v.images.empty()) store.consume_images(v, cache);
  }
  /// Takes in a sampled token: text, stop conditions, callback.
  template <class AppendText>
  [[nodiscard]] token_outcome append(sequence_view& v, const sampled_token& t, time_point when, AppendText&& append_text) {
    sequence_record& r = store.record(v.slot);
    const request& q = r.origin.what;
    if (t.token < 0) return {true, status::failed, "logits of token " + std::to_string(v.generated_tokens) + " are not finite"};
    v.last_token = r.outcome.when.last_token = when;
    if (v.first_token == never) v.first_token = r.outcome.when.first_token = when;
    const bool eos = !q.ignore_eos && std::find(info_.eos_tokens.begin(), info_.eos_tokens.end(), t.token) != info_.eos_tokens.end();
    bool stopped = false;
    if (!eos) {
      ++stats.output_tokens;
      ++v.generated_tokens;
      r.tokens.push_back(t.token);
      r.outcome.tokens.push_back(t.token);
      if (q.sampling.logprobs) r.outcome.logprobs.push_back(t.logprob);
      append_text(t.token, r.text.incoming());
      stopped = r.text.advance();
    }
    const bool full = !eos && !stopped && v.generated_tokens >= v.max_new_tokens;
    if (eos || full) stopped = r.text.finish() || stopped;  // what was held back is text after all
    r.outcome.finish = stopped ? finish_reason::stop : eos ? finish_reason::eos : full ? finish_reason::length : finish_reason::none;
    const std::string_view fresh = r.text.take_new();
    if (q.on_token && (!eos || !fresh.empty())) {
      try {
        q.on_token({v.id, t.token, static_cast<std::int32_t>(r.outcome.tokens.size()) - (eos ? 0 : 1), fresh, when});
      } catch (const std::exception& e) {
        return {true, status::failed, std::string("on_token: ") + e.what()};
      } catch (...) {
        return {true, status::failed, "on_token: unknown exception"};
      }
    }
    return {eos || full || stopped, status::finished, {}};
  }
  /// The sequence ends: its result, with whatever was generated so far. Its slot is free afterwards.
  [[nodiscard]] ended_request conclude(const sequence_view& v, status s, const std::string& reason, time_point now) {
    sequence_record& r = store.record(v.slot);
    if (s != status::finished) {
      static_cast<void>(r.text.finish());
      r.outcome.finish = finish_reason::none;
    } else if (v.max_new_tokens == 0) {
      r.outcome.finish = finish_reason::length;
    }
    ended_request e{std::move(r.outcome), std::move(r.origin.what.on_finish), r.origin.keep_result};
    e.outcome.outcome = s;
    e.outcome.reason = reason;
    e.outcome.text = r.text.release();
    e.outcome.preemptions = v.preemptions;
    e.outcome.when.finished = now;
    store.remove(store.view(v.slot), cache);
    return e;
  }
  /// Tells the observer and the user. A throwing `on_finish` turns the result into a failed one on the board.
  template <class Observer>
  void deliver(ended_request e, Observer& watch) {
    hook::on_finish(watch, e.outcome);
    if (e.on_finish) {
      try {
        e.on_finish(e.outcome);
      } catch (const std::exception& x) {
        e.keep = true;
        e.outcome.outcome = status::failed;
        e.outcome.reason = std::string("on_finish: ") + x.what();
      } catch (...) {
        e.keep = true;
        e.outcome.outcome = status::failed;
        e.outcome.reason = "on_finish: unknown exception";
      }
    }
    if (e.keep) board.post(std::move(e.outcome));
    outstanding.fetch_sub(1, std::memory_order_acq_rel);
  }

 private:
  model_info info_;
  limits limits_;
  std::int64_t bytes_per_embedding_ = 0;
  std::int32_t tokens_in_flight_ = 0;
  time_point last_batch_{};
  plan_ledger ledger_;
  std::vector<std::pair<seq_id, std::string>> doomed_;

 public:
  intake door;  ///< thread-safe: submit and cancel. Last, so that its threads end before what they notify.
};

}  // namespace vlbatch::inline v0
