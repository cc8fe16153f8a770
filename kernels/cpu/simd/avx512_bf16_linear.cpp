// SPDX-License-Identifier: Apache-2.0
// Matrix products with bf16 weights by AVX512_BF16's dot products of pairs: twice the operations of an FMA where they have its rate (Zen 4
// and 5), and inputs of half the size everywhere.
//
// An operand has up to 12 rows, which with the 32 outputs of a panel fill the registers with sums. Fewer rows (decoding) take several
// panels at once, so that enough chains are in flight to hide the latency.
//
// What the operation computes, and that it flushes subnormals: Intel 64 and IA-32 Architectures Software Developer's Manual, VDPBF16PS.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/avx512_bf16_linear.cpp"
// clang-format off: the targets come first
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/simd/bf16_product-inl.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#if !defined(VLBATCH_HAVE_AVX512_BF16) && defined(__x86_64__)
#define VLBATCH_HAVE_AVX512_BF16 1
#include <cpuid.h>
#include <immintrin.h>
#endif

#if defined(VLBATCH_HAVE_AVX512_BF16) && HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace {

// In addition to what the target allows; in clang the attribute replaces that of the target.
#if defined(__clang__)
#define VLBATCH_AVX512_BF16 __attribute__((target(HWY_TARGET_STR ",avx512bf16")))
#else
#define VLBATCH_AVX512_BF16 __attribute__((target("avx512bf16")))
#endif

constexpr int ahead = 4096;  // elements of weights that are fetched ahead of those in use
constexpr int sums = 24;     // registers of sums, beside two of weights and those of inputs

/// Operand x `[steps][Rows][32]` times \p Panels panels that lie one after the other: \p tile is `[Rows][Panels][32]`.
template <int Rows, int Panels>
VLBATCH_AVX512_BF16 HWY_NOINLINE void multiply(const std::uint16_t* x, const std::uint16_t* weights, std::int32_t steps, float* tile) {
  __m512 sum[Rows][2 * Panels];
  VLBATCH_UNROLL
  for (int r = 0; r < Rows; ++r) {
    VLBATCH_UNROLL
    for (int v = 0; v < 2 * Panels; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  const std::int64_t panel = static_cast<std::int64_t>(steps) * 2 * tile_elements;
  for (std::int32_t k = 0; k < steps; ++k) {
    for (int pair = 0; pair < tile_depth / 2; ++pair) {
      VLBATCH_UNROLL
      for (int g = 0; g < Panels; ++g) {
        const std::uint16_t* from = weights + g * panel;
        hwy::Prefetch(from + ahead / Panels);
        hwy::Prefetch(from + tile_elements + ahead / Panels);
        const auto low = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(from));
        const auto high = __builtin_bit_cast(__m512bh, _mm512_loadu_si512(from + tile_elements));
        VLBATCH_UNROLL
        for (int r = 0; r < Rows; ++r) {
          std::int32_t both;
          std::memcpy(&both, x + r * tile_depth + 2 * pair, sizeof both);
          const auto input = __builtin_bit_cast(__m512bh, _mm512_set1_epi32(both));
          sum[r][2 * g] = _mm512_dpbf16_ps(sum[r][2 * g], low, input);
          sum[r][2 * g + 1] = _mm512_dpbf16_ps(sum[r][2 * g + 1], high, input);
        }
      }
      weights += tile_depth;
    }
    weights += tile_elements;
    x += Rows * tile_depth;
  }
  VLBATCH_UNROLL
  for (int r = 0; r < Rows; ++r) {
    VLBATCH_UNROLL
    for (int v = 0; v < 2 * Panels; ++v) _mm512_storeu_ps(tile + (r * Panels * 2 + v) * 16, sum[r][v]);
  }
}

/// `multiply` for every number of rows whose sums fit into registers.
template <int Panels>
struct multipliers {
  using function = void (*)(const std::uint16_t*, const std::uint16_t*, std::int32_t, float*);
  static constexpr int max_rows = sums / (2 * Panels);

  template <int... R>
  static constexpr std::array<function, sizeof...(R)> make(std::integer_sequence<int, R...> /*rows*/) {
    return {multiply<R + 1, Panels>...};
  }
  static constexpr auto by_rows = make(std::make_integer_sequence<int, max_rows>());
};

struct avx512_bf16_unit {
  static constexpr std::int32_t max_rows = multipliers<1>::max_rows;
  static constexpr bool full_operands = false;
  static constexpr std::int32_t operands_a_step = 1;
  static constexpr double row_nanoseconds = 0.05;
  static constexpr double byte_nanoseconds = 0.05;

  /// \p Panels at a time, and what remains one by one.
  template <int Panels>
  static void panels(const bf16_product& p, std::int32_t a, std::int32_t end, std::int32_t first, std::int32_t last) {
    HWY_ALIGN float tile[static_cast<std::size_t>(sums) * 16];
    for (; first + Panels <= last; first += Panels) {
      for (std::int32_t i = a; i < end; ++i) {
        const std::int32_t rows = p.rows(i);
        multipliers<Panels>::by_rows[static_cast<std::size_t>(rows - 1)](p.operand(i), p.panel(first), p.steps, tile);
        for (std::int32_t v = 0; v < 2 * Panels; ++v)
          finish_columns(p.epilogue, p.y, p.row(i), rows, first * panel_width + v * 16, tile + v * 16, std::ptrdiff_t{Panels} * 32);
      }
    }
    if constexpr (Panels > 1) {
      if (first < last) panels<1>(p, a, end, first, last);
    }
  }

  static HWY_NOINLINE void block(const bf16_product& p, std::int32_t a, std::int32_t end, std::int32_t first, std::int32_t last) {
    const std::int32_t rows = p.rows(a);
    if (end - a == 1 && rows <= multipliers<4>::max_rows) {
      panels<4>(p, a, end, first, last);
    } else if (end - a == 1 && rows <= multipliers<2>::max_rows) {
      panels<2>(p, a, end, first, last);
    } else {
      panels<1>(p, a, end, first, last);
    }
  }
};

}  // namespace

void add_avx512_bf16_linear(cpu_kernels& table) { bf16_linear<avx512_bf16_unit>::add_to(table); }

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace vlbatch::inline v0 {

#if defined(VLBATCH_HAVE_AVX512_BF16) && VLBATCH_HAVE_AVX512
void add_avx512_bf16_linear(cpu_kernels& table) { N_AVX3::add_avx512_bf16_linear(table); }

bool avx512_bf16_is_usable() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned bf16 = 1U << 5U;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & bf16) != 0;
}

bool avx512_bf16_is_fast() noexcept {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(0, &a, &b, &c, &d) != 0 && b != signature_INTEL_ebx;
}
#else
void add_avx512_bf16_linear(cpu_kernels& /*table*/) {}
bool avx512_bf16_is_usable() noexcept { return false; }
bool avx512_bf16_is_fast() noexcept { return false; }
#endif

}  // namespace vlbatch::inline v0
#endif
