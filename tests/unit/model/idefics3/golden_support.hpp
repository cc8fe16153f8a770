// SPDX-License-Identifier: Apache-2.0
// Reads what tests/golden/make_image_goldens.py says about transformers' Idefics3ImageProcessor.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "unit/io/image_test_support.hpp"
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

namespace vlbatch_tests {

/// Arguments of the Python class; what is absent has its defaults, which are ours too.
[[nodiscard]] inline vlbatch::idefics3_preprocessing settings_from(const nlohmann::json& j) {
  vlbatch::idefics3_preprocessing p;
  p.do_resize = j.value("do_resize", p.do_resize);
  p.resample = j.value("resample", p.resample);
  p.do_image_splitting = j.value("do_image_splitting", p.do_image_splitting);
  p.do_rescale = j.value("do_rescale", p.do_rescale);
  p.rescale_factor = j.value("rescale_factor", p.rescale_factor);
  p.do_normalize = j.value("do_normalize", p.do_normalize);
  p.image_mean = j.value("image_mean", p.image_mean);
  p.image_std = j.value("image_std", p.image_std);
  if (j.contains("size")) p.size_longest_edge = j["size"]["longest_edge"];
  if (j.contains("max_image_size")) p.max_image_size_longest_edge = j["max_image_size"]["longest_edge"];
  return p;
}

/// SHA-256 of the float32 array [tiles, 3, height, width] that the vision tower is given.
[[nodiscard]] inline std::string hash_of_floats(const vlbatch::pixel_tiles& tiles) {
  sha256 h;
  const auto plane = static_cast<std::size_t>(tiles.height) * static_cast<std::size_t>(tiles.width);
  std::vector<float> values(plane);
  for (std::int32_t t = 0; t < tiles.num_tiles; ++t) {
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::size_t i = 0; i < plane; ++i) values[i] = tiles.normalised[c][tiles.tile(t)[i * 3 + c]];
      h.add(values.data(), plane * sizeof(float));
    }
  }
  return h.hex();
}

}  // namespace vlbatch_tests
