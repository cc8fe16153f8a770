// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/io/image.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/image_formats.hpp"
#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace io_detail {

void image_source::fail(const std::string& reason) const { throw image_error("image \"" + shortened(name, 1000) + "\": " + reason); }

void image_source::check_limits(std::uint64_t width, std::uint64_t height) const {
  const auto limit = [&](const char* what, std::uint64_t found, std::int64_t allowed) {
    if (found == 0) fail(std::string(what) + " is 0");
    if (allowed < 0 || found > static_cast<std::uint64_t>(allowed)) {
      fail(std::string(what) + " is " + std::to_string(found) + ", at most " + std::to_string(allowed) + " allowed");
    }
  };
  limit("width", width, options.max_width);
  limit("height", height, options.max_height);
  limit("number of pixels", width * height, options.max_pixels);
}

namespace {

// Integers of a TIFF structure in the byte order that it declares. Reads outside it give 0.
class tiff_reader {
 public:
  explicit tiff_reader(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (bytes.size() < 8) return;
    const bool little = at(0) == 'I' && at(1) == 'I';
    big_ = at(0) == 'M' && at(1) == 'M';
    valid_ = (little || big_) && u16(2) == 42;
  }
  [[nodiscard]] bool valid() const { return valid_; }
  [[nodiscard]] bool has(std::uint64_t offset, std::uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  [[nodiscard]] std::uint32_t u16(std::uint64_t offset) const {
    if (!has(offset, 2)) return 0;
    return big_ ? at(offset) << 8 | at(offset + 1) : at(offset + 1) << 8 | at(offset);
  }
  [[nodiscard]] std::uint32_t u32(std::uint64_t offset) const {
    const std::uint32_t first = u16(offset), second = u16(offset + 2);
    return big_ ? first << 16 | second : second << 16 | first;
  }

 private:
  [[nodiscard]] std::uint32_t at(std::uint64_t offset) const {
    return static_cast<std::uint32_t>(bytes_[static_cast<std::size_t>(offset)]);
  }

  std::span<const std::byte> bytes_;
  bool big_ = false;
  bool valid_ = false;
};

}  // namespace

std::int32_t exif_orientation(std::span<const std::byte> tiff) {
  constexpr std::uint32_t orientation_tag = 0x0112, short_type = 3, long_type = 4;
  const tiff_reader reader(tiff);
  if (!reader.valid()) return 1;
  const std::uint64_t directory = reader.u32(4);
  const std::uint64_t entries = reader.u16(directory);
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = directory + 2 + 12 * i;
    if (!reader.has(entry, 12)) return 1;
    if (reader.u16(entry) != orientation_tag || reader.u32(entry + 4) != 1) continue;
    const std::uint32_t type = reader.u16(entry + 2);
    const std::uint32_t value = type == short_type ? reader.u16(entry + 8) : type == long_type ? reader.u32(entry + 8) : 0;
    return value >= 1 && value <= 8 ? static_cast<std::int32_t>(value) : 1;
  }
  return 1;
}

image_buffer turned_upright(image_buffer picture, std::int32_t orientation) {
  if (orientation <= 1) return picture;
  // Bit by bit: 5..8 exchange the axes; then the columns, the rows or both run backwards.
  const bool exchange = orientation >= 5;
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  image_buffer out;
  out.width = exchange ? picture.height : picture.width;
  out.height = exchange ? picture.width : picture.height;
  out.pixels.resize(picture.pixels.size());
  std::uint8_t* to = out.pixels.data();
  for (std::int32_t y = 0; y < out.height; ++y) {
    for (std::int32_t x = 0; x < out.width; ++x, to += 3) {
      const std::int32_t u = mirror_x ? out.width - 1 - x : x;
      const std::int32_t v = mirror_y ? out.height - 1 - y : y;
      const std::int64_t from =
          exchange ? static_cast<std::int64_t>(u) * picture.width + v : static_cast<std::int64_t>(v) * picture.width + u;
      std::memcpy(to, picture.pixels.data() + from * 3, 3);
    }
  }
  return out;
}

