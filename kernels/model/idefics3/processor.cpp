// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/processor.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

std::string text_of(std::int64_t v) { return std::to_string(v); }

// ---- Sizes ----

constexpr std::int32_t longest_edge_limit = 4096;
constexpr std::int32_t largest_edge = 1 << 20;  // sums of sizes stay far below the range of the type

struct extent {
  std::int32_t width;
  std::int32_t height;
};

// The longer side becomes \p longest, the other follows; \p even: it is rounded to even numbers.
extent scale_longest_edge(extent e, std::int32_t longest, bool even) {
  const double aspect = static_cast<double>(e.width) / e.height;
  const auto follow = [&](double exact) {
    auto side = static_cast<std::int32_t>(exact);
    if (even && side % 2 != 0) ++side;
    return std::max(side, 1);
  };
  if (e.width >= e.height) return {longest, follow(longest / aspect)};
  return {follow(longest * aspect), longest};
}

std::int32_t whole_tiles(std::int32_t side, std::int32_t tile) { return std::max(ceil_div(side, tile), 1) * tile; }

// The longer side first; the other is taken at the same aspect ratio before it is rounded up as well.
extent scale_to_whole_tiles(extent e, std::int32_t tile) {
  const double aspect = static_cast<double>(e.width) / e.height;
  if (e.width >= e.height) {
    const std::int32_t width = whole_tiles(e.width, tile);
    return {width, whole_tiles(static_cast<std::int32_t>(width / aspect), tile)};
  }
  const std::int32_t height = whole_tiles(e.height, tile);
  return {whole_tiles(static_cast<std::int32_t>(height * aspect), tile), height};
}

// ---- Content keys ----

