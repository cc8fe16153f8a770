// SPDX-License-Identifier: Apache-2.0
// The inner loop of every matrix product: a register tile of rows times columns. Included once for each target.
#if defined(VLBATCH_MULTIPLY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef VLBATCH_MULTIPLY_INL
#undef VLBATCH_MULTIPLY_INL
#else
#define VLBATCH_MULTIPLY_INL
#endif

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "cpu/simd/vectors-inl.hpp"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {

/// Accumulators of a register tile: with a broadcast and the vectors of columns they fill the registers (32 with AVX-512, else 16).
inline constexpr int accumulators = lanes == 16 ? 24 : 12;

/// An array bound, as a type that array bounds have.
template <int N>
inline constexpr std::size_t bound = static_cast<std::size_t>(N);

/// Columns of weights: \p Pairs groups of two vectors, the second 16 columns after the first, from panels of f32 or of bf16 pairs.
template <class T, int Pairs>
struct panel_columns {
  static constexpr int groups = Pairs;
  static constexpr int group_size = 2;
  static constexpr int vectors = groups * group_size;
  const T* at[bound<Pairs>];

  HWY_INLINE void load(int g, float_vector (&v)[2]) const {
    const float_tag d;
    if constexpr (std::is_same_v<T, float>) {
      v[0] = hn::LoadU(d, at[g]);
      v[1] = hn::LoadU(d, at[g] + 16);
    } else {
      const hn::RebindToUnsigned<float_tag> du;
      const auto both = hn::LoadU(du, at[g]);
      v[0] = hn::BitCast(d, hn::ShiftLeft<16>(both));
      v[1] = hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000U)));
    }
  }
  HWY_INLINE void advance() {
    VLBATCH_UNROLL
    for (int g = 0; g < Pairs; ++g) {
      // Several rows leave the memory time that it would idle away if it were not asked ahead: the hardware's own prefetching does not get
      // as far (57 MB of weights and 8 rows: 1.7 instead of 2.9 ms). With one or two rows memory is the limit, and the instruction costs.
      if constexpr (Pairs <= 2) {
        constexpr std::int64_t ahead = 8192 / Pairs / static_cast<std::int64_t>(sizeof(T));
        hwy::Prefetch(at[g] + ahead);
        if constexpr (std::is_same_v<T, float>) hwy::Prefetch(at[g] + ahead + 16);
      }
      at[g] += std::is_same_v<T, float> ? 32 : 16;
    }
  }
};

/// Columns of a plain matrix of f32: \p Vectors vectors side by side, rows \p stride elements apart.
template <int Vectors>
struct plain_columns {
  static constexpr int groups = Vectors;
  static constexpr int group_size = 1;
  static constexpr int vectors = groups;
  const float* at;
  std::int64_t stride;

  HWY_INLINE void load(int g, float_vector (&v)[1]) const { v[0] = hn::LoadU(float_tag(), at + g * lanes); }
  HWY_INLINE void advance() { at += stride; }
};

/// acc[Rows][columns] += x[Rows][depth] * columns[depth][...]: one chain of FMAs for each element, k ascending, whatever \p Rows is.
template <int Rows, class Columns>
HWY_INLINE void multiply(const float* HWY_RESTRICT x, std::int64_t x_stride, Columns columns, std::int32_t depth,
                         float_vector (&acc)[bound<Rows>][bound<Columns::vectors>]) {
  const float_tag d;
  // Addresses of rows as bases of three rows each: base, base + stride and base + 2 stride are addressing modes of one instruction.
  constexpr int bases = (Rows + 2) / 3;
  const float* base[bound<bases>];
  VLBATCH_UNROLL
  for (int b = 0; b < bases; ++b) base[b] = x + 3 * b * x_stride;
  for (std::int32_t k = 0; k < depth; ++k) {
    VLBATCH_UNROLL
    for (int g = 0; g < Columns::groups; ++g) {
      float_vector w[bound<Columns::group_size>];
      columns.load(g, w);
      VLBATCH_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const float_vector a = hn::Set(d, base[r / 3][(r % 3) * x_stride]);
        VLBATCH_UNROLL
        for (int v = 0; v < Columns::group_size; ++v) {
          acc[r][g * Columns::group_size + v] = hn::MulAdd(a, w[v], acc[r][g * Columns::group_size + v]);
        }
      }
    }
    columns.advance();
    VLBATCH_UNROLL
    for (int b = 0; b < bases; ++b) ++base[b];
  }
}

/// The same on a tile in memory, dense rows of \p Vectors vectors \p tile_stride elements apart: it is read first if \p resume (the chain
/// goes on where it ended), else it starts from zero.
template <int Rows, class Columns>
HWY_NOINLINE void multiply_tile(const float* x, std::int64_t x_stride, Columns columns, std::int32_t depth, float* tile,
                                std::int64_t tile_stride, bool resume) {
  constexpr int vectors = Columns::vectors;
  const float_tag d;
  float_vector acc[bound<Rows>][bound<vectors>];
  VLBATCH_UNROLL
  for (int r = 0; r < Rows; ++r) {
    VLBATCH_UNROLL
    for (int v = 0; v < vectors; ++v) acc[r][v] = resume ? hn::LoadU(d, tile + r * tile_stride + v * lanes) : hn::Zero(d);
  }
  multiply<Rows>(x, x_stride, columns, depth, acc);
  VLBATCH_UNROLL
  for (int r = 0; r < Rows; ++r) {
    VLBATCH_UNROLL
    for (int v = 0; v < vectors; ++v) hn::StoreU(acc[r][v], d, tile + r * tile_stride + v * lanes);
  }
}

/// `multiply_tile` for every number of rows whose accumulators fit into registers.
template <class Columns>
struct tile_kernels {
  using function = void (*)(const float*, std::int64_t, Columns, std::int32_t, float*, std::int64_t, bool);
  static constexpr int max_rows = accumulators / Columns::vectors;
  static_assert(max_rows >= 1);

  template <int... R>
  static constexpr std::array<function, sizeof...(R)> make(std::integer_sequence<int, R...> /*rows*/) {
    return {multiply_tile<R + 1, Columns>...};
  }
  static constexpr std::array<function, bound<max_rows>> by_rows = make(std::make_integer_sequence<int, max_rows>());

  /// The kernel for \p rows rows, at least 1 and at most max_rows.
  static function of(std::int32_t rows) { return by_rows[static_cast<std::size_t>(rows - 1)]; }
};

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
