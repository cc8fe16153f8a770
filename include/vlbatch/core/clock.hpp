// SPDX-License-Identifier: Apache-2.0
/// \file
/// Where the engine gets its time from, and how it waits.
#pragma once

#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// Lets other threads (submitters, preparation, lanes) end an engine's wait. Notifications are counted, so none is lost between a look at
/// the state and the wait. Thread-safe.
class wakeup {
 public:
  /// Something happened that the engine should look at.
  void notify();
  /// Notifications so far.
  [[nodiscard]] std::uint64_t count() const;
  /// Returns when there were more notifications than \p seen, or at \p until.
  void wait(std::uint64_t seen, time_point until);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 0;
};

/// A clock that an engine can run on: `now()`, and `wait_until(t, w, seen)` which returns at \p t or as soon as \p w was notified beyond \p
/// seen. `t == never` waits for a notification alone. A virtual clock advances to its next event instead of sleeping.
template <class C>
concept engine_clock = std::movable<C> && requires(C c, const C cc, time_point t, wakeup& w) {
  { cc.now() } -> std::same_as<time_point>;
  c.wait_until(t, w, std::uint64_t{});
};

/// Real time: std::chrono::steady_clock.
struct wall_clock {
  /// Time since an arbitrary start.
  [[nodiscard]] time_point now() const noexcept { return std::chrono::time_point_cast<duration>(std::chrono::steady_clock::now()); }
  /// Sleeps.
  void wait_until(time_point t, wakeup& w, std::uint64_t seen) { w.wait(seen, t); }
};
static_assert(engine_clock<wall_clock>);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/clock-inl.hpp"
#endif
