// SPDX-License-Identifier: Apache-2.0
// Definitions of batch_gatherer.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/batch_gatherer.hpp"
#include "vlbatch/core/linkage.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE forward_input batch_gatherer::gather(const step_plan& plan, sequence_store& store, encoder_cache& cache) {
  rows_.clear(), tokens_.clear(), contexts_.clear(), ids_.clear(), begins_.assign(1, 0), images_.clear(), wanted_.clear(),
      sequences_.clear();
  for (const run_item& item : plan.run) {
    const sequence_view& v = *store.table().find(item.id);
    const sequence_record& r = store.record(v.slot);
    const auto first_row = static_cast<std::int32_t>(ids_.size());
    const auto from = r.tokens.begin() + v.computed_tokens;
    ids_.insert(ids_.end(), from, from + item.num_tokens);
    for (std::int32_t i = 0; i < item.num_tokens; ++i) rows_.push_back(v.computed_tokens + i);
    ids_.resize(ids_.size() + static_cast<std::size_t>(item.pad_tokens), 0);
    rows_.resize(ids_.size(), 0);
    inject(v, r, item.num_tokens, first_row, cache);
    if (item.num_tokens == v.remaining()) wanted_.push_back(first_row + item.num_tokens - 1);
    begins_.push_back(static_cast<std::int32_t>(ids_.size()));
    tokens_.push_back(item.num_tokens);
    contexts_.push_back(v.computed_tokens);
    sequences_.push_back(item.id);
  }
  ids_.resize(ids_.size() + static_cast<std::size_t>(plan.empty_rows), 0);
  rows_.resize(ids_.size(), 0);
  const std::size_t rows = rows_.size();
  for (std::int32_t a = 1; a < axes_; ++a) rows_.insert(rows_.end(), rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(rows));
  return {.map = {.num_sequences = static_cast<std::int32_t>(sequences_.size()),
                  .rows = static_cast<std::int32_t>(rows),
                  .row_begin = begins_,
                  .num_tokens = tokens_,
                  .context = contexts_},
          .axes = axes_,
          .token_ids = ids_,
          .positions = rows_,
          .images = images_,
          .logit_rows = wanted_};
}

VLBATCH_INLINE void batch_gatherer::inject(const sequence_view& v, const sequence_record& r, std::int32_t n, std::int32_t first_row,
                                           encoder_cache& cache) {
  const std::int32_t begin = v.computed_tokens;
  const std::int32_t end = begin + n;
  for (std::size_t i = 0; i < r.images.size(); ++i) {
    const image_view& image = r.images[i];
    if (r.entries[i] == 0 || image.first_position >= end || image.first_position + image.num_tokens <= begin) continue;
    const auto* embeddings = reinterpret_cast<const float*>(cache.find(r.entries[i])->memory.get());
    for (std::size_t t = 0; t < image.tile_positions.size(); ++t) {
      const std::int32_t tile = image.tile_positions[t];
      const std::int32_t from = std::max(begin, tile);
      const std::int32_t to = std::min(end, tile + image.tokens_per_tile);
      if (from >= to) continue;
      const std::int64_t row = static_cast<std::int64_t>(t) * image.tokens_per_tile + (from - tile);
      images_.push_back({first_row + from - begin, to - from, embeddings + row * hidden_});
    }
  }
}

}  // namespace vlbatch::inline v0
