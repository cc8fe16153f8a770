// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary position embeddings.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace vlbatch::inline v0 {

/// Table of cosines and sines by position. Every layer of a step needs the same rows, so they are computed once and kept. Grown on demand
/// by doubling: steady decoding allocates nothing.
class rope_table {
 public:
  /// Makes `row(p)` valid for every p of \p positions, for heads of \p head_dim elements and base \p theta.
  void prepare(float theta, std::int32_t head_dim, std::span<const std::int32_t> positions);
  /// Cosines of position \p p, `[head_dim / 2]`, then its sines, `[head_dim / 2]`.
  [[nodiscard]] const float* row(std::int32_t p) const noexcept {
    return values_.data() + static_cast<std::int64_t>(p) * 2 * static_cast<std::int64_t>(inv_freq_.size());
  }

 private:
  void fill(std::int32_t first, std::int32_t last);

  float theta_ = 0.0F;
  std::vector<float> inv_freq_;  // [head_dim / 2]
  std::vector<float> values_;    // [size_, head_dim]
  std::int32_t size_ = 0;
};

}  // namespace vlbatch::inline v0
