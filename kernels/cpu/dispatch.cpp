// SPDX-License-Identifier: Apache-2.0
#include "cpu/dispatch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "cpu/reference/reference.hpp"
#include "cpu/simd/targets.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

constexpr std::array levels{cpu_level::reference, cpu_level::scalar,      cpu_level::avx2,
                            cpu_level::avx512,    cpu_level::avx512_bf16, cpu_level::amx};

// Table of a level, or none if it was not compiled or this machine cannot run it.
[[nodiscard]] const cpu_kernels* find_kernels(cpu_level level) noexcept {
  return level == cpu_level::reference ? &reference::kernels() : simd_kernels(level);
}

struct available_levels {
  std::array<cpu_level, levels.size()> list{};
  std::size_t count = 0;
};

[[nodiscard]] const available_levels& available() noexcept {
  static const available_levels found = [] {
    available_levels a;
    for (const cpu_level level : levels) {
      if (find_kernels(level) != nullptr) a.list[a.count++] = level;
    }
    return a;
  }();
  return found;
}

// The fastest; the more is available, the faster, with one exception.
[[nodiscard]] cpu_level best_level() noexcept {
  const auto found = available_cpu_levels();
  return found.back() == cpu_level::avx512_bf16 && !avx512_bf16_is_fast() ? found[found.size() - 2] : found.back();
}

}  // namespace

std::string_view name_of(cpu_level level) noexcept {
  switch (level) {
    case cpu_level::best:
      return "best";
    case cpu_level::reference:
      return "reference";
    case cpu_level::scalar:
      return "scalar";
    case cpu_level::avx2:
      return "avx2";
    case cpu_level::avx512:
      return "avx512";
    case cpu_level::avx512_bf16:
      return "avx512_bf16";
    case cpu_level::amx:
      return "amx";
  }
  return "?";
}

std::span<const cpu_level> available_cpu_levels() noexcept { return std::span(available().list).first(available().count); }

const cpu_kernels& kernels_for(cpu_level level) {
  // The others are looked at only if need be: looking at amx asks the system for its state.
  const cpu_kernels* found = find_kernels(level == cpu_level::best ? best_level() : level);
  if (found == nullptr) {
    throw invalid_argument("cpu: this machine cannot run level '" + std::string(name_of(level)) + "', the best it can is '" +
                           std::string(name_of(best_level())) + "'");
  }
  return *found;
}

}  // namespace vlbatch::inline v0