class key_builder {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void add(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  template <class T, std::size_t N>
  void add(const std::array<T, N>& values) {
    for (const T& v : values) add(v);
  }
  void add_content(std::span<const std::uint8_t> content) {
    const XXH128_hash_t h = XXH3_128bits(content.data(), content.size());
    add(h.high64);
    add(h.low64);
    add(content.size());
  }
  [[nodiscard]] content_key key() const {
    const XXH128_hash_t h = XXH3_128bits(bytes_.data(), bytes_.size());
    return {h.high64, h.low64};
  }

 private:
  std::vector<std::uint8_t> bytes_;
};

content_key key_of(const pixel_tiles& tiles, const idefics3_preprocessing& p, image_grid grid, const image_decode_options& d) {
  key_builder k;
  k.add(tiles.num_tiles);
  k.add(tiles.height);
  k.add(tiles.width);
  k.add(tiles.normalised);
  k.add(grid.rows);
  k.add(grid.cols);
  k.add(p.do_convert_rgb);
  k.add(p.do_resize);
  k.add(p.size_longest_edge);
  k.add(p.resample);
  k.add(p.do_image_splitting);
  k.add(p.max_image_size_longest_edge);
  k.add(p.do_rescale);
  k.add(p.rescale_factor);
  k.add(p.do_normalize);
  k.add(p.image_mean);
  k.add(p.image_std);
  k.add(d.composite_alpha);
  k.add(d.apply_exif_orientation);
  for (const std::uint8_t v : d.background) k.add(v);
  k.add_content(tiles.values);
  return k.key();
}

// ---- Prepared requests ----

// Everything that later stages take for granted.
void check_prepared(const prepared_request& r, const idefics3_config& config) {
  const auto fail = [](const std::string& what) { throw invalid_argument("prepared request: " + what); };
  const auto num_tokens = static_cast<std::int64_t>(r.tokens.size());
  if (r.tokens.empty()) fail("has 0 tokens, expected at least 1");
  for (std::size_t i = 0; i < r.tokens.size(); ++i) {
    if (r.tokens[i] < 0 || r.tokens[i] >= config.text.vocab_size) {
      fail("token " + text_of(static_cast<std::int64_t>(i)) + " is " + text_of(r.tokens[i]) + ", the vocabulary has " +
           text_of(config.text.vocab_size));
    }
  }
  const std::int64_t per_tile = config.tokens_per_tile();
  const std::int32_t side = config.vision.image_size;
  std::int64_t next = 0;          // first position that no image has yet
  std::int64_t placeholders = 0;  // of all images
  for (std::size_t i = 0; i < r.images.size(); ++i) {
    const prepared_image& image = r.images[i];
    const auto fail_image = [&](const std::string& what) { fail("image " + text_of(static_cast<std::int64_t>(i)) + ": " + what); };
    if (image.pixels == nullptr) fail_image("has no pixels");
    const pixel_tiles& p = *image.pixels;
    if (p.num_tiles < 1) fail_image("has " + text_of(p.num_tiles) + " tiles, expected at least 1");
    if (p.width != side || p.height != side) {
      fail_image("tiles are " + text_of(p.width) + " x " + text_of(p.height) + " pixels, the vision tower takes " + text_of(side) + " x " +
                 text_of(side));
    }
    const std::int64_t bytes = static_cast<std::int64_t>(p.num_tiles) * side * side * 3;
    if (static_cast<std::int64_t>(p.values.size()) != bytes) {
      fail_image("has " + text_of(static_cast<std::int64_t>(p.values.size())) + " bytes of pixels, expected " + text_of(bytes) + " for " +
                 text_of(p.num_tiles) + " tiles");
    }
    if (image.tokens_per_tile != per_tile) {
      fail_image("has " + text_of(image.tokens_per_tile) + " tokens a tile, the model has " + text_of(per_tile));
    }
    if (static_cast<std::int64_t>(image.tile_positions.size()) != p.num_tiles) {
      fail_image("has " + text_of(static_cast<std::int64_t>(image.tile_positions.size())) + " tile positions for " + text_of(p.num_tiles) +
                 " tiles");
    }
    for (std::size_t t = 0; t < image.tile_positions.size(); ++t) {
      const std::int64_t at = image.tile_positions[t];
      const std::string tile = "tile " + text_of(static_cast<std::int64_t>(t));
      if (at < next) fail_image(tile + " begins at position " + text_of(at) + ", expected at least " + text_of(next));
      next = at + per_tile;
      if (next > num_tokens) fail_image(tile + " ends at position " + text_of(next) + ", the prompt has " + text_of(num_tokens));
      for (std::int64_t position = at; position < next; ++position) {
        const std::int32_t token = r.tokens[static_cast<std::size_t>(position)];
        if (token != config.image_token_id) {
          fail_image(tile + " covers token " + text_of(token) + " at position " + text_of(position) + ", expected the placeholder " +
                     text_of(config.image_token_id));
        }
      }
      placeholders += per_tile;
    }
    const std::int64_t first = image.tile_positions.front();
    if (image.first_position != first) {
      fail_image("first position is " + text_of(image.first_position) + ", its first tile begins at " + text_of(first));
    }
    if (image.num_tokens != next - first) {
      fail_image("covers " + text_of(image.num_tokens) + " positions, its tiles cover " + text_of(next - first));
    }
  }
  const std::int64_t found = std::count(r.tokens.begin(), r.tokens.end(), config.image_token_id);
  if (found != placeholders) fail("has " + text_of(found) + " placeholder tokens, its images have " + text_of(placeholders));
}

// ---- Pictures of a request ----

// What is decoded for a part. Pixels that are there already are not copied.
std::shared_ptr<const image_buffer> picture_of(const image_part& part, const std::string& name, const image_decode_options& decoding) {
  struct visitor {
    const std::string& name;
    const image_decode_options& decoding;

    std::shared_ptr<const image_buffer> operator()(const std::string& path) const {
      return std::make_shared<const image_buffer>(load_image(path, decoding));
    }
    std::shared_ptr<const image_buffer> operator()(const std::shared_ptr<const std::vector<std::byte>>& bytes) const {
      if (bytes == nullptr) throw invalid_argument(name + ": has no bytes");
      return std::make_shared<const image_buffer>(decode_image(*bytes, name, decoding));
    }
    std::shared_ptr<const image_buffer> operator()(const std::shared_ptr<const image_buffer>& pixels) const {
      if (pixels == nullptr) throw invalid_argument(name + ": has no pixels");
      check_image(*pixels, name);
      return pixels;
    }
  };
  return std::visit(visitor{name, decoding}, part.source);
}

}  // namespace

