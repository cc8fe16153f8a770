// SPDX-License-Identifier: Apache-2.0
/// \file
/// The ragged batch of one step: what the engine gathers and a model computes.
#pragma once

#include <cstdint>
#include <span>

namespace vlbatch::inline v0 {

/// Rows of image embeddings to put in place of token embeddings.
struct injected_rows {
  std::int32_t first_row = 0;         ///< row of the batch
  std::int32_t num_rows = 0;          ///< how many, consecutive
  const float* embeddings = nullptr;  ///< `[num_rows, hidden]`; backend memory
};

/// Which rows of a step belong to which sequence. Sequence \p s owns rows `[row_begin[s], row_begin[s + 1])`; the first `num_tokens[s]` of
/// them are its tokens at positions `context[s], context[s] + 1, ...`, the others are pads: they pass every row-wise operation, read and
/// write no KV, and nobody looks at them. Rows from `row_begin[num_sequences]` to `rows` belong to nobody (lockstep batching). All memory
/// is the engine's and valid until the step ends.
struct row_map {
  std::int32_t num_sequences = 0;            ///< sequences of the batch
  std::int32_t rows = 0;                     ///< all rows, pads and empty rows included
  std::span<const std::int32_t> row_begin;   ///< `[num_sequences + 1]`
  std::span<const std::int32_t> num_tokens;  ///< `[num_sequences]`
  std::span<const std::int32_t> context;     ///< `[num_sequences]` tokens whose KV is already stored
};

/// Input of one forward pass. Views only; the engine owns everything.
struct forward_input {
  row_map map;                               ///< which row is whose
  std::int32_t axes = 1;                     ///< position axes of the model (3 for M-RoPE)
  std::span<const std::int32_t> token_ids;   ///< `[rows]`; 0 for pads and empty rows
  std::span<const std::int32_t> positions;   ///< `[axes, rows]`; 0 for pads and empty rows
  std::span<const injected_rows> images;     ///< image rows, ascending, not overlapping
  std::span<const std::int32_t> logit_rows;  ///< `[wanted]` rows whose logits are wanted, ascending
};

}  // namespace vlbatch::inline v0
