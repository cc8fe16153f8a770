// SPDX-License-Identifier: Apache-2.0
/// \file
/// Counts what another KV allocator does, and makes it fail on demand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "vlbatch/kv/kv_allocator.hpp"

namespace vlbatch::inline v0 {

/// Figures of statistics_adaptor.
struct kv_statistics {
  std::int64_t reserves = 0;          ///< calls of reserve
  std::int64_t failed_reserves = 0;   ///< of these, refused (on demand or for want of blocks)
  std::int64_t releases = 0;          ///< calls of release
  std::int32_t peak_blocks_used = 0;  ///< high-water mark
  double peak_fragmentation = 0.0;    ///< highest share of reserved slots that no token was reserved for
};

/// An allocator around \p Base that behaves like it, counts, and refuses reservations when told to (to test how an engine copes):
/// instrumentation as an adaptor, as in RAPIDS rmm.
template <kv_allocator Base>
class statistics_adaptor {
 public:
  /// What a kernel gets.
  using view_type = typename Base::view_type;

  /// Wraps \p base.
  explicit statistics_adaptor(Base base = Base{}) : base_(std::move(base)) {}

  /// Figures so far.
  [[nodiscard]] const kv_statistics& statistics() const noexcept { return statistics_; }
  /// Lets \p after further reservations pass, then refuses \p times of them.
  void fail_reserves(std::int64_t after, std::int64_t times) noexcept {
    fail_from_ = statistics_.reserves + after;
    fail_until_ = fail_from_ + times;
  }

  /// Name of the base.
  [[nodiscard]] static constexpr std::string_view name() noexcept { return Base::name(); }
  /// As documented at kv_allocator.
  void bind(const kv_binding& b) { base_.bind(b); }
  /// As documented at kv_allocator.
  [[nodiscard]] kv_budget budget() const { return base_.budget(); }
  /// As documented at kv_allocator.
  [[nodiscard]] kv_usage usage() const { return base_.usage(); }
  /// As documented at kv_allocator.
  [[nodiscard]] std::int32_t blocks_of(seq_id id) const { return base_.blocks_of(id); }
  /// As documented at kv_allocator; refuses when told to.
  [[nodiscard]] bool reserve(seq_id id, std::int32_t tokens) {
    const std::int64_t call = statistics_.reserves++;
    if ((call >= fail_from_ && call < fail_until_) || !base_.reserve(id, tokens)) {
      ++statistics_.failed_reserves;
      return false;
    }
    const kv_usage u = base_.usage();
    statistics_.peak_blocks_used = std::max(statistics_.peak_blocks_used, u.blocks_used);
    const double slots = static_cast<double>(u.blocks_used) * base_.budget().block_size;
    if (slots > 0)
      statistics_.peak_fragmentation = std::max(statistics_.peak_fragmentation, 1.0 - static_cast<double>(u.tokens_stored) / slots);
    return true;
  }
  /// As documented at kv_allocator.
  void release(seq_id id) noexcept {
    ++statistics_.releases;
    base_.release(id);
  }
  /// As documented at kv_allocator.
  [[nodiscard]] view_type view(std::span<const seq_id> ids) { return base_.view(ids); }
  /// As the base says: a limit of one sequence that the budget does not show.
  [[nodiscard]] std::int64_t max_tokens_per_sequence() const { return most_tokens_per_sequence(base_); }

 private:
  Base base_;
  kv_statistics statistics_;
  std::int64_t fail_from_ = 0;
  std::int64_t fail_until_ = 0;
};

}  // namespace vlbatch::inline v0
