// SPDX-License-Identifier: Apache-2.0
/// \file
/// From a committed plan to one ragged batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "vlbatch/core/batch.hpp"
#include "vlbatch/core/sequence_store.hpp"
#include "vlbatch/core/step_plan.hpp"

namespace vlbatch::inline v0 {

/// Gathers rows, positions, image rows by range intersection, and the rows whose logits are wanted: those where the last known token is
/// computed. Owns the arrays, reused from step to step.
class batch_gatherer {
 public:
  /// \param axes position axes of the model \param hidden columns of an embedding
  batch_gatherer(std::int32_t axes, std::int32_t hidden) : axes_(axes), hidden_(hidden) {}

  /// The batch of \p plan, whose sequences are all running. Valid until the next call.
  [[nodiscard]] forward_input gather(const step_plan& plan, sequence_store& store, encoder_cache& cache);
  /// Ids of the batch's sequences, in its order.
  [[nodiscard]] std::span<const seq_id> sequences() const noexcept { return sequences_; }

 private:
  // Tile t of an image fills positions [p, p + tokens_per_tile); the step computes [computed, computed + n). Only the overlap is injected.
  void inject(const sequence_view& v, const sequence_record& r, std::int32_t n, std::int32_t first_row, encoder_cache& cache);

  std::int32_t axes_;
  std::int32_t hidden_;
  std::vector<std::int32_t> ids_, rows_, begins_, tokens_, contexts_, wanted_;
  std::vector<injected_rows> images_;
  std::vector<seq_id> sequences_;
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/batch_gatherer-inl.hpp"
#endif
