// SPDX-License-Identifier: Apache-2.0
/// \file
/// Requests on their way into the engine: a thread-safe door, and the preparation stage behind it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "vlbatch/core/clock.hpp"
#include "vlbatch/core/request.hpp"

namespace vlbatch::inline v0 {

/// A request that is through preparation, or will not get through it.
struct arrived_request {
  seq_id id{};                                      ///< as given out by submit
  request what{};                                   ///< as submitted
  std::shared_ptr<const prepared_request> ready{};  ///< tokens and pixels; null if `error` or `cancelled`
  std::string error{};                              ///< why preparation failed
  bool cancelled = false;                           ///< cancelled before the engine saw it
  bool keep_result = true;                          ///< the result is asked for later, besides `on_finish`
  timings when{};                                   ///< arrival and preparation
};

/// Takes requests from any thread, holds each until it arrives on the clock, prepares it (decode, resize, tokenise) on a pool of threads,
/// and hands it to the engine. `submit` and `cancel` are thread-safe; the rest is the engine thread's.
class intake {
 public:
  /// Turns messages into tokens and pixels; thread-safe; throws on bad input.
  using prepare_function = std::function<prepared_request(const request&)>;
  /// The engine's clock.
  using now_function = std::function<time_point()>;

  /// Starts the pool. With 0 threads requests are prepared on the engine's thread when it collects them (simulation, tests).
  intake(prepare_function prepare, now_function now, std::int32_t threads, wakeup& wake)
      : prepare_(std::move(prepare)), now_(std::move(now)), wake_(wake) {
    for (std::int32_t i = 0; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  intake(const intake&) = delete;
  intake& operator=(const intake&) = delete;
  /// Waits for preparations under way.
  ~intake() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  /// Takes a request. Thread-safe.
  seq_id submit(request r, bool keep_result) {
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
  /// Cancels a request, wherever it is. Unknown or ended ids are no error. Thread-safe.
  void cancel(seq_id id) {
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

  /// Moves what is prepared to \p arrived and cancellations of requests that were collected before to \p cancelled.
  void collect(time_point now, std::vector<arrived_request>& arrived, std::vector<seq_id>& cancelled) {
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
  /// When the next request arrives that has not yet; `never` if none is known.
  [[nodiscard]] time_point next_arrival() const {
    const std::lock_guard lock(mutex_);
    return future_.empty() ? never : future_.begin()->first.first;
  }
  /// Requests that arrived and are being prepared or wait for it.
  [[nodiscard]] bool preparing() const {
    const std::lock_guard lock(mutex_);
    return inside_.size() > future_.size();
  }
  /// True if nothing is inside.
  [[nodiscard]] bool empty() const {
    const std::lock_guard lock(mutex_);
    return inside_.empty() && cancelled_.empty();
  }

 private:
  // Prepares the first of the queue; the lock is open meanwhile.
  void prepare_next(std::unique_lock<std::mutex>& lock) {
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
  void work() {
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

  prepare_function prepare_;
  now_function now_;
  wakeup& wake_;
  mutable std::mutex mutex_;  // guards everything below but workers_
  std::condition_variable work_;
  std::uint64_t last_id_ = 0;
  std::map<std::pair<time_point, seq_id>, arrived_request> future_;  // not yet arrived
  std::deque<arrived_request> queue_;                                // to be prepared
  std::vector<arrived_request> done_;                                // to be collected
  std::unordered_set<seq_id> inside_;                                // submitted and not collected
  std::unordered_set<seq_id> doomed_;                                // of these, cancelled
  std::vector<seq_id> cancelled_;                                    // collected before
  bool stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace vlbatch::inline v0