namespace {

bool starts_with(std::string_view bytes, std::string_view prefix) { return bytes.substr(0, prefix.size()) == prefix; }

// Formats that people do hand over, so that the refusal can name them.
const char* name_of_unsupported(std::string_view b) {
  using namespace std::string_view_literals;
  if (starts_with(b, "GIF87a") || starts_with(b, "GIF89a")) return "GIF";
  if (starts_with(b, "BM")) return "BMP";
  if (starts_with(b, "II*\0"sv) || starts_with(b, "MM\0*"sv)) return "TIFF";
  if (starts_with(b, "\xFF\x0A"sv) || starts_with(b, "\0\0\0\x0CJXL "sv)) return "JPEG XL";
  if (starts_with(b, "\xFF\x4F\xFF\x51"sv) || starts_with(b, "\0\0\0\x0CjP  "sv)) return "JPEG 2000";
  if (b.size() >= 12 && b.substr(4, 4) == "ftyp") return "AVIF or HEIC";
  if (starts_with(b, "%PDF")) return "PDF";
  if (starts_with(b, "<svg") || starts_with(b, "<?xml")) return "SVG";
  return nullptr;
}

decoded_image decode_stored(const image_source& source) {
  using namespace std::string_view_literals;
  const std::string_view head(reinterpret_cast<const char*>(source.bytes.data()), std::min<std::size_t>(source.bytes.size(), 16));
  if (head.empty()) source.fail("is empty");
  if (starts_with(head, "\xFF\xD8\xFF"sv)) return decode_jpeg(source);
  if (starts_with(head, "\x89PNG\r\n\x1A\n"sv)) return decode_png(source);
  if (starts_with(head, "RIFF") && head.size() >= 12 && head.substr(8, 4) == "WEBP") return decode_webp(source);
  if (const char* format = name_of_unsupported(head)) source.fail(std::string("is ") + format + ", supported are JPEG, PNG and WebP");
  source.fail("is no JPEG, PNG or WebP: " + std::to_string(source.bytes.size()) + " bytes of unknown kind");
}

}  // namespace
}  // namespace io_detail

image_buffer decode_image(std::span<const std::byte> bytes, std::string_view name, const image_decode_options& options) {
  const io_detail::image_source source{bytes, name, options};
  if (static_cast<std::int64_t>(bytes.size()) > options.max_encoded_bytes) {
    source.fail("has " + std::to_string(bytes.size()) + " bytes, at most " + std::to_string(options.max_encoded_bytes) + " allowed");
  }
  io_detail::decoded_image decoded = io_detail::decode_stored(source);
  return io_detail::turned_upright(std::move(decoded.picture), decoded.orientation);
}

image_buffer load_image(const std::string& path, const image_decode_options& options) {
  const std::string content = io_detail::read_text_file(path, options.max_encoded_bytes);
  return decode_image(std::as_bytes(std::span(content)), path, options);
}

void check_image(const image_buffer& picture, std::string_view name) {
  if (picture.width >= 1 && picture.height >= 1) {
    const std::int64_t expected = static_cast<std::int64_t>(picture.width) * picture.height * 3;
    if (static_cast<std::int64_t>(picture.pixels.size()) == expected) return;
    throw invalid_argument(std::string(name) + ": " + std::to_string(picture.pixels.size()) + " bytes of pixels, expected " +
                           std::to_string(expected) + " for " + std::to_string(picture.width) + " x " + std::to_string(picture.height));
  }
  throw invalid_argument(std::string(name) + ": is " + std::to_string(picture.width) + " x " + std::to_string(picture.height) +
                         " pixels, expected at least 1 x 1");
}

image_buffer crop_image(const image_buffer& source, std::int32_t left, std::int32_t top, std::int32_t width, std::int32_t height) {
  check_image(source);
  if (left < 0 || top < 0 || width < 1 || height < 1 || width > source.width - left || height > source.height - top) {
    throw invalid_argument("crop of " + std::to_string(width) + " x " + std::to_string(height) + " at (" + std::to_string(left) + ", " +
                           std::to_string(top) + ") does not lie inside " + std::to_string(source.width) + " x " +
                           std::to_string(source.height));
  }
  image_buffer out{width, height, {}};
  const std::int64_t row = static_cast<std::int64_t>(width) * 3;
  out.pixels.reserve(static_cast<std::size_t>(row * height));
  const std::int64_t stride = static_cast<std::int64_t>(source.width) * 3;
  for (std::int64_t y = top; y < static_cast<std::int64_t>(top) + height; ++y) {
    const std::uint8_t* from = source.pixels.data() + y * stride + static_cast<std::int64_t>(left) * 3;
    out.pixels.insert(out.pixels.end(), from, from + row);
  }
  return out;
}

}  // namespace vlbatch::inline v0
