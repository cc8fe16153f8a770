// SPDX-License-Identifier: Apache-2.0
/// \file
/// An engine stepped by a thread of its own.
#pragma once

#include <atomic>
#include <exception>
#include <stdexcept>
#include <thread>

#include "vlbatch/core/error.hpp"
#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// Steps \p Engine on its own thread from construction to destruction. Meanwhile `submit`, `cancel`, `wait` and `generate` may be called
/// from any thread; nobody else may step. If a step throws (policy_error, policy_stalled), the loop ends and everybody who waits gets that
/// exception; requests stay as they are.
template <class Engine>
class run_loop {
 public:
  /// Starts. \p engine must outlive the loop.
  explicit run_loop(Engine& engine) : engine_(engine) {
    engine_.core().board.resume();
    engine_.core().driven.store(true, std::memory_order_release);
    thread_ = std::thread([this] { work(); });
  }
  run_loop(const run_loop&) = delete;
  run_loop& operator=(const run_loop&) = delete;
  /// Ends after the step under way. Requests that did not end stay in the engine; whoever waits for one gets an error.
  ~run_loop() { stop(); }

  /// As the destructor; idempotent.
  void stop() {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_release);
    engine_.core().wake.notify();
    thread_.join();
  }
  /// True until the loop ended, by stop() or by an exception.
  [[nodiscard]] bool alive() const noexcept { return alive_.load(std::memory_order_acquire); }

 private:
  void work() {
    std::exception_ptr why = std::make_exception_ptr(error("the run loop was stopped"));
    try {
      while (!stop_.load(std::memory_order_acquire)) {
        const std::uint64_t seen = engine_.core().wake.count();
        if (engine_.idle() && !stop_.load(std::memory_order_acquire)) {
          engine_.core().wake.wait(seen, never);
        } else {
          engine_.step();
        }
      }
    } catch (...) {
      why = std::current_exception();
    }
    engine_.core().driven.store(false, std::memory_order_release);
    alive_.store(false, std::memory_order_release);
    engine_.core().board.stop(why);
  }

  Engine& engine_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> alive_{true};
  std::thread thread_;
};

}  // namespace vlbatch::inline v0
