// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows. The partial sums of a row are always the same vectors' in the same order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/normalise.cpp"
// clang-format off: the targets come first
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// clang-format on

#include <cmath>
#include <cstdint>

#include "cpu/simd/vectors-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace {

/// Sum of (x - shift)^Power over a row, Power 1 or 2. What lies beyond the row's end counts as shift, that is as nothing.
template <int Power>
HWY_INLINE float row_sum(const float* x, std::int32_t n, float shift) {
  const float_tag d;
  const float_vector from = hn::Set(d, shift);
  // Four chains hide the latency of an addition.
  float_vector sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  const auto add = [&](float_vector& to, float_vector v) HWY_ATTR {
    const float_vector difference = hn::Sub(v, from);
    to = Power == 1 ? hn::Add(to, difference) : hn::MulAdd(difference, difference, to);
  };
  std::int32_t c = 0;
  for (; c + 4 * lanes <= n; c += 4 * lanes) {
    VLBATCH_UNROLL
    for (int v = 0; v < 4; ++v) add(sum[v], hn::LoadU(d, x + c + v * lanes));
  }
  for (; c + lanes <= n; c += lanes) add(sum[0], hn::LoadU(d, x + c));
  if (c < n) add(sum[1], hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(n - c)), load_some(x + c, n - c), from));
  return sum_of(hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3])));
}

/// Rough duration of an operation that passes a matrix three times.
[[nodiscard]] double nanoseconds(matrix_view<const float> x) { return static_cast<double>(x.rows) * x.cols / lanes; }

void layer_norm(cpu_kernels::context& s, matrix_view<const float> x, const float* gamma, const float* beta, float eps,
                matrix_view<float> y) {
  s.for_rows(x.rows, nanoseconds(x), [&](std::int32_t r) HWY_ATTR {
    const float_tag d;
    const auto count = static_cast<float>(x.cols);
    const float* in = x.row(r);
    const float mean = row_sum<1>(in, x.cols, 0.0F) / count;
    const float_vector shift = hn::Set(d, mean);
    const float_vector scale = hn::Set(d, 1.0F / std::sqrt(row_sum<2>(in, x.cols, mean) / count + eps));
    for (std::int32_t c = 0; c < x.cols; c += lanes) {
      const std::int32_t n = x.cols - c;
      const float_vector v = hn::Mul(hn::Sub(load_some(in + c, n), shift), scale);
      store_some(hn::MulAdd(v, load_some(gamma + c, n), load_some(beta + c, n)), y.row(r) + c, n);
    }
  });
}

void rms_norm(cpu_kernels::context& s, matrix_view<const float> x, const float* gamma, float eps, matrix_view<float> y) {
  s.for_rows(x.rows, nanoseconds(x), [&](std::int32_t r) HWY_ATTR {
    const float_tag d;
    const float* in = x.row(r);
    const float_vector scale = hn::Set(d, 1.0F / std::sqrt(row_sum<2>(in, x.cols, 0.0F) / static_cast<float>(x.cols) + eps));
    for (std::int32_t c = 0; c < x.cols; c += lanes) {
      const std::int32_t n = x.cols - c;
      store_some(hn::Mul(hn::Mul(load_some(in + c, n), scale), load_some(gamma + c, n)), y.row(r) + c, n);
    }
  });
}

}  // namespace

void add_normalise(cpu_kernels& table) {
  table.layer_norm = layer_norm;
  table.rms_norm = rms_norm;
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vlbatch::inline v0 {

void add_normalise(cpu_kernels& table, cpu_level level) { VLBATCH_AT_LEVEL(level, add_normalise(table)) }

}  // namespace vlbatch::inline v0
#endif
