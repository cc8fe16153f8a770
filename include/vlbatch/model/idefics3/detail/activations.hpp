// SPDX-License-Identifier: Apache-2.0
/// \file
/// Activation memory of a workspace: matrices that keep their memory from call to call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "vlbatch/core/matrix_view.hpp"

namespace vlbatch::inline v0::idefics3_detail {

/// One activation matrix. Memory grows by half at least, so that batches that grow row by row allocate rarely and a steady step never does.
class activation {
 public:
  /// A dense `[rows, cols]` matrix with undefined content, valid until the next call. \throws device_error no memory; the old one is lost
  template <class Backend>
  [[nodiscard]] matrix_view<float> shaped(const Backend& device, std::int32_t rows, std::int32_t cols) {
    const std::int64_t bytes = std::int64_t{rows} * cols * static_cast<std::int64_t>(sizeof(float));
    if (bytes > capacity_) {
      const std::int64_t larger = std::max(bytes, capacity_ + capacity_ / 2);
      capacity_ = 0;
      memory_.reset();  // before the allocation: the peak is the new size, not both
      memory_ = device.allocate(larger);
      capacity_ = larger;
    }
    return {reinterpret_cast<float*>(memory_.get()), rows, cols};
  }

 private:
  std::shared_ptr<std::byte> memory_;
  std::int64_t capacity_ = 0;
};

}  // namespace vlbatch::inline v0::idefics3_detail
