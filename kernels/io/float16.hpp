// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the 16-bit formats.
#pragma once

#include <bit>
#include <cstdint>

namespace vlbatch::inline v0 {

[[nodiscard]] constexpr float bf16_to_f32(std::uint16_t b) noexcept { return std::bit_cast<float>(static_cast<std::uint32_t>(b) << 16U); }

/// Nearest, ties to even; NaN stays NaN.
[[nodiscard]] constexpr std::uint16_t f32_to_bf16(float f) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

/// Exact, subnormals, infinities and NaN included.
[[nodiscard]] constexpr float f16_to_f32(std::uint16_t h) noexcept {
  const std::uint32_t sign = (h & 0x8000U) << 16U;
  const std::uint32_t exponent = (h >> 10U) & 0x1FU;
  const std::uint32_t fraction = h & 0x3FFU;
  if (exponent == 0x1FU) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
  const float magnitude = static_cast<float>(fraction) * 0x1.0p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

}  // namespace vlbatch::inline v0
