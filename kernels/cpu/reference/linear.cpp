// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {
namespace {

// Hendrycks and Gimpel's tanh approximation ("gelu_pytorch_tanh").
[[nodiscard]] float gelu_tanh(float x) {
  constexpr float sqrt_2_over_pi = 0.7978845608028654F;
  return 0.5F * x * (1.0F + std::tanh(sqrt_2_over_pi * (x + 0.044715F * x * x * x)));
}

}  // namespace

void linear(context& /*s*/, input x, const cpu::weight::impl& w, output y, const linear_epilogue& e) {
  for (std::int32_t m = 0; m < x.rows; ++m) {
    for (std::int32_t n = 0; n < w.out; ++n) {
      float sum = 0.0F;
      for (std::int32_t k = 0; k < w.in; ++k) sum += x.row(m)[k] * w.at(n, k);
      if (e.bias != nullptr) sum += e.bias[n];
      if (e.act == linear_epilogue::activation::gelu_tanh) sum = gelu_tanh(sum);
      y.row(m)[n] = e.accumulate ? y.row(m)[n] + sum : sum;
    }
  }
}

}  // namespace vlbatch::inline v0::reference
