// SPDX-License-Identifier: Apache-2.0
// Elementary functions on vectors. Included once for each target.
#if defined(VLBATCH_MATH_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef VLBATCH_MATH_INL
#undef VLBATCH_MATH_INL
#else
#define VLBATCH_MATH_INL
#endif

#include <limits>

#include "cpu/simd/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {

/// e^x within 1.1 units in the last place (measured over all inputs; 1.6 without FMA). 0 below -87 (where e^x is about to leave the normal
/// numbers), infinity above 88.7228, NaN for NaN; exactly 1 for 0.
///
/// Cody and Waite's reduction x = n ln 2 + r, |r| <= ln 2 / 2, with ln 2 in two parts; e^r = 1 + r + r^2 q(r), where q has degree 4 and
/// minimises the relative error (3e-9; own fit).
HWY_INLINE float_vector exp_of(float_vector x) {
  const float_tag d;
  const hn::RebindToSigned<float_tag> di;
  // Adding 1.5 * 2^23 rounds to the nearest integer, and leaves it in the low bits.
  const auto magic = hn::Set(d, 12582912.0F);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504F), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4F), r);
  auto q = hn::MulAdd(hn::Set(d, 0x1.6a2352p-10F), r, hn::Set(d, 0x1.123a6cp-7F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.5558f4p-5F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.555490p-3F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.fffffcp-2F));
  const auto e = hn::Add(hn::MulAdd(q, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, e), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  auto y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0F)), scaled);
  y = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.7228F)), hn::Set(d, std::numeric_limits<float>::infinity()), y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// 2^x for x <= 0 within 1 unit in the last place (measured over all inputs), 0 below -126, NaN for NaN; exactly 1 for 0.
///
/// The nearest integer goes into the exponent, and a polynomial of degree 6 that minimises the relative error (2e-9; own fit) takes the
/// rest, in [-1/2, 1/2].
HWY_INLINE float_vector exp2_of_negative(float_vector x) {
  const float_tag d;
  const hn::RebindToSigned<float_tag> di;
  // As above, with the bias of the exponent added: the low bits are those of 2^n as soon as they are shifted.
  const auto magic = hn::Set(d, 12582912.0F + 127.0F);
  const auto shifted = hn::Add(x, magic);
  const auto r = hn::Sub(x, hn::Sub(shifted, magic));
  auto q = hn::MulAdd(hn::Set(d, 0x1.41fb74p-13F), r, hn::Set(d, 0x1.5f3ec2p-10F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.3b2d4ep-7F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.c6aee8p-5F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.ebfbdcp-3F));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.62e430p-1F));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0F));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0F)), hn::Mul(q, power));
}

/// x / (1 + e^-z): silu for z = x.
HWY_INLINE float_vector times_logistic(float_vector x, float_vector z) {
  const float_tag d;
  return hn::Div(x, hn::Add(hn::Set(d, 1.0F), exp_of(hn::Neg(z))));
}

/// x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3), computed as x / (1 + e^-2u): no difference of nearly equal numbers, so that
/// small results keep their digits (absolute error below 3e-7 for |x| <= 10).
HWY_INLINE float_vector gelu_tanh_of(float_vector x) {
  const float_tag d;
  const auto cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 2.0F * 0.7978845608F * 0.044715F), hn::Set(d, 2.0F * 0.7978845608F));
  return times_logistic(x, hn::Mul(x, cubic));
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
