// SPDX-License-Identifier: Apache-2.0
/// \file
/// Vision lane beside the step.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "vlbatch/vision/lane.hpp"

namespace vlbatch::inline v0 {

/// A worker thread with its own share of the threads encodes while the engine goes on decoding. The idea of an encoder beside a
/// continuously batching language engine is LMDeploy's.
struct async_vision {
  std::int32_t threads = 1;    ///< threads of the lane; the step gets the rest, at least one
  std::int32_t max_batch = 8;  ///< tiles encoded together

  /// Name for reports.
  static constexpr const char* name() noexcept { return "async"; }
  /// Threads of \p total that the lane takes from the step.
  [[nodiscard]] constexpr std::int32_t threads_beside(std::int32_t total) const noexcept { return std::min(threads, total - 1); }
  friend bool operator==(const async_vision&, const async_vision&) = default;

  /// The lane for a model and a clock.
  template <class Model, class Clock>
  class lane {
   public:
    static constexpr bool in_step = false;  ///< see lane_view::in_step

    /// Starts the worker.
    lane(const Model& model, const async_vision& settings, const Clock& clock, std::int32_t threads, wakeup& wake)
        : model_(model),
          clock_(&clock),
          max_batch_(static_cast<std::size_t>(std::max(settings.max_batch, 1))),
          wake_(&wake),
          workspace_(model_.make_workspace(threads)),
          worker_([this] { work(); }) {}
    lane(const lane&) = delete;
    lane& operator=(const lane&) = delete;
    /// Lets the batch under way end and drops the others.
    ~lane() {
      {
        const std::lock_guard lock(mutex_);
        stop_ = true;
      }
      work_.notify_all();
      worker_.join();
    }

    /// Takes a tile.
    void start(tile_job job) { pending_.push_back(std::move(job)); }
    /// Gives the worker what was taken.
    void flush() {
      if (pending_.empty()) return;
      in_flight_ += static_cast<std::int32_t>(pending_.size());
      {
        const std::lock_guard lock(mutex_);
        for (tile_job& j : pending_) queue_.push_back(std::move(j));
      }
      pending_.clear();
      work_.notify_all();
    }
    /// Hands out finished tiles.
    void poll(std::vector<tile_done>& done) {
      if (in_flight_ == 0) return;
      const std::lock_guard lock(mutex_);
      in_flight_ -= static_cast<std::int32_t>(done_.size());
      for (tile_done& d : done_) done.push_back(std::move(d));
      done_.clear();
    }
    /// Tiles given and not handed out.
    [[nodiscard]] lane_view view() const {
      return {.busy_until = in_flight_ > 0 ? never : time_point{}, .in_step = false, .tiles_in_flight = in_flight_};
    }

   private:
    void work() {
      std::vector<tile_job> batch;
      std::vector<tile_input> scratch;
      std::vector<tile_done> done;
      for (;;) {
        {
          std::unique_lock lock(mutex_);
          work_.wait(lock, [&] { return stop_ || !queue_.empty(); });
          if (stop_) return;
          const std::size_t n = std::min(max_batch_, queue_.size());
          batch.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(queue_.begin() + static_cast<std::ptrdiff_t>(n)));
          queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(n));
        }
        encode_jobs(model_, workspace_, *clock_, std::span<const tile_job>(batch), scratch, done);
        batch.clear();
        {
          const std::lock_guard lock(mutex_);
          for (tile_done& d : done) done_.push_back(std::move(d));
        }
        done.clear();
        wake_->notify();
      }
    }

    Model model_;
    const Clock* clock_;
    std::size_t max_batch_;
    wakeup* wake_;
    std::vector<tile_job> pending_;  // engine's thread only
    std::int32_t in_flight_ = 0;     // engine's thread only
    std::mutex mutex_;               // guards the members below
    std::condition_variable work_;
    std::vector<tile_job> queue_;
    std::vector<tile_done> done_;
    bool stop_ = false;
    typename Model::workspace workspace_;  // the worker's
    std::thread worker_;
  };
};

}  // namespace vlbatch::inline v0
