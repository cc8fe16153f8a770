// SPDX-License-Identifier: Apache-2.0
/// \file
/// Tensors of a checkpoint, each taken once and by its full name, so that what is left over can be refused. Defined in the compiled
/// library.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/io/safetensors.hpp"

namespace vlbatch::inline v0::idefics3_detail {

/// Hands out the tensors of a checkpoint and remembers which ones. Refers to the checkpoint, which must outlive it. Not thread-safe.
class tensor_source {
 public:
  /// \param stored the checkpoint \param described what the configuration says about the shape, for error texts ("3 text layers, ...")
  tensor_source(const checkpoint& stored, std::string described);

  /// The tensor called \p name of exactly \p shape. \throws model_error missing, of another shape or dtype: file, tensor and both values
  [[nodiscard]] const tensor_view& take(std::string_view name, std::initializer_list<std::int64_t> shape);
  /// The same, as f32 numbers.
  [[nodiscard]] std::vector<float> take_floats(std::string_view name, std::initializer_list<std::int64_t> shape);
  /// Accepts a tensor that may repeat \p original (a tied weight that was stored twice). \throws model_error it differs from the original
  void allow_copy(std::string_view name, const tensor_view& original);
  /// \throws model_error a tensor was not taken, unless it is a buffer that transformers stored in older versions and never reads
  /// (rotary frequencies, position ids)
  void expect_nothing_left() const;

 private:
  const checkpoint* stored_;
  std::string described_;
  std::vector<bool> taken_;  // by index in stored_->tensors()
};

}  // namespace vlbatch::inline v0::idefics3_detail
