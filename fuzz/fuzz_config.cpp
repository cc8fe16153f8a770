// SPDX-License-Identifier: Apache-2.0
// config.json, preprocessor_config.json, generation_config.json and processor_config.json, cut from the input at NUL.
#include "fuzz_support.hpp"
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

using namespace vlbatch;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz::text_of(data, size);
  for (const char* name : {"config.json", "preprocessor_config.json", "generation_config.json", "processor_config.json"}) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    if (end == 0) {
      std::filesystem::remove(fuzz::folder() / name);  // an empty part is a file that is not there
    } else {
      fuzz::write(name, rest.substr(0, end));
    }
    rest = rest.substr(std::min(end + 1, rest.size()));
  }
  fuzz::expect_value_or_error([] {
    const idefics3_config c = idefics3_config::load(fuzz::folder().string());
    FUZZ_REQUIRE(c.tokens_per_tile() >= 1);
    for (const auto& [width, height] : {std::pair{1, 1}, {640, 480}, {3000, 17}, {16384, 16384}}) {
      const idefics3_tiling t = idefics3_tiling_of(c.preprocessing, width, height);
      FUZZ_REQUIRE(t.grid.num_tiles() >= 1);
    }
    static_cast<void>(idefics3_normalised_values(c.preprocessing));
  });
  return 0;
}
