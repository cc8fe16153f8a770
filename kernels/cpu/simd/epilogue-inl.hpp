// SPDX-License-Identifier: Apache-2.0
// What follows a matrix product while its tile is still in the cache. Included once for each target.
#if defined(VLBATCH_EPILOGUE_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef VLBATCH_EPILOGUE_INL
#undef VLBATCH_EPILOGUE_INL
#else
#define VLBATCH_EPILOGUE_INL
#endif

#include <cstdint>

#include "cpu/simd/math-inl.hpp"
#include "vlbatch/backend/backend.hpp"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {

/// Bias, activation, addition and store of one vector of columns, from \p column on, of \p rows rows of a tile. Columns beyond y are left
/// out.
HWY_INLINE void finish_columns(const linear_epilogue& e, matrix_view<float> y, std::int32_t row, std::int32_t rows, std::int32_t column,
                               const float* tile, std::int64_t tile_stride) {
  const float_tag d;
  const std::int32_t valid = y.cols - column;
  if (valid <= 0) return;
  const float_vector bias = e.bias != nullptr ? load_some(e.bias + column, valid) : hn::Zero(d);
  for (std::int32_t r = 0; r < rows; ++r) {
    float_vector value = hn::LoadU(d, tile + r * tile_stride);
    if (e.bias != nullptr) value = hn::Add(value, bias);
    if (e.act == linear_epilogue::activation::gelu_tanh) value = gelu_tanh_of(value);
    float* to = y.row(row + r) + column;
    if (e.accumulate) value = hn::Add(load_some(to, valid), value);
    store_some(value, to, valid);
  }
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
