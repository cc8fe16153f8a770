// SPDX-License-Identifier: Apache-2.0
/// \file
/// The one place where it is decided what a plan may do. `plan_builder` asks it while a policy plans; the engine replays a finished plan
/// through it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/core/sequence_table.hpp"
#include "vlbatch/core/step_plan.hpp"
#include "vlbatch/vision/encoder_cache.hpp"

namespace vlbatch::inline v0 {

/// Why an item is not possible: what, and both values. Empty when it is possible. Cheap to copy; text is made only when somebody asks.
struct objection {
  const char* what = nullptr;  ///< static text
  std::int64_t wanted = 0;     ///< what the item asks for
  std::int64_t have = 0;       ///< what there is

  /// True if there is an objection.
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return what != nullptr; }
  /// "what (wanted W, have H)".
  [[nodiscard]] std::string text() const;
};

/// Trial account of a step: blocks, rows, sequences, encoder tokens and bytes after the items entered so far. Reused from step to step;
/// enters only items that are possible and returns the objection otherwise. Not thread-safe.
class plan_ledger {
 public:
  /// Starts an empty plan. \p state must outlive the plan.
  void begin(const scheduler_state& state);

  /// Blocks not yet spoken for.
  [[nodiscard]] std::int32_t free_blocks() const noexcept { return free_blocks_; }
  /// Rows that the step may still take.
  [[nodiscard]] std::int32_t free_rows() const noexcept { return state_->lim.max_num_batched_tokens - rows_; }
  /// Sequences that may still be admitted.
  [[nodiscard]] std::int32_t free_sequences() const noexcept { return state_->lim.max_num_seqs - sequences_; }
  /// Embedding rows that may still be encoded.
  [[nodiscard]] std::int32_t free_encoder_tokens() const noexcept { return state_->lim.max_encoder_tokens - encoder_tokens_; }
  /// True if the plan already runs, evicts or drops \p seq.
  [[nodiscard]] bool names(const sequence_view& seq) const noexcept { return (named_[index(seq.slot)] & is_named) != 0; }
  /// True if the plan evicts \p seq.
  [[nodiscard]] bool evicts(const sequence_view& seq) const noexcept { return (named_[index(seq.slot)] & is_evicted) != 0; }

  /// First position of \p seq whose embedding is not there, counting tiles that this plan encodes in the step; the number of known tokens
  /// if none is missing.
  [[nodiscard]] std::int32_t ready_limit(const sequence_view& seq) const noexcept;
  /// True if every image that \p seq still needs has memory, or will have once the plan is carried out.
  [[nodiscard]] bool holds_images(const sequence_view& seq) const noexcept;
  /// The largest n <= \p wanted that `run` would accept as far as ready embeddings, rows, blocks and atomic images go; 0 if none.
  [[nodiscard]] std::int32_t runnable(const sequence_view& seq, std::int32_t wanted) const noexcept;

  /// Enters a run item.
  [[nodiscard]] objection run(const sequence_view& seq, std::int32_t num_tokens, std::int32_t pad_tokens);

  /// Enters an encode item.
  [[nodiscard]] objection encode(const sequence_view& seq, std::int32_t image_index, std::int32_t first_tile, std::int32_t num_tiles,
                                 std::int32_t lane);

  /// Enters an evict item.
  [[nodiscard]] objection evict(const sequence_view& seq, eviction how);

  /// Enters a resume item.
  [[nodiscard]] objection resume(const sequence_view& seq);

  /// Enters a drop item.
  [[nodiscard]] objection drop(const sequence_view& seq);

  /// Enters rows that are computed for nobody.
  [[nodiscard]] objection empty_rows(std::int32_t rows);

  /// Which sequences the plan names, for encoder_cache::reserve.
  [[nodiscard]] const encoder_cache::named_slots& named() const noexcept { return named_; }

 private:
  static constexpr char is_named = 1;
  static constexpr char is_evicted = 2;
  static constexpr char is_encoded = 4;
  struct tiles {
    std::int32_t image;
    std::int32_t count;
    bool in_step;
  };

  [[nodiscard]] static std::size_t index(seq_slot s) noexcept { return static_cast<std::size_t>(s); }
  void name(const sequence_view& seq, char flag);
  [[nodiscard]] bool encodes(const sequence_view& seq) const noexcept { return (named_[index(seq.slot)] & is_encoded) != 0; }
  [[nodiscard]] std::int32_t planned(const sequence_view& seq, std::int32_t image) const noexcept;
  [[nodiscard]] std::int32_t planned_inline(const sequence_view& seq, std::int32_t image) const noexcept;
  // All new entries of the plan together must fit beside everything that the asker with the weakest claim may not drop: strict for the
  // others, simple, and safe.
  [[nodiscard]] objection encoder_room(std::int64_t more) const;

  const scheduler_state* state_ = nullptr;
  std::int32_t free_blocks_ = 0;
  std::int32_t rows_ = 0;
  std::int32_t sequences_ = 0;
  std::int32_t encoder_tokens_ = 0;
  std::int64_t encoder_bytes_ = 0;
  const sequence_view* weakest_ = nullptr;
  std::vector<char> named_;                       // by slot
  std::vector<std::vector<tiles>> inline_tiles_;  // by slot
  std::vector<seq_slot> touched_;
};

/// Replays \p plan through \p ledger. \return the first objection, with \p where set to the item ("run[2]: sequence 17"); empty if the plan
/// is legal
[[nodiscard]] objection check_plan(const scheduler_state& state, const step_plan& plan, plan_ledger& ledger, std::string& where);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/plan_ledger-inl.hpp"
#endif
