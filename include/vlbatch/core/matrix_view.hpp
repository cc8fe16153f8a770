// SPDX-License-Identifier: Apache-2.0
/// \file
/// Non-owning row-major matrix, the one currency between model skeletons and backends.
#pragma once

#include <cassert>
#include <cstdint>
#include <type_traits>

namespace vlbatch::inline v0 {

/// A row-major `[rows, cols]` matrix that somebody else owns. Rows may be further apart than `cols` (`stride` elements).
/// Trivially copyable; passing it by value copies no data. The memory may be a device's: only a backend dereferences it.
template <class T>
struct matrix_view {
  T* data = nullptr;        ///< first element
  std::int32_t rows = 0;    ///< number of rows
  std::int32_t cols = 0;    ///< elements of a row
  std::int64_t stride = 0;  ///< elements between the starts of two rows

  constexpr matrix_view() = default;
  /// Dense matrix: stride equals cols.
  constexpr matrix_view(T* d, std::int32_t r, std::int32_t c) noexcept : data(d), rows(r), cols(c), stride(c) {}
  /// Matrix with explicit stride.
  constexpr matrix_view(T* d, std::int32_t r, std::int32_t c, std::int64_t s) noexcept : data(d), rows(r), cols(c), stride(s) {}
  /// A mutable view converts to a const one.
  template <class U>
  requires(std::is_const_v<T>&& std::is_same_v<std::remove_const_t<T>, U>) constexpr matrix_view(matrix_view<U> o) noexcept
      : data(o.data), rows(o.rows), cols(o.cols), stride(o.stride) {}

  /// Pointer to the first element of row \p r.
  [[nodiscard]] constexpr T* row(std::int32_t r) const noexcept { return data + static_cast<std::int64_t>(r) * stride; }
  /// Rows `[first, first + n)`.
  [[nodiscard]] constexpr matrix_view rows_from(std::int32_t first, std::int32_t n) const noexcept {
    assert(first >= 0 && n >= 0 && first + n <= rows);
    return {row(first), n, cols, stride};
  }
  /// Columns `[first, first + n)` of every row.
  [[nodiscard]] constexpr matrix_view cols_from(std::int32_t first, std::int32_t n) const noexcept {
    assert(first >= 0 && n >= 0 && first + n <= cols);
    return {data + first, rows, n, stride};
  }
};

}  // namespace vlbatch::inline v0
