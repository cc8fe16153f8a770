// SPDX-License-Identifier: Apache-2.0
// Definitions of intake.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/intake.hpp"
#include "vlbatch/core/linkage.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE intake::intake(prepare_function prepare, now_function now, std::int32_t threads, wakeup& wake)
    : prepare_(std::move(prepare)), now_(std::move(now)), wake_(wake) {
  try {
    for (std::int32_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  } catch (...) {  // the destructor of a half-made object does not run
    close();
    throw;
  }
}

VLBATCH_INLINE void intake::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
}

VLBATCH_INLINE intake::~intake() { close(); }

VLBATCH_INLINE seq_id intake::submit(request r, bool keep_result) {
  const time_point now = now_();
  seq_id id{};
  {
    const std::lock_guard lock(mutex_);
    id = seq_id{++last_id_};
    arrived_request a{.id = id, .what = std::move(r), .keep_result = keep_result};
    a.when.arrival = a.what.arrival.value_or(now);
    inside_.insert(id);
    if (a.when.arrival > now) {
      future_.emplace(std::pair{a.when.arrival, id}, std::move(a));
    } else {
      queue_.push_back(std::move(a));
    }
  }
  work_.notify_one();
  wake_.notify();
  return id;
}

VLBATCH_INLINE void intake::cancel(seq_id id) {
  {
    const std::lock_guard lock(mutex_);
    if (!inside_.contains(id)) {
      cancelled_.push_back(id);
    } else {
      doomed_.insert(id);
      const auto it = std::find_if(future_.begin(), future_.end(), [&](const auto& f) { return f.second.id == id; });
      if (it != future_.end()) {  // it need not wait for its arrival
        queue_.push_back(std::move(it->second));
        future_.erase(it);
      }
    }
  }
  work_.notify_one();
  wake_.notify();
}

VLBATCH_INLINE void intake::collect(time_point now, std::vector<arrived_request>& arrived, std::vector<seq_id>& cancelled) {
  std::unique_lock lock(mutex_);
  bool moved = false;
  while (!future_.empty() && future_.begin()->first.first <= now) {
    queue_.push_back(std::move(future_.begin()->second));
    future_.erase(future_.begin());
    moved = true;
  }
  while (workers_.empty() && !queue_.empty()) prepare_next(lock);
  for (arrived_request& a : done_) {
    inside_.erase(a.id);
    a.cancelled = doomed_.erase(a.id) > 0;
    arrived.push_back(std::move(a));
  }
  done_.clear();
  cancelled.insert(cancelled.end(), cancelled_.begin(), cancelled_.end());
  cancelled_.clear();
  lock.unlock();
  if (moved) work_.notify_all();
}

VLBATCH_INLINE time_point intake::next_arrival() const {
  const std::lock_guard lock(mutex_);
  return future_.empty() ? never : future_.begin()->first.first;
}

VLBATCH_INLINE bool intake::preparing() const {
  const std::lock_guard lock(mutex_);
  return inside_.size() > future_.size();
}

VLBATCH_INLINE bool intake::empty() const {
  const std::lock_guard lock(mutex_);
  return inside_.empty() && cancelled_.empty();
}

VLBATCH_INLINE void intake::prepare_next(std::unique_lock<std::mutex>& lock) {
  arrived_request a = std::move(queue_.front());
  queue_.pop_front();
  const bool wanted = !doomed_.contains(a.id);
  lock.unlock();
  if (wanted) {
    a.when.prepare_start = now_();
    try {
      // Ready tokens pass through the model's own checks too.
      a.ready = std::make_shared<const prepared_request>(prepare_(a.what));
    } catch (const std::exception& e) {
      a.error = e.what()[0] == '\0' ? "unnamed exception" : e.what();
    } catch (...) {
      a.error = "unknown exception";
    }
    a.when.prepared = now_();
  }
  lock.lock();
  done_.push_back(std::move(a));
}

VLBATCH_INLINE void intake::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stop_ || !queue_.empty(); });
    if (stop_) return;
    prepare_next(lock);
    lock.unlock();
    wake_.notify();
    lock.lock();
  }
}

}  // namespace vlbatch::inline v0
