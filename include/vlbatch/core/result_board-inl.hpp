// SPDX-License-Identifier: Apache-2.0
// Definitions of result_board.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/result_board.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE result_board::result_board() = default;
VLBATCH_INLINE result_board::~result_board() = default;

VLBATCH_INLINE void result_board::post(result r) {
  {
    const std::lock_guard lock(mutex_);
    const seq_id id = r.id;
    results_.insert_or_assign(id, std::move(r));
  }
  posted_.notify_all();
}

VLBATCH_INLINE std::optional<result> result_board::take(seq_id id) {
  const std::lock_guard lock(mutex_);
  return take_locked(id);
}

VLBATCH_INLINE result result_board::wait(seq_id id) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::optional<result> r = take_locked(id)) return std::move(*r);
    if (stopped_) std::rethrow_exception(stopped_);
    posted_.wait(lock);
  }
}

VLBATCH_INLINE void result_board::stop(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = std::move(why);
  }
  posted_.notify_all();
}

VLBATCH_INLINE void result_board::resume() {
  const std::lock_guard lock(mutex_);
  stopped_ = nullptr;
}

VLBATCH_INLINE std::optional<result> result_board::take_locked(seq_id id) {
  const auto it = results_.find(id);
  if (it == results_.end()) return std::nullopt;
  std::optional<result> r(std::move(it->second));
  results_.erase(it);
  return r;
}

}  // namespace vlbatch::inline v0
