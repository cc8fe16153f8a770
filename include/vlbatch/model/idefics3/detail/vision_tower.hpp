// SPDX-License-Identifier: Apache-2.0
/// \file
/// SigLIP vision tower and Idefics3's connector, written with the operations of the backend concept.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/backend/backend.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/idefics3/detail/activations.hpp"
#include "vlbatch/model/idefics3/detail/weights.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::inline v0::idefics3_detail {

/// Activations of the tower, reused from call to call.
struct vision_scratch {
  activation patches, x, normed, qkv, attended, inner, folded, projected;
  std::vector<const std::uint8_t*> pixels;
  std::vector<std::int32_t> rows;
};

/// Runs tiles through tower and connector. Refers to weights and configuration; const members are thread-safe with separate scratch.
template <class Backend>
class vision_tower {
 public:
  /// Rows (patches) and tiles that are worked on at a time: memory stays bounded however many tiles a caller hands over, and the matrix
  /// products are long enough to run at full speed. Results do not depend on either (row invariance).
  static constexpr std::int32_t max_rows = 4096;
  static constexpr std::int32_t max_tiles = 8;

  vision_tower(const Backend& device, const idefics3_config& config, const vision_weights<Backend>& weights)
      : device_(device), config_(config), weights_(weights) {}

  /// Fills the embeddings of every tile. \throws invalid_argument a tile of another size than the tower's, or that its image does not have
  void encode(typename Backend::stream& s, vision_scratch& scratch, std::span<const tile_input> tiles) const {
    for (const tile_input& t : tiles) check(t);
    const auto most = static_cast<std::size_t>(std::clamp(max_rows / config_.vision.num_patches(), 1, max_tiles));
    for (std::size_t first = 0; first < tiles.size();) {
      // Tiles of one pass share the table that turns bytes into numbers; within one model it is nearly always the same.
      std::size_t n = 1;
      while (n < most && first + n < tiles.size() && same_table(*tiles[first].image, *tiles[first + n].image)) ++n;
      encode_together(s, scratch, tiles.subspan(first, n));
      first += n;
    }
  }

 private:
  static bool same_table(const pixel_tiles& a, const pixel_tiles& b) { return &a == &b || a.normalised == b.normalised; }

  void check(const tile_input& t) const {
    const std::int32_t side = config_.vision.image_size;
    const pixel_tiles& p = *t.image;
    const auto refuse = [](const char* what, std::int64_t found, std::int64_t expected) {
      throw invalid_argument(std::string("image tile: ") + what + " is " + std::to_string(found) + ", expected " +
                             std::to_string(expected));
    };
    if (p.height != side) refuse("height", p.height, side);
    if (p.width != side) refuse("width", p.width, side);
    if (t.tile < 0 || t.tile >= p.num_tiles) refuse("index", t.tile, p.num_tiles - 1);
    const std::int64_t bytes = std::int64_t{p.num_tiles} * side * side * 3;
    if (static_cast<std::int64_t>(p.values.size()) != bytes)
      refuse("bytes of its image", static_cast<std::int64_t>(p.values.size()), bytes);
  }

  void encode_together(typename Backend::stream& s, vision_scratch& w, std::span<const tile_input> tiles) const {
    const idefics3_vision_config& c = config_.vision;
    const std::int32_t count = static_cast<std::int32_t>(tiles.size());
    const std::int32_t rows = count * c.num_patches();
    w.pixels.clear();
    for (const tile_input& t : tiles) w.pixels.push_back(t.image->tile(t.tile));

    const matrix_view<float> patches = w.patches.shaped(device_, rows, 3 * c.patch_size * c.patch_size);
    const matrix_view<float> x = w.x.shaped(device_, rows, c.hidden_size);
    device_.patches(s, w.pixels, *tiles.front().image, c.patch_size, patches);
    device_.linear(s, patches, weights_.patch.weight, x, {.bias = weights_.patch.bias.data()});
    device_.add_rows(s, {weights_.positions.data(), c.num_patches(), c.hidden_size}, x);
    for (const auto& l : weights_.layers) layer(s, w, l, x);

    const matrix_view<float> normed = w.normed.shaped(device_, rows, c.hidden_size);
    normalise(s, x, weights_.post_norm, normed);
    const std::int32_t factor = config_.scale_factor;
    const matrix_view<float> folded = w.folded.shaped(device_, count * config_.tokens_per_tile(), c.hidden_size * factor * factor);
    device_.pixel_shuffle(s, normed, c.patches_per_side(), factor, folded);
    const matrix_view<float> projected = w.projected.shaped(device_, folded.rows, config_.text.hidden_size);
    device_.linear(s, folded, weights_.projection, projected, {});
    hand_out(s, w, tiles, projected);
  }

  // Pre-norm encoder layer; x is the residual stream.
  void layer(typename Backend::stream& s, vision_scratch& w, const typename vision_weights<Backend>::layer& l, matrix_view<float> x) const {
    const idefics3_vision_config& c = config_.vision;
    const matrix_view<float> normed = w.normed.shaped(device_, x.rows, c.hidden_size);
    const matrix_view<float> qkv = w.qkv.shaped(device_, x.rows, 3 * c.hidden_size);
    const matrix_view<float> attended = w.attended.shaped(device_, x.rows, c.hidden_size);
    const matrix_view<float> inner = w.inner.shaped(device_, x.rows, c.intermediate_size);
    const attention_shape shape{.num_heads = c.num_attention_heads,
                                .num_kv_heads = c.num_attention_heads,
                                .head_dim = c.head_dim(),
                                .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim())))};
    normalise(s, x, l.norm1, normed);
    device_.linear(s, normed, l.qkv.weight, qkv, {.bias = l.qkv.bias.data()});
    device_.full_attention(s, qkv, c.num_patches(), shape, attended);
    device_.linear(s, attended, l.out.weight, x, {.bias = l.out.bias.data(), .accumulate = true});
    normalise(s, x, l.norm2, normed);
    device_.linear(s, normed, l.up.weight, inner, {.bias = l.up.bias.data(), .act = linear_epilogue::activation::gelu_tanh});
    device_.linear(s, inner, l.down.weight, x, {.bias = l.down.bias.data(), .accumulate = true});
  }

  void normalise(typename Backend::stream& s, matrix_view<const float> x, const norm_weights& n, matrix_view<float> y) const {
    device_.layer_norm(s, x, n.gamma.data(), n.beta.data(), config_.vision.layer_norm_eps, y);
  }

  // Each tile's embeddings go where its owner wants them.
  void hand_out(typename Backend::stream& s, vision_scratch& w, std::span<const tile_input> tiles, matrix_view<const float> all) const {
    const std::int32_t per_tile = config_.tokens_per_tile();
    w.rows.resize(static_cast<std::size_t>(all.rows));
    std::iota(w.rows.begin(), w.rows.end(), 0);
    for (std::size_t t = 0; t < tiles.size(); ++t) {
      const auto first = t * static_cast<std::size_t>(per_tile);
      device_.gather_rows(s, all, std::span<const std::int32_t>(w.rows).subspan(first, static_cast<std::size_t>(per_tile)),
                          {tiles[t].embeddings, per_tile, all.cols});
    }
  }

  const Backend& device_;
  const idefics3_config& config_;
  const vision_weights<Backend>& weights_;
};

}  // namespace vlbatch::inline v0::idefics3_detail
