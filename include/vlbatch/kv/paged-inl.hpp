// SPDX-License-Identifier: Apache-2.0
// Definitions of paged.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/kv/paged.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE paged_kv::paged_kv(const settings& s) : settings_(s) {
  if (s.block_size < 16 || s.block_size > 256)
    throw invalid_argument("paged_kv: block_size " + std::to_string(s.block_size) + " is not in 16..256");
  if (s.blocks < 0 || s.bytes < 0)
    throw invalid_argument("paged_kv: negative capacity (blocks " + std::to_string(s.blocks) + ", bytes " + std::to_string(s.bytes) + ")");
}

VLBATCH_INLINE void paged_kv::bind(const kv_binding& b) {
  const std::int64_t block_bytes = b.shape.bytes_per_token() * settings_.block_size;
  const bool counted = settings_.blocks > 0;
  tables_.bind(b, counted ? settings_.blocks : settings_.bytes / block_bytes, settings_.block_size,
               counted ? std::to_string(settings_.blocks) + " blocks" : std::to_string(settings_.bytes) + " bytes");
}

}  // namespace vlbatch::inline v0
