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
  result_board();
  result_board(const result_board&) = delete;
  result_board& operator=(const result_board&) = delete;
  ~result_board();
  /// Leaves a result.
  void post(result r);
  /// The result of \p id if it is there; it is taken away.
  [[nodiscard]] std::optional<result> take(seq_id id);
  /// Waits for the result of \p id. \throws what stop() was given, if the engine stopped without one
  [[nodiscard]] result wait(seq_id id);
  /// No more results come until resume(): everybody who waits gets \p why.
  void stop(std::exception_ptr why);
  /// Results may come again.
  void resume();

 private:
  [[nodiscard]] std::optional<result> take_locked(seq_id id);

  std::mutex mutex_;
  std::condition_variable posted_;
  std::unordered_map<seq_id, result> results_;
  std::exception_ptr stopped_;
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/result_board-inl.hpp"
#endif
