// SPDX-License-Identifier: Apache-2.0
/// \file
/// The Idefics3 / SmolVLM family: SigLIP vision tower, pixel shuffle and linear connector, Llama decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/backend/backend.hpp"
#include "vlbatch/backend/cpu.hpp"  // complete: the declaration below instantiates `options`
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::inline v0 {

class tokenizer;

/// Which row of the position table a patch of the vision tower gets. transformers since 4.55 computes it in the number type of the pixels,
/// and in f32 every coordinate above 0 falls one short (transformers issue 41190); in bf16 the coordinates of the published checkpoints
/// (32 patches a side) come out as they were trained.
enum class patch_position_rule : std::uint8_t {
  reference,  ///< as transformers 4.57 in f32, so that logits agree with it: coordinate i takes row max(i - 1, 0)
  grid        ///< coordinate i takes row i, as the SmolVLM checkpoints were trained
};

/// Idefics3ForConditionalGeneration and SmolVLMForConditionalGeneration on \p Backend. A handle: copies share the immutable weights, which
/// may serve several engines and threads at once. `forward` and `encode` of the shipped backends are compiled in the library.
template <class Backend>
class idefics3 {
 public:
  /// How to load.
  struct options {
    Backend device{};                                                      ///< where it runs
    weight_format format = weight_format::as_stored;                       ///< how weights are kept
    patch_position_rule patch_positions = patch_position_rule::reference;  ///< how patches are numbered
  };

  /// Everything a call changes: stream, activations, logits. Movable; used by one thread at a time.
  class workspace {
   public:
    workspace(workspace&&) noexcept;
    workspace& operator=(workspace&&) noexcept;
    ~workspace();

   private:
    friend class idefics3;
    struct impl;
    explicit workspace(std::unique_ptr<impl> p) noexcept;
    std::unique_ptr<impl> impl_;
  };

  /// A CPU pass is complete when forward returns; other backends specialise what a ticket holds.
  struct ticket {};

  /// Reads a Hugging Face folder. \throws file_error, model_error naming file, item and both values
  [[nodiscard]] static idefics3 load(const std::string& folder, const options& opts = {});

  /// Shape and limits.
  [[nodiscard]] const model_info& info() const noexcept;
  /// Hyperparameters as read.
  [[nodiscard]] const idefics3_config& config() const noexcept;
  /// The tokenizer of the folder.
  [[nodiscard]] const tokenizer& text() const noexcept;
  /// Bytes that one pass over the decoder's weights (lm_head included) reads: the least memory traffic of a decode step.
  [[nodiscard]] std::int64_t decoder_bytes() const noexcept;

  /// Token ids and pixel tiles of a request. Thread-safe. \throws image_error, invalid_argument
  [[nodiscard]] prepared_request prepare(const request& r) const;
  /// New workspace with \p threads threads.
  [[nodiscard]] workspace make_workspace(std::int32_t threads) const;
  /// Zeroed backend memory.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::int64_t bytes) const;
  /// Vision tower and connector for every tile; tiles of several requests may be mixed.
  void encode(workspace& w, std::span<const tile_input> tiles) const;
  /// One step of the decoder.
  [[nodiscard]] ticket forward(workspace& w, const forward_input& in, const paged_kv_view& kv) const;
  /// Returns when the pass is done.
  void wait(workspace& w, ticket t) const;
  /// `[wanted rows, vocab]` of the last pass.
  [[nodiscard]] matrix_view<const float> logits(workspace& w) const;
  /// Appends the bytes that \p token stands for, nothing for special tokens.
  void append_text(std::int32_t token, std::string& out) const;

 private:
  struct impl;
  explicit idefics3(std::shared_ptr<const impl> p) noexcept;
  std::shared_ptr<const impl> impl_;
};

extern template class idefics3<cpu>;

}  // namespace vlbatch::inline v0
