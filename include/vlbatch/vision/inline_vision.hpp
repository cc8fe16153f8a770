// SPDX-License-Identifier: Apache-2.0
/// \file
/// Vision lane inside the step.
#pragma once

#include <vector>

#include "vlbatch/vision/lane.hpp"

namespace vlbatch::inline v0 {

/// Tiles are encoded in the step that plans them, all in one batch, before its forward pass: they count as ready in the same plan.
struct inline_vision {
  /// Name for reports.
  static constexpr const char* name() noexcept { return "inline"; }
  /// Threads of \p total that the lane takes from the step: none, they take turns.
  [[nodiscard]] static constexpr std::int32_t threads_beside(std::int32_t) noexcept { return 0; }

  /// The lane for a model and a clock.
  template <class Model, class Clock>
  class lane {
   public:
    static constexpr bool in_step = true;  ///< see lane_view::in_step

    /// \p threads work on a batch while the step waits.
    lane(const Model& model, const inline_vision&, const Clock& clock, std::int32_t threads, wakeup&)
        : model_(model), clock_(&clock), workspace_(model_.make_workspace(threads)) {}

    /// Takes a tile.
    void start(tile_job job) { jobs_.push_back(std::move(job)); }
    /// Encodes what was taken.
    void flush() {
      if (!jobs_.empty()) encode_jobs(model_, workspace_, *clock_, std::span<const tile_job>(jobs_), scratch_, done_);
      jobs_.clear();
    }
    /// Hands out finished tiles.
    void poll(std::vector<tile_done>& done) {
      for (tile_done& d : done_) done.push_back(std::move(d));
      done_.clear();
    }
    /// Never busy between steps.
    [[nodiscard]] lane_view view() const { return {.in_step = true, .tiles_in_flight = static_cast<std::int32_t>(jobs_.size())}; }

   private:
    Model model_;
    const Clock* clock_;
    typename Model::workspace workspace_;
    std::vector<tile_job> jobs_;
    std::vector<tile_input> scratch_;
    std::vector<tile_done> done_;
  };
};

}  // namespace vlbatch::inline v0
