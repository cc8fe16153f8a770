// SPDX-License-Identifier: Apache-2.0
// Which Highway targets the vectorised kernels are compiled for, and how a level becomes one of them. Included before any Highway header.
//
// Each source is compiled once for each target (foreach_target), inside a pragma that allows its instructions, so that inline functions of
// other headers never carry instructions that an old machine lacks; files compiled with per-file flags could not promise that.
#pragma once

// Three levels are kept apart (cpu_level); what lies between brings little and costs compile time and tests.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

#include "cpu/kernels.hpp"
#include "hwy/base.h"
#include "hwy/detect_targets.h"

// Levels that are compiled. The compiler's baseline is the level "scalar" unless the user raised it to AVX2 or more.
#define VLBATCH_HAVE_AVX512 ((HWY_TARGETS & HWY_AVX3) != 0)
#define VLBATCH_HAVE_AVX2 ((HWY_TARGETS & HWY_AVX2) != 0)
#define VLBATCH_HAVE_SCALAR (HWY_STATIC_TARGET != HWY_AVX3 && HWY_STATIC_TARGET != HWY_AVX2)

// The branches of VLBATCH_AT_LEVEL.
#if VLBATCH_HAVE_AVX512
#define VLBATCH_AT_AVX512(call) \
  case cpu_level::avx512:       \
    N_AVX3::call;               \
    break;
#else
#define VLBATCH_AT_AVX512(call)
#endif
#if VLBATCH_HAVE_AVX2
#define VLBATCH_AT_AVX2(call) \
  case cpu_level::avx2:       \
    N_AVX2::call;             \
    break;
#else
#define VLBATCH_AT_AVX2(call)
#endif
#if VLBATCH_HAVE_SCALAR
#define VLBATCH_AT_SCALAR(call) \
  case cpu_level::scalar:       \
    HWY_NAMESPACE::call;        \
    break;
#else
#define VLBATCH_AT_SCALAR(call)
#endif

// Statement that calls a function of the namespace of the target of a level. Used after foreach_target, under HWY_ONCE.
#define VLBATCH_AT_LEVEL(level, call) \
  switch (level) {                    \
    VLBATCH_AT_AVX512(call)           \
    VLBATCH_AT_AVX2(call)             \
    VLBATCH_AT_SCALAR(call)           \
    default:                          \
      break;                          \
  }

// Complete unrolling of loops over registers, also at -O2.
#if defined(__clang__)
#define VLBATCH_UNROLL _Pragma("unroll")
#else
#define VLBATCH_UNROLL _Pragma("GCC unroll 32")
#endif

namespace vlbatch::inline v0 {

// Each source fills its part of the table of a level.
void add_linear(cpu_kernels& table, cpu_level level);       // linear.cpp
void add_normalise(cpu_kernels& table, cpu_level level);    // normalise.cpp
void add_elementwise(cpu_kernels& table, cpu_level level);  // elementwise.cpp
void add_attention(cpu_kernels& table, cpu_level level);    // attention.cpp

/// Replaces the products of the level avx512.
void add_avx512_bf16_linear(cpu_kernels& table);  // avx512_bf16_linear.cpp
/// True if this processor has AVX512_BF16.
[[nodiscard]] bool avx512_bf16_is_usable() noexcept;
/// True if its dot products do more in the same time than f32 FMA. Intel's do half as much.
[[nodiscard]] bool avx512_bf16_is_fast() noexcept;

/// Replaces the products of the level avx512.
void add_amx_linear(cpu_kernels& table);  // amx_linear.cpp
/// True if this processor has AMX with bf16 and the system lets this process use it. Asks for it at the first call.
[[nodiscard]] bool amx_is_usable() noexcept;

/// Table of a vectorised level, or none if it was not compiled or this machine cannot run it.
[[nodiscard]] const cpu_kernels* simd_kernels(cpu_level level) noexcept;

}  // namespace vlbatch::inline v0
