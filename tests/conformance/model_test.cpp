// SPDX-License-Identifier: Apache-2.0
// The model conformance suite on the Idefics3 family at every instruction set,
// and on the engine tests' fake model.
#include "conformance/model_suite.hpp"

#include <algorithm>

#include "parity/golden.hpp"
#include "support/fake_model.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"

namespace vlbatch::testing {
namespace {

// A random checkpoint whose goldens have pictures of several tiles, two
// pictures and long text.
template <cpu_level Level>
struct idefics3_case {
  using model_type = idefics3<cpu>;
  static constexpr const char* folder = "idefics3-f32-splitting";
  static bool available() {
    const auto levels = available_cpu_levels();
    return std::find(levels.begin(), levels.end(), Level) != levels.end();
  }
  static const model_type& model() {
    static const model_type loaded = model_type::load(golden_model_folder(folder), {.device = cpu(Level)});
    return loaded;
  }
  static std::vector<prepared_request> prompts() {
    std::vector<prepared_request> all;
    for (const golden_case& g : load_goldens(folder)) all.push_back(model().prepare(g.ask));
    return all;
  }
};

struct fake_case {
  using model_type = fake_model;
  static const fake_model& model() {
    static const fake_model made;
    return made;
  }
  static std::vector<prepared_request> prompts() {
    return {*prompt(1, 9, {picture(3, 2)}, 4), *prompt(2, 70), *prompt(3, 2, {picture(9), picture(8, 3)})};
  }
};

using cases =
    ::testing::Types<fake_case, idefics3_case<cpu_level::reference>, idefics3_case<cpu_level::scalar>, idefics3_case<cpu_level::avx2>,
                     idefics3_case<cpu_level::avx512>, idefics3_case<cpu_level::avx512_bf16>, idefics3_case<cpu_level::amx>>;
struct case_names {
  template <class Case>
  static std::string GetName(int) {
    if constexpr (std::is_same_v<Case, fake_case>) return "fake";
    if constexpr (std::is_same_v<Case, idefics3_case<cpu_level::reference>>) return "reference";
    if constexpr (std::is_same_v<Case, idefics3_case<cpu_level::scalar>>) return "scalar";
    if constexpr (std::is_same_v<Case, idefics3_case<cpu_level::avx2>>) return "avx2";
    if constexpr (std::is_same_v<Case, idefics3_case<cpu_level::avx512>>) return "avx512";
    if constexpr (std::is_same_v<Case, idefics3_case<cpu_level::avx512_bf16>>) return "avx512_bf16";
    return "amx";
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(models, model_suite, cases, case_names);

}  // namespace
}  // namespace vlbatch::testing
