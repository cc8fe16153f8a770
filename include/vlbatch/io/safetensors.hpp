// SPDX-License-Identifier: Apache-2.0
/// \file
/// Checkpoints: memory-mapped safetensors files, one or sharded. Defined in the compiled library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// One stored tensor. Points into the mapped file: valid while the checkpoint lives.
struct tensor_view {
  std::string_view name;                ///< key in the file
  std::string_view file;                ///< path of the file it lies in, for error texts
  dtype type = dtype::f32;              ///< number type
  std::span<const std::int64_t> shape;  ///< outermost first; empty for a scalar
  const std::byte* data = nullptr;      ///< row-major elements, possibly unaligned
  std::int64_t elements = 0;            ///< product of shape

  /// Element \p i as f32 (exact for every floating dtype).
  [[nodiscard]] float at(std::int64_t i) const;
  /// Copies all elements to \p out as f32. \pre out.size() == elements
  void copy_to(std::span<float> out) const;
};

/// All tensors of a model folder: `model.safetensors`, or the shards named by `model.safetensors.index.json`. Immutable; thread-safe.
class checkpoint {
 public:
  /// Maps the files and checks every header: lengths, offsets inside the file, no overlap, no duplicate, shape times dtype equal to the bytes, index
  /// and shards in agreement. \throws file_error naming file, tensor and both values
  [[nodiscard]] static checkpoint open(const std::string& folder);
  /// Maps one file. \throws file_error
  [[nodiscard]] static checkpoint open_file(const std::string& path);

  checkpoint(checkpoint&&) noexcept;
  checkpoint& operator=(checkpoint&&) noexcept;
  ~checkpoint();

  /// The tensor called \p name, or nullptr.
  [[nodiscard]] const tensor_view* find(std::string_view name) const noexcept;
  /// The tensor called \p name with exactly \p shape and a floating dtype. \throws model_error naming file, tensor, and both shapes or dtypes
  [[nodiscard]] const tensor_view& get(std::string_view name, std::span<const std::int64_t> shape) const;
  /// All tensors, by name.
  [[nodiscard]] std::span<const tensor_view> tensors() const noexcept;
  /// Folder or file it was opened from, for error texts.
  [[nodiscard]] const std::string& source() const noexcept;

 private:
  struct impl;
  explicit checkpoint(std::unique_ptr<impl> p) noexcept;
  std::unique_ptr<impl> impl_;
};

/// A tensor to be written.
struct tensor_to_write {
  std::string name;                 ///< key
  dtype type = dtype::f32;          ///< number type of the bytes
  std::vector<std::int64_t> shape;  ///< outermost first
  std::vector<std::byte> bytes;     ///< row-major elements
};

/// Writes one safetensors file. \throws file_error if it cannot be written, invalid_argument if bytes and shape disagree
void write_safetensors(const std::string& path, std::span<const tensor_to_write> tensors);

}  // namespace vlbatch::inline v0
