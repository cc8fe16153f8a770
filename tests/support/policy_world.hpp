// SPDX-License-Identifier: Apache-2.0
// The engine's bookkeeping without a model: what a policy sees and what its plans do, step by step, in no time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/fake_model.hpp"
#include "vlbatch/core/admission.hpp"
#include "vlbatch/core/hooks.hpp"
#include "vlbatch/core/plan_ledger.hpp"
#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/core/sequence_store.hpp"
#include "vlbatch/kv/block_tables.hpp"
#include "vlbatch/vision/encoder_cache.hpp"

namespace vlbatch::testing {

/// A request of the world. The answer's true length is hidden from policies.
struct world_request {
  std::shared_ptr<const prepared_request> prompt;
  std::int32_t max_new_tokens = 1;
  std::int32_t answer = 1;  // 1..max_new_tokens
  int arrives = 0;          // step
};

/// Sizes of the world.
struct world_settings {
  vlbatch::limits lim{};
  std::int32_t blocks = 64;
  std::int32_t block_size = 16;
  std::int64_t encoder_bytes = 1 << 20;
  bool share_pictures = true;
  bool in_step = true;  // false: a lane beside the step
};

/// Sequences, queues, blocks, encoder cache and one vision lane. `tell` arguments are called with a function to be applied to every policy
/// that follows the run: `tell([&](auto& policy) { ... })`.
class policy_world {
 public:
  static constexpr std::int64_t bytes_per_embedding = fake_model::hidden * 4;

  explicit policy_world(const world_settings& s)
      : s_(s), cache_({.bytes = s.encoder_bytes, .reuse = s.share_pictures}, [](std::int64_t n) { return memory(n); }) {
    tables_.bind({.shape = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .type = dtype::i8},
                  .max_positions = 1 << 20,
                  .allocate = [](std::int64_t) { return memory(1); }},
                 s.blocks, s.block_size, "");
    lane_.in_step = s.in_step;
  }

