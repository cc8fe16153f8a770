// SPDX-License-Identifier: Apache-2.0
// Random companies of real models at every level that the machine has: kernels in any batch, chunk and thread count.
#include <algorithm>

#include "parity/golden.hpp"
#include "property/company.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"

namespace vlbatch::testing {
namespace {

using model_type = idefics3<cpu>;

crowd<model_type> crowd_of(const std::string& name, cpu_level level) {
  const model_type model = model_type::load(golden_model_folder(name), {.device = cpu(level)});
  std::vector<std::shared_ptr<const prepared_request>> prompts;
  const auto add = [&](const request& r) { prompts.push_back(std::make_shared<const prepared_request>(model.prepare(r))); };
  for (const golden_case& g : load_goldens(name)) add(g.ask);
  const auto says = [](std::vector<message_part> parts) {
    request r;
    r.messages = {{.role = "user", .parts = std::move(parts)}};
    return r;
  };
  add(says({text_part{"?"}}));
  add(says({image_part{golden_picture(1, 40, 30)}, text_part{"What is it?"}}));
  add(says({image_part{golden_picture(1, 40, 30)}, text_part{"Same picture."}}));
  add(says({image_part{golden_picture(2, 120, 50)}, text_part{"One, "}, image_part{golden_picture(3, 9, 200)}, text_part{"two."}}));
  return {model, std::move(prompts)};
}

class exactness_of_models : public ::testing::TestWithParam<cpu_level> {};

TEST_P(exactness_of_models, in_any_company) {
  const auto levels = available_cpu_levels();
  if (std::find(levels.begin(), levels.end(), GetParam()) == levels.end()) GTEST_SKIP() << "this machine has no " << name_of(GetParam());
  for (const char* name : {"idefics3-f32-splitting", "smolvlm-bf16-tied-sharded"}) {
    crowd<model_type> all = crowd_of(name, GetParam());
    EXPECT_TRUE(holds(name, 1, [&] { all.check(*any_company(all.prompts(), 36, 24)); }));
  }
}

INSTANTIATE_TEST_SUITE_P(level, exactness_of_models,
                         ::testing::Values(cpu_level::scalar, cpu_level::avx2, cpu_level::avx512, cpu_level::avx512_bf16, cpu_level::amx),
                         [](const auto& p) { return std::string(name_of(p.param)); });

}  // namespace
}  // namespace vlbatch::testing
