// SPDX-License-Identifier: Apache-2.0
/// \file
/// Seeded random checkpoints in Hugging Face layout, for benchmarks and tests that need a shape and not an answer. Defined in the compiled
/// library.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/model/idefics3/config.hpp"

namespace vlbatch::inline v0 {

/// Shape of a random checkpoint.
struct random_checkpoint_shape {
  idefics3_config config;      ///< hyperparameters; the special tokens of pictures end at `image_token_id`, `eos_token_ids` names one id
  std::int32_t tile_grid = 6;  ///< tokenizer has `<row_r_col_c>` for r and c up to this
};

/// How to write it.
struct random_checkpoint_options {
  std::uint64_t seed = 0;    ///< same seed, shape and number type: same bytes, on every machine
  dtype type = dtype::bf16;  ///< bf16 or f32
  std::int32_t shards = 1;   ///< safetensors files; one shard is in memory at a time
  bool overwrite = false;    ///< write into a folder that is not empty; weight files there are removed first
  std::function<void(std::int64_t done, std::int64_t total)> progress{};  ///< called now and then with bytes of weights; may be empty
};

/// What was written.
struct random_checkpoint_report {
  std::int64_t parameters = 0;    ///< numbers in all tensors
  std::int64_t weight_bytes = 0;  ///< bytes of all tensors
  std::int32_t files = 0;         ///< safetensors files
};

/// Names that named_checkpoint_shape knows.
[[nodiscard]] std::span<const std::string_view> checkpoint_shape_names() noexcept;
/// `tiny` (that of models/tiny-vlm), `smolvlm-256m` or `smolvlm-500m`. \throws invalid_argument another name, listing these
[[nodiscard]] random_checkpoint_shape named_checkpoint_shape(std::string_view name);

/// Writes weights, configuration, processor files and a byte-level tokenizer without merges into \p folder, which is made if need be.
/// The folder loads here and in transformers. Linear layers are normal (a sum of four uniforms) with variance 1 / inputs, those that write
/// to the residual stream smaller by the root of their number, norms are 1: activations and logits are of the size of a trained model's.
/// \throws invalid_argument a shape that cannot be (with both numbers), a number type other than bf16 and f32, shards below 1;
/// file_error the folder is not empty (unless overwrite) or cannot be written
random_checkpoint_report write_random_checkpoint(const random_checkpoint_shape& shape, const std::string& folder,
                                                 const random_checkpoint_options& options = {});

}  // namespace vlbatch::inline v0