idefics3_tiling idefics3_tiling_of(const idefics3_preprocessing& settings, std::int32_t width, std::int32_t height) {
  if (width < 1 || height < 1) {
    throw invalid_argument("a picture of " + text_of(width) + " x " + text_of(height) + " pixels, expected at least 1 x 1");
  }
  for (const std::int32_t edge : {settings.size_longest_edge, settings.max_image_size_longest_edge}) {
    if (edge >= 1 && edge <= largest_edge) continue;
    throw invalid_argument("a longest edge of " + text_of(edge) + " pixels, expected 1 to " + text_of(largest_edge));
  }
  extent e{width, height};
  if (settings.do_resize) {
    e = scale_longest_edge(e, settings.size_longest_edge, true);
    if (std::max(e.width, e.height) > longest_edge_limit) e = scale_longest_edge(e, longest_edge_limit, false);
  }
  idefics3_tiling out;
  out.resized_width = e.width;
  out.resized_height = e.height;
  const std::int32_t tile = settings.max_image_size_longest_edge;
  e = settings.do_image_splitting ? scale_to_whole_tiles(e, tile) : extent{tile, tile};
  out.full_width = e.width;
  out.full_height = e.height;
  if (e.width > tile || e.height > tile) out.grid = {e.height / tile, e.width / tile};
  return out;
}

std::array<std::array<float, 256>, 3> idefics3_normalised_values(const idefics3_preprocessing& settings) {
  std::array<std::array<float, 256>, 3> out{};
  for (std::size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(settings.image_mean[c]), deviation = static_cast<float>(settings.image_std[c]);
    for (std::size_t v = 0; v < 256; ++v) {
      auto x = static_cast<float>(v);
      if (settings.do_rescale) x = static_cast<float>(static_cast<double>(v) * settings.rescale_factor);
      if (settings.do_normalize) x = (x - mean) / deviation;
      out[c][v] = x;
    }
  }
  return out;
}

std::shared_ptr<const pixel_tiles> idefics3_make_tiles(const idefics3_preprocessing& settings, const image_buffer& picture,
                                                       const image_decode_options& decoding) {
  check_image(picture);
  const idefics3_tiling t = idefics3_tiling_of(settings, picture.width, picture.height);
  const auto filter = static_cast<resample_filter>(settings.resample);
  const std::int32_t tile = settings.max_image_size_longest_edge;
  for (const auto& [width, height] : {extent{t.resized_width, t.resized_height}, extent{t.full_width, t.full_height}}) {
    const std::int64_t pixels = static_cast<std::int64_t>(width) * height;
    if (pixels <= std::max(decoding.max_pixels, static_cast<std::int64_t>(picture.width) * picture.height)) continue;
    throw image_error("a picture of " + text_of(picture.width) + " x " + text_of(picture.height) + " pixels would be scaled to " +
                      text_of(width) + " x " + text_of(height) + ", at most " + text_of(decoding.max_pixels) + " pixels allowed");
  }
  // A step that changes nothing must not copy a large picture either.
  image_buffer scaled;
  const image_buffer* current = &picture;
  const auto scale = [&](std::int32_t width, std::int32_t height) {
    if (current->width == width && current->height == height) return;
    scaled = resize_image(*current, width, height, filter);
    current = &scaled;
  };
  scale(t.resized_width, t.resized_height);
  scale(t.full_width, t.full_height);

  auto out = std::make_shared<pixel_tiles>();
  out->num_tiles = t.grid.num_tiles();
  out->height = out->width = tile;
  const std::ptrdiff_t tile_row = static_cast<std::ptrdiff_t>(tile) * 3, full_row = static_cast<std::ptrdiff_t>(t.full_width) * 3;
  out->values.reserve(static_cast<std::size_t>(tile_row * tile) * static_cast<std::size_t>(out->num_tiles));
  for (std::int32_t row = 0; row < t.grid.rows; ++row) {
    for (std::int32_t col = 0; col < t.grid.cols; ++col) {
      const std::uint8_t* from = current->pixels.data() + row * tile * full_row + col * tile_row;
      for (std::int32_t y = 0; y < tile; ++y, from += full_row) out->values.insert(out->values.end(), from, from + tile_row);
    }
  }
  scale(tile, tile);
  out->values.insert(out->values.end(), current->pixels.begin(), current->pixels.end());
  out->normalised = idefics3_normalised_values(settings);
  out->key = key_of(*out, settings, t.grid, decoding);
  return out;
}

