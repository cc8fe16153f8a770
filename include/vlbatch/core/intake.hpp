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
  intake(prepare_function prepare, now_function now, std::int32_t threads, wakeup& wake);
  intake(const intake&) = delete;
  intake& operator=(const intake&) = delete;
  /// Waits for preparations under way.
  ~intake();

  /// Takes a request. Thread-safe.
  seq_id submit(request r, bool keep_result);
  /// Cancels a request, wherever it is. Unknown or ended ids are no error. Thread-safe.
  void cancel(seq_id id);

  /// Moves what is prepared to \p arrived and cancellations of requests that were collected before to \p cancelled.
  void collect(time_point now, std::vector<arrived_request>& arrived, std::vector<seq_id>& cancelled);
  /// When the next request arrives that has not yet; `never` if none is known.
  [[nodiscard]] time_point next_arrival() const;
  /// Requests that arrived and are being prepared or wait for it.
  [[nodiscard]] bool preparing() const;
  /// True if nothing is inside.
  [[nodiscard]] bool empty() const;

 private:
  // Prepares the first of the queue; the lock is open meanwhile.
  void prepare_next(std::unique_lock<std::mutex>& lock);
  void work();
  void close();

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

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/intake-inl.hpp"
#endif
