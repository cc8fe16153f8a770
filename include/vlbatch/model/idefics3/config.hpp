// SPDX-License-Identifier: Apache-2.0
/// \file
/// Hyperparameters of the Idefics3 / SmolVLM family, read from a Hugging Face folder. Defined in the compiled library.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// Vision tower (SigLIP). Members are named as the keys of `vision_config`; the values here are the defaults of transformers'
/// Idefics3VisionConfig.
struct idefics3_vision_config {
  std::int32_t hidden_size = 1152;               ///< width
  std::int32_t intermediate_size = 3072;         ///< width of the MLP
  std::int32_t num_hidden_layers = 12;           ///< encoder layers
  std::int32_t num_attention_heads = 16;         ///< heads; divides hidden_size
  std::int32_t image_size = 224;                 ///< side of a tile, pixels; a multiple of patch_size
  std::int32_t patch_size = 32;                  ///< side of a patch, pixels
  float layer_norm_eps = 1e-6F;                  ///< of every LayerNorm
  std::string hidden_act = "gelu_pytorch_tanh";  ///< the only one that is supported

  /// Width of one head.
  [[nodiscard]] constexpr std::int32_t head_dim() const noexcept { return hidden_size / num_attention_heads; }
  /// Patches along one side of a tile.
  [[nodiscard]] constexpr std::int32_t patches_per_side() const noexcept { return image_size / patch_size; }
  /// Patches of a tile: rows the encoder works on.
  [[nodiscard]] constexpr std::int32_t num_patches() const noexcept { return patches_per_side() * patches_per_side(); }

  friend bool operator==(const idefics3_vision_config&, const idefics3_vision_config&) = default;
};

/// Decoder (Llama). Members are named as the keys of `text_config`; the values here are the defaults of transformers' LlamaConfig.
struct idefics3_text_config {
  std::int32_t hidden_size = 4096;              ///< width
  std::int32_t intermediate_size = 11008;       ///< width of the gated MLP
  std::int32_t num_hidden_layers = 32;          ///< decoder layers
  std::int32_t num_attention_heads = 32;        ///< query heads
  std::int32_t num_key_value_heads = 32;        ///< key and value heads; divides num_attention_heads
  std::int32_t head_dim = 128;                  ///< width of one head, even; not always hidden_size / num_attention_heads
  std::int32_t vocab_size = 32000;              ///< rows of the embedding and of lm_head
  std::int32_t max_position_embeddings = 2048;  ///< longest sequence
  float rms_norm_eps = 1e-6F;                   ///< of every RMSNorm
  float rope_theta = 10000.0F;                  ///< base of the rotary embedding
  bool tie_word_embeddings = false;             ///< lm_head is the embedding; this flag counts (as in transformers), the outer one does not
  std::string hidden_act = "silu";              ///< the only one that is supported

  friend bool operator==(const idefics3_text_config&, const idefics3_text_config&) = default;
};

/// How pictures become tiles. Members are named as the keys of `preprocessor_config.json`; the values here are the defaults of
/// transformers' Idefics3ImageProcessor.
struct idefics3_preprocessing {
  bool do_convert_rgb = true;                ///< convert to RGB first
  bool do_resize = true;                     ///< scale the longest edge to size_longest_edge
  std::int32_t size_longest_edge = 4 * 364;  ///< `size.longest_edge`, pixels
  std::int32_t resample = 1;                 ///< Pillow's number of the filter, 0..5 (`resample_filter` in io/image.hpp); 1: Lanczos
  bool do_image_splitting = true;            ///< cut into tiles and append the whole picture; false: one tile
  std::int32_t max_image_size_longest_edge =
      364;                              ///< `max_image_size.longest_edge`: side of a tile, pixels; equals the vision tower's image_size
  bool do_rescale = true;               ///< multiply by rescale_factor
  double rescale_factor = 1.0 / 255.0;  ///< factor
  bool do_normalize = true;             ///< subtract image_mean, divide by image_std
  std::array<double, 3> image_mean{0.5, 0.5, 0.5};  ///< per channel
  std::array<double, 3> image_std{0.5, 0.5, 0.5};   ///< per channel, positive

  friend bool operator==(const idefics3_preprocessing&, const idefics3_preprocessing&) = default;
};

/// Everything that the files of the folder say about the model, weights and tokenizer aside.
struct idefics3_config {
  /// Which of the two classes of transformers the folder is for. Their weights and arithmetic are the same.
  enum class family : std::uint8_t {
    idefics3,  ///< Idefics3ForConditionalGeneration
    smolvlm    ///< SmolVLMForConditionalGeneration
  };

  family kind = family::idefics3;              ///< class
  std::string source;                          ///< folder it was read from, for error texts
  idefics3_vision_config vision;               ///< vision tower
  idefics3_text_config text;                   ///< decoder
  idefics3_preprocessing preprocessing;        ///< pictures to tiles
  std::int32_t scale_factor = 2;               ///< the connector folds scale_factor x scale_factor patches into one embedding row
  std::int32_t image_token_id = 128257;        ///< id of the placeholder `<image>`, below text.vocab_size
  std::vector<std::int32_t> eos_token_ids{2};  ///< ids that end an answer: of generation_config.json if it names any, else of config.json
  dtype torch_dtype = dtype::f32;              ///< number type that the folder declares for its weights

  /// Embedding rows, and so placeholders, of one tile.
  [[nodiscard]] constexpr std::int32_t tokens_per_tile() const noexcept {
    const std::int32_t side = vision.patches_per_side() / scale_factor;
    return side * side;
  }

  /// Reads `config.json`, and `generation_config.json`, `preprocessor_config.json` and `processor_config.json` where they exist. Keys that
  /// are absent have the defaults of transformers' classes, except those without which the model is unknown (architecture,
  /// `text_config.hidden_size`, `vision_config`). Without `preprocessor_config.json` a tile has the vision tower's image_size and the
  /// longest edge is 4 tiles. \throws file_error unreadable or malformed file; model_error missing key, unsupported or contradicting value,
  /// naming file, key and both values
  [[nodiscard]] static idefics3_config load(const std::string& folder);

  friend bool operator==(const idefics3_config&, const idefics3_config&) = default;
};

}  // namespace vlbatch::inline v0
