// SPDX-License-Identifier: Apache-2.0
/// \file
/// Results that wait to be taken.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "vlbatch/core/request.hpp"

namespace vlbatch::inline v0 {

/// Where the engine leaves results, for whoever asked. Thread-safe.
class result_board {
 public:
  /// Leaves a result.
  void post(result r) {
    {
      const std::lock_guard lock(mutex_);
      const seq_id id = r.id;
      results_.insert_or_assign(id, std::move(r));
    }
    posted_.notify_all();
  }
  /// The result of \p id if it is there; it is taken away.
  [[nodiscard]] std::optional<result> take(seq_id id) {
    const std::lock_guard lock(mutex_);
    return take_locked(id);
  }
  /// Waits for the result of \p id. \throws what stop() was given, if the engine stopped without one
  [[nodiscard]] result wait(seq_id id) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (std::optional<result> r = take_locked(id)) return std::move(*r);
      if (stopped_) std::rethrow_exception(stopped_);
      posted_.wait(lock);
    }
  }
  /// No more results come until resume(): everybody who waits gets \p why.
  void stop(std::exception_ptr why) {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = std::move(why);
    }
    posted_.notify_all();
  }
  /// Results may come again.
  void resume() {
    const std::lock_guard lock(mutex_);
    stopped_ = nullptr;
  }

 private:
  [[nodiscard]] std::optional<result> take_locked(seq_id id) {
    const auto it = results_.find(id);
    if (it == results_.end()) return std::nullopt;
    std::optional<result> r(std::move(it->second));
    results_.erase(it);
    return r;
  }

  std::mutex mutex_;
  std::condition_variable posted_;
  std::unordered_map<seq_id, result> results_;
  std::exception_ptr stopped_;
};

}  // namespace vlbatch::inline v0
