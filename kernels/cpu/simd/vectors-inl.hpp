// SPDX-License-Identifier: Apache-2.0
// Vectors of f32, and rows whose length need not be a multiple of them. Included once for each target.
#if defined(VLBATCH_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef VLBATCH_VECTORS_INL
#undef VLBATCH_VECTORS_INL
#else
#define VLBATCH_VECTORS_INL
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using float_tag = hn::ScalableTag<float>;
using float_vector = hn::Vec<float_tag>;
/// Elements of a vector: 16, 8 or 4.
inline constexpr std::int32_t lanes = static_cast<std::int32_t>(hn::MaxLanes(float_tag()));

/// The \p n elements at \p p, or as many as make a vector, followed by zeros. Nothing beyond them is read.
HWY_INLINE float_vector load_some(const float* p, std::int64_t n) {
  const float_tag d;
  if (HWY_LIKELY(n >= lanes)) return hn::LoadU(d, p);
  HWY_ALIGN float part[lanes] = {};
  for (std::int64_t i = 0; i < n; ++i) part[i] = p[i];
  return hn::Load(d, part);
}

/// Stores the first \p n elements of \p v, or all of them.
HWY_INLINE void store_some(float_vector v, float* p, std::int64_t n) {
  const float_tag d;
  if (HWY_LIKELY(n >= lanes)) {
    hn::StoreU(v, d, p);
    return;
  }
  HWY_ALIGN float part[lanes];
  hn::Store(v, d, part);
  for (std::int64_t i = 0; i < n; ++i) p[i] = part[i];
}

/// Sum of all lanes, in an order that is always the same.
HWY_INLINE float sum_of(float_vector v) {
  const float_tag d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
