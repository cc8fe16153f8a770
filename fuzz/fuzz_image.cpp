// SPDX-License-Identifier: Apache-2.0
// Encoded pictures as they are; the last byte also chooses the options.
#include "vlbatch/io/image.hpp"

#include <span>

#include "fuzz_support.hpp"

namespace {

using namespace vlbatch;
using namespace vlbatch::fuzz;

constexpr std::int32_t longest_side = 160;

void check(const image_buffer& picture, std::int32_t width, std::int32_t height) {
  require(picture.width == width && picture.height == height, "a picture has the sides that were asked for");
  check_image(picture);  // as many bytes as the sides say
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned choice = data[size - 1];
  image_decode_options options{
      .max_width = longest_side, .max_height = longest_side, .max_pixels = 128 * 128, .max_encoded_bytes = 1 << 16};
  options.composite_alpha = (choice & 1U) != 0;
  options.apply_exif_orientation = (choice & 2U) != 0;
  options.background[0] = data[0];
  tolerate([&] {
    const auto bytes = std::as_bytes(std::span(data, size));
    const image_buffer picture = decode_image(bytes, "picture", options);
    require(picture.width >= 1 && picture.height >= 1 && picture.width <= longest_side && picture.height <= longest_side &&
                picture.width * picture.height <= 128 * 128,
            "limits hold");
    check(picture, picture.width, picture.height);
    require(picture.pixels == decode_image(bytes, "picture", options).pixels, "decoding twice gives the same pixels");
    const auto filter = static_cast<resample_filter>((choice >> 2U) % 6);
    const std::int32_t width = 1 + static_cast<std::int32_t>(choice % 37), height = 1 + static_cast<std::int32_t>(choice % 23);
    check(resize_image(picture, width, height, filter, choice % 2 == 0 ? resample_order::pillow_12 : resample_order::pillow_13), width,
          height);
    check(crop_image(picture, picture.width / 2, picture.height / 3, picture.width - picture.width / 2, 1),
          picture.width - picture.width / 2, 1);
  });
  return 0;
}
