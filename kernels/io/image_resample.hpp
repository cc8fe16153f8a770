// SPDX-License-Identifier: Apache-2.0
// The inner loop of resampling.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vlbatch::inline v0::io_detail {

/// Fractional bits of resampling weights, as in Pillow: 8 bits of the sample and 2 bits of headroom leave 22 of 32.
inline constexpr int weight_bits = 32 - 8 - 2;

/// `out[i] = clip((sum over t < count of rows[t * stride + i] * weights[t] + half) >> weight_bits)` for i < n, on the widest vectors
/// that the machine has. Whole numbers only, so that every instruction set gives the same bytes.
void weighted_rows(const std::uint8_t* rows, std::ptrdiff_t stride, const std::int32_t* weights, std::int32_t count, std::size_t n,
                   std::uint8_t* out);

}  // namespace vlbatch::inline v0::io_detail
