// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "conformance/backend_suite.hpp"

namespace vlbatch::conformance {
namespace {

template <cpu_level Level>
struct cpu_at {
  using backend = cpu;
  static constexpr bool invariant = true;
  static constexpr bool rounds_inputs_to_bf16 = Level >= cpu_level::avx512_bf16;
  static bool available() {
    const auto levels = available_cpu_levels();
    return std::find(levels.begin(), levels.end(), Level) != levels.end();
  }
  static cpu make() { return cpu{Level}; }
  static void to_device(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  static void to_host(void* to, const void* from, std::size_t bytes) { to_device(to, from, bytes); }
};

INSTANTIATE_TYPED_TEST_SUITE_P(reference, backend_suite, cpu_at<cpu_level::reference>);
INSTANTIATE_TYPED_TEST_SUITE_P(scalar, backend_suite, cpu_at<cpu_level::scalar>);
INSTANTIATE_TYPED_TEST_SUITE_P(avx2, backend_suite, cpu_at<cpu_level::avx2>);
INSTANTIATE_TYPED_TEST_SUITE_P(avx512, backend_suite, cpu_at<cpu_level::avx512>);
INSTANTIATE_TYPED_TEST_SUITE_P(avx512_bf16, backend_suite, cpu_at<cpu_level::avx512_bf16>);
INSTANTIATE_TYPED_TEST_SUITE_P(amx, backend_suite, cpu_at<cpu_level::amx>);

}  // namespace
}  // namespace vlbatch::conformance
