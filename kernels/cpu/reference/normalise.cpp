// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdint>

#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {

void layer_norm(context& /*s*/, input x, const float* gamma, const float* beta, float eps, output y) {
  for (std::int32_t r = 0; r < x.rows; ++r) {
    const float* in = x.row(r);
    float sum = 0.0F;
    for (std::int32_t c = 0; c < x.cols; ++c) sum += in[c];
    const float mean = sum / static_cast<float>(x.cols);
    float squares = 0.0F;
    for (std::int32_t c = 0; c < x.cols; ++c) squares += (in[c] - mean) * (in[c] - mean);
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(x.cols) + eps);
    for (std::int32_t c = 0; c < x.cols; ++c) y.row(r)[c] = (in[c] - mean) * scale * gamma[c] + beta[c];
  }
}

void rms_norm(context& /*s*/, input x, const float* gamma, float eps, output y) {
  for (std::int32_t r = 0; r < x.rows; ++r) {
    const float* in = x.row(r);
    float squares = 0.0F;
    for (std::int32_t c = 0; c < x.cols; ++c) squares += in[c] * in[c];
    const float scale = 1.0F / std::sqrt(squares / static_cast<float>(x.cols) + eps);
    for (std::int32_t c = 0; c < x.cols; ++c) y.row(r)[c] = in[c] * scale * gamma[c];
  }
}

}  // namespace vlbatch::inline v0::reference
