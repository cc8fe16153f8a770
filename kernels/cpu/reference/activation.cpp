// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {

void silu_mul(context& /*s*/, input gate_up, output y) {
  for (std::int32_t r = 0; r < y.rows; ++r) {
    const float* gate = gate_up.row(r);
    const float* up = gate + y.cols;
    for (std::int32_t c = 0; c < y.cols; ++c) y.row(r)[c] = gate[c] / (1.0F + std::exp(-gate[c])) * up[c];
  }
}

}  // namespace vlbatch::inline v0::reference
