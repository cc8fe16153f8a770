// SPDX-License-Identifier: Apache-2.0
// Definitions of engine_core.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/engine_core.hpp"
#include "vlbatch/core/linkage.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE engine_core::engine_core(model_info model, encoder_cache::allocator allocate, intake::prepare_function prepare,
                                        const limits& lim, const engine_options& options, std::function<time_point()> now)
    : cache(options.encoder_cache, std::move(allocate)),
      info_(std::move(model)),
      limits_(lim),
      bytes_per_embedding_(std::int64_t{info_.hidden_size} * static_cast<std::int64_t>(sizeof(float))),
      door(std::move(prepare), std::move(now), options.preparation_threads, wake) {
  if (lim.max_num_seqs < 1 || lim.max_num_batched_tokens < 1 || lim.max_encoder_tokens < 0) {
    throw invalid_argument("limits: max_num_seqs " + std::to_string(lim.max_num_seqs) + ", max_num_batched_tokens " +
                           std::to_string(lim.max_num_batched_tokens) + ", max_encoder_tokens " + std::to_string(lim.max_encoder_tokens) +
                           ": expected >= 1, >= 1, >= 0");
  }
}

VLBATCH_INLINE std::vector<result> engine_core::generate(std::span<const request> requests, const std::function<void()>& step) {
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

VLBATCH_INLINE void engine_core::start_encode(const encode_item& item, time_point now, const std::function<void(tile_job)>& start) {
  const sequence_view& v = *store.table().find(item.id);
  const sequence_record& r = store.record(v.slot);
  encoder_cache::entry& e = *cache.find(r.entries[static_cast<std::size_t>(item.image)]);
  // Two sequences may share a picture that both asked for in this plan: what the first asked for is under way.
  const std::int32_t end = item.first_tile + item.num_tiles;
  const std::int32_t first = std::max(item.first_tile, e.tiles_started);
  if (first >= end || e.failed) return;
  bool reserved = false;
  try {
    reserved = cache.reserve(e, v, ledger_.named());
  } catch (const std::exception& x) {
    return fail(e, x.what());
  }
  if (!reserved)
    throw policy_error("encoder cache: no room for " + std::to_string(e.bytes) + " bytes that a checked plan asks for, " +
                       std::to_string(cache.used_bytes()) + " of " + std::to_string(cache.settings().bytes) + " in use");
  const std::int32_t per_tile = r.images[static_cast<std::size_t>(item.image)].tokens_per_tile;
  for (const encoder_cache::sharer& s : e.sharers) {
    timings& t = store.record(s.sequence->slot).outcome.when;
    t.encode_start = std::min(t.encode_start, now);
  }
  for (std::int32_t t = first; t < end; ++t) {
    auto* out = reinterpret_cast<float*>(e.memory.get()) + static_cast<std::int64_t>(t) * per_tile * info_.hidden_size;
    start(tile_job{.entry = e.id, .tile = t, .pixels = e.pixels, .memory = e.memory, .embeddings = out});
  }
  cache.start(e, end - first);
  tokens_in_flight_ += (end - first) * per_tile;
}

VLBATCH_INLINE void engine_core::fail(encoder_cache::entry& e, const std::string& why) {
  for (const encoder_cache::sharer& s : e.sharers) doomed_.emplace_back(s.sequence->id, "encode: " + why);
  cache.mark_failed(e);
}

VLBATCH_INLINE void engine_core::complete(const tile_done& d, const std::function<void(const sequence_view&, std::int32_t)>& tell) {
  ++stats.encoded_tiles;
  if (d.started != last_batch_) stats.encode_time += d.ended - d.started;
  last_batch_ = d.started;
  tokens_in_flight_ -= info_.tokens_per_tile;
  encoder_cache::entry* e = cache.find(d.entry);
  if (e == nullptr) return;
  if (!d.error.empty() && !e->failed) {
    fail(*e, d.error);
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

VLBATCH_INLINE token_outcome engine_core::append(sequence_view& v, const sampled_token& t, time_point when,
                                                 const std::function<void(std::int32_t, std::string&)>& append_text) {
  sequence_record& r = store.record(v.slot);
  const request& q = r.origin.what;
  if (t.token < 0)
    return {true, status::failed, "logits of token " + std::to_string(v.generated_tokens) + " are not finite, or every token is banned"};
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
    r.outcome.top_logprobs.insert(r.outcome.top_logprobs.end(), t.top.begin(), t.top.end());
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

VLBATCH_INLINE void engine_core::settle(ended_request e) {
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

VLBATCH_INLINE engine_core::~engine_core() = default;

VLBATCH_INLINE seq_id engine_core::submit(request r, bool keep_result) {
  check_request(r);
  outstanding.fetch_add(1, std::memory_order_acq_rel);
  const bool keep = keep_result || !r.on_finish;
  return door.submit(std::move(r), keep);
}

VLBATCH_INLINE void engine_core::collect(time_point now) {
  arrived.clear();
  cancelled.clear();
  tiles.clear();
  door.collect(now, arrived, cancelled);
}

VLBATCH_INLINE std::optional<ended_request> engine_core::refusal(arrived_request& a, std::int64_t max_kv_tokens, time_point now) const {
  std::string why = a.error;
  status s = status::failed;
  if (a.cancelled) {
    s = status::cancelled;
    why = "cancelled";
  } else if (why.empty()) {
    s = status::refused;
    why = why_unusable(a.what.sampling, info_.vocab_size);
    if (why.empty())
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

VLBATCH_INLINE scheduler_state engine_core::state(time_point now, const kv_budget& kv, std::span<const lane_view> lanes) const {
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

VLBATCH_INLINE void engine_core::validate(const scheduler_state& s, const step_plan& plan, std::string_view policy, bool swappable) {
  std::string where;
  objection o = check_plan(s, plan, ledger_, where);
  const auto swaps = [](const evict_item& e) { return e.how == eviction::swap; };
  if (!o && !swappable && (!plan.resume.empty() || std::any_of(plan.evict.begin(), plan.evict.end(), swaps))) {
    o = {"the KV cache cannot swap", 1, 0};
    where = "evict/resume";
  }
  if (o) throw policy_error("policy " + std::string(policy) + ": " + where + ": " + o.text());
}

VLBATCH_INLINE void engine_core::throw_stalled(std::string_view policy) const {
  throw policy_stalled("policy " + std::string(policy) + ": " + std::to_string(store.waiting().size()) + " waiting, " +
                       std::to_string(store.running().size()) +
                       " running, nothing planned, nothing in flight, no arrival to come and no wake_at");
}

VLBATCH_INLINE void engine_core::evict(seq_id id) {
  ++stats.preemptions;
  store.restart(edit(id), cache, bytes_per_embedding_);
}

VLBATCH_INLINE void engine_core::note_launch(const step_plan& plan, step_report& report) {
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

VLBATCH_INLINE void engine_core::account(step_report& report) {
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

VLBATCH_INLINE void engine_core::advance(sequence_view& v, std::int32_t n) {
  v.computed_tokens += n;
  v.in_flight_tokens = 0;
  sequence_record& r = store.record(v.slot);
  r.computed_before = std::max(r.computed_before, v.computed_tokens);
  if (!v.images.empty()) store.consume_images(v, cache);
}

VLBATCH_INLINE ended_request engine_core::conclude(const sequence_view& v, status s, const std::string& reason, time_point now) {
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

}  // namespace vlbatch::inline v0