struct idefics3_processor::impl {
  idefics3_config config;
  tokenizer text;
  image_decode_options decoding;
  idefics3_prompt_format format;  // refers to text

  impl(idefics3_config c, tokenizer t, const image_decode_options& d)
      : config(std::move(c)), text(std::move(t)), decoding(d), format(text, config) {}
};

image_decode_options idefics3_processor::default_decoding() noexcept {
  image_decode_options out;
  out.composite_alpha = true;
  out.apply_exif_orientation = true;
  return out;
}

idefics3_processor::idefics3_processor(idefics3_config config, tokenizer text, const image_decode_options& decoding)
    : impl_(std::make_shared<const impl>(std::move(config), std::move(text), decoding)) {
  const idefics3_config& c = impl_->config;
  if (c.preprocessing.max_image_size_longest_edge != c.vision.image_size) {
    throw model_error(c.source + ": max_image_size.longest_edge is " + text_of(c.preprocessing.max_image_size_longest_edge) +
                      ", vision_config.image_size is " + text_of(c.vision.image_size) + ", expected the same");
  }
}

idefics3_processor idefics3_processor::load(const std::string& folder, const image_decode_options& decoding) {
  return {idefics3_config::load(folder), tokenizer::load((std::filesystem::path(folder) / "tokenizer.json").string()), decoding};
}

prepared_request idefics3_processor::prepare(const request& r) const {
  const idefics3_config& config = impl_->config;
  if (r.prepared != nullptr) {
    if (!r.messages.empty()) {
      throw invalid_argument("request has " + text_of(static_cast<std::int64_t>(r.messages.size())) +
                             " messages and a prepared prompt, expected one or the other");
    }
    check_prepared(*r.prepared, config);
    return *r.prepared;
  }

  // Pictures in order. One that occurs twice is decoded and scaled once.
  struct entry {
    const image_part* part;
    std::size_t same_as;  // index of its first occurrence
    std::shared_ptr<const image_buffer> picture;
    std::shared_ptr<const pixel_tiles> tiles;
  };
  std::vector<entry> entries;
  std::vector<image_grid> grids;
  for (const message& m : r.messages) {
    for (const message_part& p : m.parts) {
      const auto* part = std::get_if<image_part>(&p);
      if (part == nullptr) continue;
      const auto first = std::find_if(entries.begin(), entries.end(), [&](const entry& e) { return e.part->source == part->source; });
      if (first != entries.end()) {
        grids.push_back(grids[static_cast<std::size_t>(first - entries.begin())]);
        entries.push_back({part, first->same_as, nullptr, nullptr});
        continue;
      }
      const std::string name = "image " + text_of(static_cast<std::int64_t>(entries.size())) + " of the request";
      auto picture = picture_of(*part, name, impl_->decoding);
      grids.push_back(idefics3_tiling_of(config.preprocessing, picture->width, picture->height).grid);
      entries.push_back({part, entries.size(), std::move(picture), nullptr});
    }
  }
  // Before the pixels are touched: a prompt that cannot be written fails early.
  idefics3_prompt_format::formatted prompt = impl_->format.format(r.messages, grids);

  prepared_request out;
  out.tokens = std::move(prompt.tokens);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entry& e = entries[i];
    e.tiles = e.same_as == i ? idefics3_make_tiles(config.preprocessing, *e.picture, impl_->decoding) : entries[e.same_as].tiles;
    e.picture.reset();
    auto& range = prompt.images[i];
    out.images.push_back(
        {e.tiles, range.first_position, range.num_tokens, impl_->format.tokens_per_tile(), std::move(range.tile_positions), false});
  }
  return out;
}

const tokenizer& idefics3_processor::text() const noexcept { return impl_->text; }
const idefics3_config& idefics3_processor::config() const noexcept { return impl_->config; }
const image_decode_options& idefics3_processor::decoding() const noexcept { return impl_->decoding; }

}  // namespace vlbatch::inline v0
