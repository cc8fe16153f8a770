// SPDX-License-Identifier: Apache-2.0
// Random companies of the model without arithmetic, whose tokens show every mistake of the engine. The environment chooses other
// companies, and more: RC_PARAMS="seed=7 max_success=1000" build/dev/tests/test_property.
#include "support/fake_model.hpp"
#include "property/company.hpp"

namespace vlbatch::testing {
namespace {

TEST(exactness, of_the_engine_in_any_company) {
  fake_model model;
  model.control().eos_every = 23;
  std::vector<std::shared_ptr<const prepared_request>> prompts;
  for (int i = 0; i < 24; ++i) {  // text alone, one picture, several, pictures of several tiles, duplicates, some that must not be cut
    std::vector<std::shared_ptr<const pixel_tiles>> pictures;
    for (int k = 0; k < i % 4; ++k) pictures.push_back(picture(static_cast<std::uint8_t>(i % 3 + k), 1 + (i + k) % 3));
    prompts.push_back(prompt(i, 1 + i * i % 61, pictures, 1 + i % 5, i % 7 == 3));
  }
  crowd<fake_model> all(model, std::move(prompts));
  EXPECT_TRUE(holds("the engine", 20, [&] { all.check(*any_company(all.prompts(), 60, 64)); }));
}

}  // namespace
}  // namespace vlbatch::testing
