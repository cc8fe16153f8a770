// SPDX-License-Identifier: Apache-2.0
// A small fork-join team.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace vlbatch::inline v0 {

/// Threads that share the tasks of one operation. The caller works too; tasks are claimed one by one, so that a thread that the system has
/// taken off its processor holds nobody up unless it is in the middle of a task: the caller waits for claimed tasks, never for threads.
/// Idle workers spin for some tens of microseconds (the gap between two operations of a step) and then sleep.
///
/// Used by one thread at a time. Which thread runs a task is not determined: results must not depend on it.
class thread_team {
 public:
  /// \p threads counts the caller; the others are started here. \throws device_error if the system refuses one
  explicit thread_team(std::int32_t threads);
  thread_team(const thread_team&) = delete;
  thread_team& operator=(const thread_team&) = delete;
  ~thread_team();

  /// Threads, the caller's included.
  [[nodiscard]] std::int32_t size() const noexcept { return static_cast<std::int32_t>(workers_.size()) + 1; }

  /// Calls `body(task, thread)` once for each task in `[0, tasks)`, thread in `[0, size())`, and returns when all are done. \p body must
  /// not throw.
  template <class F>
  void run(std::int32_t tasks, F&& body) {
    if (tasks <= 1 || workers_.empty()) {
      for (std::int32_t t = 0; t < tasks; ++t) body(t, 0);
      return;
    }
    using callable = std::remove_reference_t<F>;
    fork_join(
        tasks, [](void* context, std::int32_t task, std::int32_t thread) { (*static_cast<callable*>(context))(task, thread); },
        const_cast<void*>(static_cast<const void*>(std::addressof(body))));
  }

 private:
  using trampoline = void (*)(void*, std::int32_t, std::int32_t);

  void fork_join(std::int32_t tasks, trampoline body, void* context);
  [[nodiscard]] std::int32_t claim() noexcept;
  [[nodiscard]] bool wanted() const noexcept;
  void work(std::int32_t thread);
  void stop() noexcept;

  // One word says everything about the operation in progress: number of tasks (upper half) and the next unclaimed one (lower half). A
  // claim is a compare-and-swap on it, so that a late worker can only ever claim a task of the operation it sees.
  alignas(64) std::atomic<std::uint64_t> tasks_{0};
  alignas(64) std::atomic<std::int32_t> done_{0};  // tasks finished by workers
  alignas(64) std::atomic<std::int32_t> sleeping_{0};
  trampoline body_ = nullptr;  // written between operations, read after a claim
  void* context_ = nullptr;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::jthread> workers_;
};

}  // namespace vlbatch::inline v0
