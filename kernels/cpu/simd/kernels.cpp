// SPDX-License-Identifier: Apache-2.0
// Tables of the vectorised levels.
#include <algorithm>

#include "cpu/reference/reference.hpp"
#include "cpu/simd/targets.hpp"
#include "hwy/targets.h"

namespace vlbatch::inline v0 {
namespace {

[[nodiscard]] bool can_run(cpu_level level) noexcept {
  const std::int64_t supported = hwy::SupportedTargets();
  if (level == cpu_level::avx512_bf16 && !avx512_bf16_is_usable()) return false;
  if (level == cpu_level::amx && !amx_is_usable()) return false;
  if (level >= cpu_level::avx512) return VLBATCH_HAVE_AVX512 && (supported & HWY_AVX3) != 0;
  if (level == cpu_level::avx2) return VLBATCH_HAVE_AVX2 && (supported & HWY_AVX2) != 0;
  return level == cpu_level::scalar && VLBATCH_HAVE_SCALAR;
}

[[nodiscard]] cpu_kernels make_table(cpu_level level) {
  // What only moves memory is as fast as plain loops.
  cpu_kernels table = reference::kernels();
  table.level = level;
  const cpu_level vectors = std::min(level, cpu_level::avx512);  // of everything but products
  add_linear(table, vectors);
  add_normalise(table, vectors);
  add_elementwise(table, vectors);
  add_attention(table, vectors);
  if (level == cpu_level::avx512_bf16) add_avx512_bf16_linear(table);
  if (level == cpu_level::amx) add_amx_linear(table);
  return table;
}

}  // namespace

const cpu_kernels* simd_kernels(cpu_level level) noexcept {
  if (!can_run(level)) return nullptr;
  static const cpu_kernels scalar = make_table(cpu_level::scalar);
  static const cpu_kernels avx2 = make_table(cpu_level::avx2);
  static const cpu_kernels avx512 = make_table(cpu_level::avx512);
  if (level == cpu_level::avx512_bf16) {
    static const cpu_kernels avx512_bf16 = make_table(cpu_level::avx512_bf16);
    return &avx512_bf16;
  }
  if (level == cpu_level::amx) {
    static const cpu_kernels amx = make_table(cpu_level::amx);
    return &amx;
  }
  return level == cpu_level::avx512 ? &avx512 : level == cpu_level::avx2 ? &avx2 : &scalar;
}

}  // namespace vlbatch::inline v0
