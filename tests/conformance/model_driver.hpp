// SPDX-License-Identifier: Apache-2.0
/// \file
/// Drives a model by hand: no engine, a block table made here. For conformance and parity tests, of users' models too. Header-only, without
/// a test framework.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include "vlbatch/core/batch.hpp"
#include "vlbatch/kv/kv_view.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::testing {

/// How a driver lays out its cache and works.
struct driver_options {
  std::int32_t threads = 1;      ///< of the workspace
  std::int32_t block_size = 16;  ///< tokens of a KV block
  std::int32_t blocks = 128;     ///< KV blocks in all
  bool scattered = true;         ///< blocks are handed out in a mixed-up order
  float garbage = 0.0F;          ///< what fills the cache before use (NaN shows reads of what nobody wrote)
};

/// Sequences of one model with one workspace and one cache.
template <vlm_model Model>
class model_driver {
 public:
  /// Tokens of one sequence in a step.
  struct window {
    std::int32_t sequence = 0;  ///< as returned by add
    std::int32_t tokens = 0;    ///< how many of the known ones, from the first that is not computed
    std::int32_t pads = 0;      ///< rows after them that nobody looks at
  };
  /// Logits of one row each.
  using rows = std::vector<std::vector<float>>;

  explicit model_driver(const Model& model, const driver_options& options = {})
      : model_(model), options_(options), workspace_(model_.make_workspace(options.threads)) {
    const std::int64_t bytes = model_.info().kv.bytes_per_token() * options.block_size * options.blocks;
    storage_ = model_.allocate(bytes);
    if (model_.info().kv.type == dtype::f32) {
      auto* values = reinterpret_cast<float*>(storage_.get());
      std::fill(values, values + bytes / 4, options.garbage);
    }
    free_.resize(static_cast<std::size_t>(options.blocks));
    std::iota(free_.begin(), free_.end(), 0);
    if (options.scattered) {  // a fixed shuffle
      std::uint32_t state = 12345;
      for (std::size_t i = free_.size(); i > 1; --i) {
        state = state * 1664525U + 1013904223U;
        std::swap(free_[i - 1], free_[(state >> 8U) % i]);
      }
    }
  }

  /// Takes a prompt and encodes its images, all tiles in one call. Returns its index.
  std::int32_t add(const prepared_request& prompt) {
    sequence_state s{.prompt = prompt, .tokens = prompt.tokens, .embeddings = {}, .blocks = {}};
    std::vector<tile_input> tiles;
    for (const prepared_image& image : s.prompt.images) {
      s.embeddings.push_back(embedding_memory(image.pixels->num_tiles));
      for (std::int32_t t = 0; t < image.pixels->num_tiles; ++t) {
        tiles.push_back({image.pixels.get(), t, floats(s.embeddings.back()) + t * tile_elements()});
      }
    }
    if (!tiles.empty()) model_.encode(workspace_, tiles);
    sequences_.push_back(std::move(s));
    return static_cast<std::int32_t>(sequences_.size()) - 1;
  }
  /// Appends a token to what is known of a sequence.
  void append(std::int32_t sequence, std::int32_t token) { at(sequence).tokens.push_back(token); }
  /// Tokens that are known and not computed.
  [[nodiscard]] std::int32_t remaining(std::int32_t sequence) const {
    const auto& s = sequences_.at(static_cast<std::size_t>(sequence));
    return static_cast<std::int32_t>(s.tokens.size()) - s.computed;
  }
  /// Embeddings of an image, `[num_tiles * tokens_per_tile, hidden]`.
  [[nodiscard]] std::span<const float> embeddings(std::int32_t sequence, std::size_t image) {
    const sequence_state& s = at(sequence);
    return {floats(s.embeddings[image]),
            static_cast<std::size_t>(s.prompt.images[image].pixels->num_tiles) * static_cast<std::size_t>(tile_elements())};
  }

  /// Rows whose logits a step asks for.
  enum class wanted_rows : std::uint8_t { every, last_of_each, none };

