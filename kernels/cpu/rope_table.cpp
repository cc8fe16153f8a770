// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope_table.hpp"

#include <algorithm>
#include <cmath>

namespace vlbatch::inline v0 {

void rope_table::prepare(float theta, std::int32_t head_dim, std::span<const std::int32_t> positions) {
  const auto half = static_cast<std::size_t>(head_dim / 2);
  if (theta != theta_ || inv_freq_.size() != half) {
    theta_ = theta;
    size_ = 0;
    inv_freq_.resize(half);
    // Single precision at every step, as the models were trained with (transformers: 1 / theta ** (2i / d)): at position 8,000 one unit in
    // the last place of a frequency moves the angle by 5e-4.
    for (std::size_t i = 0; i < half; ++i) {
      const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
      inv_freq_[i] = 1.0F / static_cast<float>(std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
    }
  }
  std::int32_t last = -1;
  for (const auto p : positions) last = std::max(last, p);
  if (last < size_) return;
  const std::int32_t wanted = std::max({last + 1, 2 * size_, 256});
  values_.resize(static_cast<std::size_t>(wanted) * 2 * half);
  fill(size_, wanted);
  size_ = wanted;
}

void rope_table::fill(std::int32_t first, std::int32_t last) {
  const std::size_t half = inv_freq_.size();
  for (std::int32_t p = first; p < last; ++p) {
    float* cosines = values_.data() + static_cast<std::size_t>(p) * 2 * half;
    float* sines = cosines + half;
    for (std::size_t i = 0; i < half; ++i) {
      const auto angle = static_cast<double>(static_cast<float>(p) * inv_freq_[i]);
      cosines[i] = static_cast<float>(std::cos(angle));
      sines[i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace vlbatch::inline v0
