// SPDX-License-Identifier: Apache-2.0
// Definitions of contiguous.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/kv/contiguous.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE contiguous_kv::contiguous_kv(const settings& s) : settings_(s) {
  if (s.sequences < 0 || s.bytes < 0 || s.tokens_per_sequence < 0) {
    throw invalid_argument("contiguous_kv: negative capacity (sequences " + std::to_string(s.sequences) + ", bytes " +
                           std::to_string(s.bytes) + ", tokens_per_sequence " + std::to_string(s.tokens_per_sequence) + ")");
  }
}

VLBATCH_INLINE void contiguous_kv::bind(const kv_binding& b) {
  const std::int32_t tokens = settings_.tokens_per_sequence > 0 ? settings_.tokens_per_sequence : b.max_positions;
  const bool counted = settings_.sequences > 0;
  tables_.bind(b, counted ? settings_.sequences : settings_.bytes / (b.shape.bytes_per_token() * tokens), tokens,
               counted ? std::to_string(settings_.sequences) + " sequences" : std::to_string(settings_.bytes) + " bytes");
}

VLBATCH_INLINE bool contiguous_kv::reserve(seq_id id, std::int32_t tokens) {
  return tokens <= tables_.budget().block_size && tables_.reserve(id, tokens);
}

}  // namespace vlbatch::inline v0
