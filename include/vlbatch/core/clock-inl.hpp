// SPDX-License-Identifier: Apache-2.0
// Definitions of clock.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/clock.hpp"
#include "vlbatch/core/linkage.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE void wakeup::notify() {
  {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  changed_.notify_all();
}

VLBATCH_INLINE std::uint64_t wakeup::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

VLBATCH_INLINE void wakeup::wait(std::uint64_t seen, time_point until) {
  std::unique_lock lock(mutex_);
  const auto news = [&] { return count_ != seen; };
  if (until == never) {
    changed_.wait(lock, news);
  } else {
    changed_.wait_until(lock, until, news);
  }
}

}  // namespace vlbatch::inline v0
