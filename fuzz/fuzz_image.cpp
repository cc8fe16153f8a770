// SPDX-License-Identifier: Apache-2.0
// An encoded picture of any format, with small limits: pixels within them, or an error that names the picture.
#include "fuzz_support.hpp"
#include "vlbatch/io/image.hpp"

using namespace vlbatch;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const image_decode_options o{.max_width = 700,
                               .max_height = 600,
                               .max_pixels = 200 * 1000,
                               .max_encoded_bytes = 1 << 20,
                               .composite_alpha = (size & 1U) != 0,
                               .apply_exif_orientation = (size & 2U) != 0};
  try {
    const image_buffer p = decode_image(std::as_bytes(std::span(data, size)), "the picture", o);
    check_image(p);
    FUZZ_REQUIRE(std::int64_t{p.width} * p.height <= o.max_pixels);
    FUZZ_REQUIRE(std::max(p.width, p.height) <= o.max_width);
    unsigned sum = 0;
    for (const std::uint8_t v : p.pixels) sum += v;
    static volatile unsigned kept;
    kept = sum;
  } catch (const image_error& e) {
    FUZZ_REQUIRE(std::string_view(e.what()).find("the picture") != std::string_view::npos);
  }
  return 0;
}