  /// What the policy sees.
  [[nodiscard]] scheduler_state state() {
    lane_.tiles_in_flight = static_cast<std::int32_t>(in_flight_.size());
    lane_.busy_until = in_flight_.empty() ? time_point{} : never;
    return {.now = now_,
            .lim = s_.lim,
            .table = store_.table(),
            .waiting = store_.waiting(),
            .running = store_.running(),
            .swapped = store_.swapped(),
            .kv = tables_.budget(),
            .encoder = {.free_bytes = s_.encoder_bytes - cache_.used_bytes(),
                        .total_bytes = s_.encoder_bytes,
                        .tokens_in_flight = static_cast<std::int32_t>(in_flight_.size()) * fake_model::per_tile,
                        .cache = &cache_},
            .lanes = std::span(&lane_, 1),
            .estimate = {}};
  }
  /// Why the engine would refuse \p q; empty if it would not.
  [[nodiscard]] std::string refuses(const world_request& q) const {
    static const model_info info = fake_model().info();
    return why_impossible(*q.prompt, q.max_new_tokens, info, s_.lim, std::int64_t{s_.blocks} * s_.block_size, s_.encoder_bytes,
                          bytes_per_embedding);
  }
  /// A request joins the queue.
  template <class Tell>
  seq_id arrive(const world_request& q, Tell&& tell) {
    arrived_request a;
    a.id = seq_id{++last_id_};
    a.what.max_new_tokens = q.max_new_tokens;
    a.ready = q.prompt;
    a.when.arrival = now_;
    const sequence_view& v = store_.add(std::move(a), cache_, bytes_per_embedding);
    answers_[v.id] = q.answer;
    tell([&](auto& p) { hook::on_arrival(p, v); });
    return v.id;
  }
  /// The lane finishes up to \p n tiles.
  template <class Tell>
  void finish_tiles(int n, Tell&& tell) {
    for (; n > 0 && !in_flight_.empty(); --n) {
      encoder_cache::entry* e = cache_.find(in_flight_.front());
      in_flight_.pop_front();
      if (e == nullptr) throw std::logic_error("policy_world: an entry in flight is gone");
      for (const encoder_cache::sharer& s : e->sharers) {
        const auto image = static_cast<std::int32_t>(s.image - s.sequence->images.data());
        tell([&](auto& p) { hook::on_encoded(p, *s.sequence, image); });
      }
      cache_.complete(*e);
    }
  }
  /// A request goes away.
  template <class Tell>
  void cancel(seq_id id, Tell&& tell) {
    end(id, false, tell);
  }
  /// The engine's verdict on \p plan, "" if it is legal. Call before carry_out, as the engine does.
  [[nodiscard]] std::string judge(const step_plan& plan) {
    std::string where;
    const scheduler_state now = state();
    const objection o = check_plan(now, plan, ledger_, where);
    if (o) return where + ": " + o.text();
    for (const evict_item& e : plan.evict) {
      if (e.how == eviction::swap) return "the KV cache cannot swap";
    }
    return plan.resume.empty() ? "" : "the KV cache cannot swap";
  }
  /// Does what \p plan says and lets \p step_time pass.
  template <class Tell>
  void carry_out(const step_plan& plan, Tell&& tell, duration step_time = std::chrono::milliseconds(1)) {
    for (const drop_item& d : plan.drop) end(d.id, false, tell);
    for (const encode_item& e : plan.encode) {
      const sequence_view& v = edit(e.id);
      encoder_cache::entry& entry = *cache_.find(store_.record(v.slot).entries[static_cast<std::size_t>(e.image)]);
      if (entry.tiles_started != e.first_tile) continue;  // another sequence of the plan asked for the same picture
      if (!cache_.reserve(entry, v, ledger_.named())) throw std::logic_error("policy_world: a legal plan has no encoder bytes");
      in_flight_.insert(in_flight_.end(), static_cast<std::size_t>(e.num_tiles), entry.id);
      cache_.start(entry, e.num_tiles);
    }
    for (const evict_item& e : plan.evict) {
      tables_.release(e.id);
      store_.restart(edit(e.id), cache_, bytes_per_embedding);
    }
    for (const run_item& i : plan.run) {
      sequence_view& v = edit(i.id);
      if (!tables_.reserve(i.id, v.computed_tokens + i.num_tokens)) throw std::logic_error("policy_world: a legal plan has no blocks");
      v.kv_blocks = v.releasable_blocks = tables_.blocks_of(i.id);
      if (v.where == phase::waiting) store_.admit(v);
    }
    if (s_.in_step) finish_tiles(1 << 20, tell);
    now_ += step_time;
    if (plan.run.empty()) return;
    ++steps_;
    tell([&](auto& p) { hook::on_step(p, plan, step_time); });
    for (const run_item& i : plan.run) {
      sequence_view& v = edit(i.id);
      v.computed_tokens += i.num_tokens;
      rows_ += i.num_tokens + i.pad_tokens;
      if (!v.images.empty()) store_.consume_images(v, cache_);
      if (v.remaining() > 0) continue;
      if (v.max_new_tokens > 0) {
        ++v.generated_tokens;
        v.last_token = now_;
        if (v.first_token == never) v.first_token = now_;
        tell([&](auto& p) { hook::on_token(p, v); });
      }
      if (v.generated_tokens >= std::min(answers_[v.id], v.max_new_tokens)) end(v.id, true, tell);
    }
    rows_ += plan.empty_rows;
  }
  /// Nothing to do until \p t.
  void sleep_until(time_point t) { now_ = std::max(now_, t); }

  [[nodiscard]] const sequence_table& table() const { return store_.table(); }
  [[nodiscard]] std::int32_t tiles_in_flight() const { return static_cast<std::int32_t>(in_flight_.size()); }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] const std::vector<seq_id>& finished() const { return finished_; }
  [[nodiscard]] const std::vector<seq_id>& dropped() const { return dropped_; }
  [[nodiscard]] kv_usage usage() const { return tables_.usage(); }
  [[nodiscard]] encoder_cache& cache() { return cache_; }

 private:
  static std::shared_ptr<std::byte> memory(std::int64_t n) {
    return {new std::byte[static_cast<std::size_t>(n)], [](const std::byte* p) { delete[] p; }};
  }
  [[nodiscard]] sequence_view& edit(seq_id id) { return store_.view(store_.table().find(id)->slot); }
  template <class Tell>
  void end(seq_id id, bool answered, Tell&& tell) {
    sequence_view& v = edit(id);
    tell([&](auto& p) { answered ? hook::on_finish(p, v) : hook::on_drop(p, v); });
    tables_.release(id);
    answers_.erase(id);
    store_.remove(v, cache_);
    (answered ? finished_ : dropped_).push_back(id);
  }

  world_settings s_;
  encoder_cache cache_;
  sequence_store store_;
  block_tables tables_;
  plan_ledger ledger_;
  lane_view lane_;
  std::deque<std::uint64_t> in_flight_;  // entry of each tile
  std::map<seq_id, std::int32_t> answers_;
  std::vector<seq_id> finished_, dropped_;
  std::uint64_t last_id_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t rows_ = 0;
  time_point now_ = time_point{} + std::chrono::seconds(1);
};

}  // namespace vlbatch::testing