  /// Computes the windows in one step, and \p empty_rows for nobody. Logits of the wanted real rows, in order.
  rows step(std::span<const window> windows, std::int32_t empty_rows = 0, wanted_rows which = wanted_rows::every) {
    std::vector<std::int32_t> ids, positions, begin{0}, tokens, context, wanted;
    std::vector<injected_rows> images;
    std::size_t widest = 1;
    for (const window& w : windows) {
      sequence_state& s = at(w.sequence);
      const auto first = static_cast<std::int32_t>(ids.size());
      for (std::int32_t i = 0; i < w.tokens; ++i) {
        if (which == wanted_rows::every || (which == wanted_rows::last_of_each && i + 1 == w.tokens))
          wanted.push_back(static_cast<std::int32_t>(ids.size()));
        ids.push_back(s.tokens.at(static_cast<std::size_t>(s.computed + i)));
        positions.push_back(s.computed + i);
      }
      inject(s, w.tokens, first, images);
      ids.resize(ids.size() + static_cast<std::size_t>(w.pads), 0);
      positions.resize(ids.size(), 0);
      begin.push_back(static_cast<std::int32_t>(ids.size()));
      tokens.push_back(w.tokens);
      context.push_back(s.computed);
      reserve(s, s.computed + w.tokens);
      widest = std::max(widest, s.blocks.size());
    }
    ids.resize(ids.size() + static_cast<std::size_t>(empty_rows), 0);
    positions.resize(ids.size(), 0);
    std::vector<std::int32_t> table(windows.size() * widest, -1);
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const auto& blocks = at(windows[i].sequence).blocks;
      std::copy(blocks.begin(), blocks.end(), table.begin() + static_cast<std::ptrdiff_t>(i * widest));
    }
    const auto count = static_cast<std::int32_t>(windows.size());
    const paged_kv_view kv{storage_.get(), table.data(), count, static_cast<std::int32_t>(widest), options_.block_size, model_.info().kv};
    const forward_input in{.map = {count, static_cast<std::int32_t>(ids.size()), begin, tokens, context},
                           .axes = 1,
                           .token_ids = ids,
                           .positions = positions,
                           .images = images,
                           .logit_rows = wanted};
    model_.wait(workspace_, model_.forward(workspace_, in, kv));
    const matrix_view<const float> logits = model_.logits(workspace_);
    if (logits.rows != static_cast<std::int32_t>(wanted.size()) || logits.cols != model_.info().vocab_size)
      throw std::logic_error("logits are not [wanted rows, vocabulary]");
    for (const window& w : windows) at(w.sequence).computed += w.tokens;
    rows out;
    for (std::int32_t r = 0; r < logits.rows; ++r) out.emplace_back(logits.row(r), logits.row(r) + logits.cols);
    return out;
  }
  /// Computes everything that is known of one sequence, \p chunk tokens a step.
  rows run(std::int32_t sequence, std::int32_t chunk = 1 << 20) {
    rows out;
    while (remaining(sequence) > 0) {
      const window w{sequence, std::min(chunk, remaining(sequence))};
      rows some = step({&w, 1});
      std::move(some.begin(), some.end(), std::back_inserter(out));
    }
    return out;
  }

  /// Elements of the embeddings of one tile.
  [[nodiscard]] std::int64_t tile_elements() const { return std::int64_t{model_.info().tokens_per_tile} * model_.info().hidden_size; }
  /// Backend memory for the embeddings of \p tiles tiles.
  [[nodiscard]] std::shared_ptr<std::byte> embedding_memory(std::int32_t tiles) const {
    return model_.allocate(tiles * tile_elements() * 4);
  }
  /// As f32.
  [[nodiscard]] static float* floats(const std::shared_ptr<std::byte>& memory) { return reinterpret_cast<float*>(memory.get()); }
  /// The driver's workspace.
  [[nodiscard]] typename Model::workspace& workspace() { return workspace_; }

 private:
  struct sequence_state {
    prepared_request prompt;
    std::vector<std::int32_t> tokens;
    std::vector<std::shared_ptr<std::byte>> embeddings;  // one an image
    std::vector<std::int32_t> blocks;
    std::int32_t computed = 0;
  };
  sequence_state& at(std::int32_t i) { return sequences_.at(static_cast<std::size_t>(i)); }
  void reserve(sequence_state& s, std::int32_t tokens) {
    while (static_cast<std::int32_t>(s.blocks.size()) * options_.block_size < tokens) {
      if (free_.empty()) throw std::logic_error("the driver's cache is full: give it more blocks");
      s.blocks.push_back(free_.back());
      free_.pop_back();
    }
  }
  // Rows of image embeddings inside the window of n tokens, row by row: the plainest way to say it.
  void inject(const sequence_state& s, std::int32_t n, std::int32_t first_row, std::vector<injected_rows>& out) const {
    for (std::size_t i = 0; i < s.prompt.images.size(); ++i) {
      const prepared_image& image = s.prompt.images[i];
      for (std::size_t t = 0; t < image.tile_positions.size(); ++t) {
        for (std::int32_t k = 0; k < image.tokens_per_tile; ++k) {
          const std::int32_t row = image.tile_positions[t] + k - s.computed;
          if (row < 0 || row >= n) continue;
          const std::int64_t source = static_cast<std::int64_t>(t) * image.tokens_per_tile + k;
          out.push_back({first_row + row, 1, floats(s.embeddings[i]) + source * model_.info().hidden_size});
        }
      }
    }
  }

  Model model_;
  driver_options options_;
  typename Model::workspace workspace_;
  std::shared_ptr<std::byte> storage_;
  std::vector<std::int32_t> free_;
  std::vector<sequence_state> sequences_;
};

}  // namespace vlbatch::testing
