// SPDX-License-Identifier: Apache-2.0
/// \file
/// Counter-based random numbers.
#pragma once

#include <cstdint>

namespace vlbatch::inline v0 {

/// Uniform number in [0, 1) that depends on (\p seed, \p position) alone, so that a request's draws do not depend on its company, on
/// preemption or on the order of steps. Two rounds of the SplitMix64 finaliser (Steele, Lea, Flood: Fast splittable pseudorandom number
/// generators, OOPSLA 2014) over the pair.
[[nodiscard]] constexpr double counter_uniform(std::uint64_t seed, std::uint64_t position) noexcept {
  const auto mix = [](std::uint64_t z) {
    z += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  };
  return static_cast<double>(mix(mix(seed) ^ (position * 0xD1342543DE82EF95ULL)) >> 11U) * 0x1.0p-53;
}

}  // namespace vlbatch::inline v0
