// SPDX-License-Identifier: Apache-2.0
#include "io/image_resample.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "io/image_resample_simd.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for every instruction set
// The order matters.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::io_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One output vector of as many bytes as D has lanes.
template <class D>
void weighted_vector(D d, const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* weights, std::int32_t count,
                     std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, D> bytes;
  auto sum = hn::Set(d, 1 << (weight_bits - 1));
  for (std::int32_t t = 0; t < count; ++t) {
    sum = hn::Add(sum, hn::Mul(hn::PromoteTo(d, hn::LoadU(bytes, rows + t * stride)), hn::Set(d, weights[t])));
  }
  hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<weight_bits>(sum)), bytes, out);
}

void weighted_rows(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* weights, std::int32_t count, std::size_t n,
                   std::uint8_t* out) {
  const hn::ScalableTag<std::int32_t> d;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  // Four sums at once hide the latency of the multiplications.
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    auto sum0 = hn::Set(d, 1 << (weight_bits - 1));
    auto sum1 = sum0, sum2 = sum0, sum3 = sum0;
    const std::uint8_t* row = rows + i;
    for (std::int32_t t = 0; t < count; ++t, row += stride) {
      const auto weight = hn::Set(d, weights[t]);
      sum0 = hn::Add(sum0, hn::Mul(hn::PromoteTo(d, hn::LoadU(bytes, row)), weight));
      sum1 = hn::Add(sum1, hn::Mul(hn::PromoteTo(d, hn::LoadU(bytes, row + lanes)), weight));
      sum2 = hn::Add(sum2, hn::Mul(hn::PromoteTo(d, hn::LoadU(bytes, row + 2 * lanes)), weight));
      sum3 = hn::Add(sum3, hn::Mul(hn::PromoteTo(d, hn::LoadU(bytes, row + 3 * lanes)), weight));
    }
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<weight_bits>(sum0)), bytes, out + i);
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<weight_bits>(sum1)), bytes, out + i + lanes);
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<weight_bits>(sum2)), bytes, out + i + 2 * lanes);
    hn::StoreU(hn::DemoteTo(bytes, hn::ShiftRight<weight_bits>(sum3)), bytes, out + i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) weighted_vector(d, rows + i, stride, weights, count, out + i);
  for (; i < n; ++i) weighted_vector(hn::CappedTag<std::int32_t, 1>(), rows + i, stride, weights, count, out + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace vlbatch::inline v0::io_detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vlbatch::inline v0::io_detail {

HWY_EXPORT(weighted_rows);

void weighted_rows(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* weights, std::int32_t count, std::size_t n,
                   std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(weighted_rows)(rows, stride, weights, count, n, out);
}

}  // namespace vlbatch::inline v0::io_detail
#endif  // HWY_ONCE
