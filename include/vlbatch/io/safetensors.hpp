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
  /// Copies all elements to \p out as f32. \throws invalid_argument unless out.size() == elements
  void copy_to(std::span<float> out) const;
};

/// A tensor whose numbers nothing here reads (I64, F64, U8, ...). Checked like the others and listed, so that its presence can be
/// explained. Valid while the checkpoint lives.
struct foreign_tensor {
  std::string_view name;  ///< key in the file
  std::string_view file;  ///< path of the file it lies in
  std::string_view type;  ///< dtype as the file spells it
};

/// All tensors of a model folder: `model.safetensors`, or the shards named by `model.safetensors.index.json`. Immutable; thread-safe.
/// The files must not be changed or cut while it lives, as with any mapped file.
class checkpoint {
 public:
  /// Maps the files and checks every header: lengths, offsets inside the file, no overlap, no duplicate, shape times dtype equal to the
  /// bytes, index and shards in agreement, no shard outside the folder. \throws file_error naming file, tensor and both values
  [[nodiscard]] static checkpoint open(const std::string& folder);
  /// Maps one file. \throws file_error
  [[nodiscard]] static checkpoint open_file(const std::string& path);

  checkpoint(checkpoint&&) noexcept;
  checkpoint& operator=(checkpoint&&) noexcept;
  ~checkpoint();

  /// The tensor called \p name, or nullptr if there is none or it has a dtype that nothing here reads.
  [[nodiscard]] const tensor_view* find(std::string_view name) const noexcept;
  /// The tensor called \p name with exactly \p shape and a floating dtype. \throws model_error naming file, tensor, and both shapes or
  /// dtypes
  [[nodiscard]] const tensor_view& get(std::string_view name, std::span<const std::int64_t> shape) const;
  /// All tensors of the dtypes F32, F16, BF16 and I8, by name.
  [[nodiscard]] std::span<const tensor_view> tensors() const noexcept;
  /// All other tensors, by name.
  [[nodiscard]] std::span<const foreign_tensor> foreign_tensors() const noexcept;
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

/// Writes one safetensors file, each tensor aligned to its element size. \throws file_error if it cannot be written, invalid_argument if
/// bytes and shape disagree
void write_safetensors(const std::string& path, std::span<const tensor_to_write> tensors);

}  // namespace vlbatch::inline v0
