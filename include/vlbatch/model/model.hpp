// SPDX-License-Identifier: Apache-2.0
/// \file
/// What the engine needs of a model.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/core/batch.hpp"
#include "vlbatch/core/matrix_view.hpp"
#include "vlbatch/core/prepared_request.hpp"
#include "vlbatch/core/request.hpp"
#include "vlbatch/kv/kv_view.hpp"

namespace vlbatch::inline v0 {

/// Facts about a loaded model that do not change.
struct model_info {
  std::string name;                      ///< for reports, usually the folder's name
  kv_shape kv;                           ///< what a token occupies in a KV cache
  std::int32_t hidden_size = 0;          ///< columns of an embedding
  std::int32_t vocab_size = 0;           ///< columns of the logits; token ids are below it
  std::int32_t max_positions = 0;        ///< prompt and answer together may not be longer
  std::int32_t position_axes = 1;        ///< rows of the positions (3 for M-RoPE)
  std::int32_t tokens_per_tile = 0;      ///< embedding rows of a tile; 0 for a model without vision
  std::vector<std::int32_t> eos_tokens;  ///< any of these ends an answer
  friend bool operator==(const model_info&, const model_info&) = default;
};

/// One tile for the vision encoder.
struct tile_input {
  const pixel_tiles* image = nullptr;  ///< pixels and table; kept alive by the caller until encode returns
  std::int32_t tile = 0;               ///< which tile of the image
  float* embeddings = nullptr;         ///< `[tokens_per_tile, hidden_size]`, backend memory, written by encode
};

/// A vision-language model: immutable weights behind a cheap copyable handle.
///
/// 1. `info()` never changes. `prepare(request)` decodes, resizes and tokenises; it is thread-safe and throws an `error` on bad input.
/// 2. A `workspace` holds everything a call changes. Calls on different workspaces may run at the same time; each engine and each vision
/// lane
///    makes its own with `make_workspace(threads)`.
/// 3. `encode(workspace, tiles)` fills the embeddings of every tile; a tile's embedding does not depend on the other tiles.
/// 4. `forward(workspace, input, kv)` computes one step, storing KV for every real row, and returns a ticket; `wait(workspace, ticket)`
/// returns when
///    it is done. `logits(workspace)` is then `[input.logit_rows.size(), vocab_size]`, f32, host memory, valid until the next forward.
/// 5. `allocate(bytes)` gives backend memory for KV blocks and embeddings.
/// 6. `append_text(token, out)` appends the bytes that a token stands for; nothing for special tokens.
template <class M>
concept vlm_model = std::copyable<M> && requires(const M m, typename M::workspace& w, typename M::ticket t, const request& r,
                                                 std::span<const tile_input> tiles, const forward_input& in, std::string& out) {
  { m.info() } -> std::same_as<const model_info&>;
  { m.prepare(r) } -> std::same_as<prepared_request>;
  { m.make_workspace(1) } -> std::same_as<typename M::workspace>;
  { m.allocate(std::int64_t{}) } -> std::same_as<std::shared_ptr<std::byte>>;
  m.encode(w, tiles);
  m.wait(w, t);
  { m.logits(w) } -> std::same_as<matrix_view<const float>>;
  m.append_text(0, out);
};

/// A model that can read and write the KV cache that \p View describes.
template <class M, class View>
concept runs_on = vlm_model<M> && requires(const M m, typename M::workspace& w, const forward_input& in, const View& kv) {
  { m.forward(w, in, kv) } -> std::same_as<typename M::ticket>;
};

}  // namespace vlbatch::inline v0
