// SPDX-License-Identifier: Apache-2.0
/// \file
/// The contract between the engine and a vision lane.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/core/clock.hpp"
#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::inline v0 {

/// A tile on its way through a lane. Holds what it reads and writes, so that cancelling a request only detaches it.
struct tile_job {
  std::uint64_t entry = 0;                    ///< encoder cache entry
  std::int32_t tile = 0;                      ///< which tile of it
  std::shared_ptr<const pixel_tiles> pixels;  ///< input
  std::shared_ptr<std::byte> memory;          ///< owner of the output
  float* embeddings = nullptr;                ///< output, `[tokens_per_tile, hidden]`
};

/// A tile that left a lane.
struct tile_done {
  std::uint64_t entry = 0;  ///< encoder cache entry
  std::int32_t tile = 0;    ///< which tile of it
  time_point started{};     ///< when its batch began
  time_point ended{};       ///< when its batch was done
  std::int32_t batch = 0;   ///< tiles of its batch
  std::string error;        ///< why it failed, empty if it did not
};

/// A vision lane of \p Settings for a model and a clock: constructed as `lane(model, settings, clock, threads, wakeup)`, where `wakeup` is
/// to be notified when tiles are done. `start` takes a tile, `flush` begins the work given since the last flush (an in-step lane does it
/// there and then), `poll` moves finished tiles to the end of a vector, in the order they were started. Destruction waits for tiles under
/// way. Used by the engine's thread.
template <class L>
concept vision_lane = requires(L l, const L cl, tile_job job, std::vector<tile_done>& done) {
  { L::in_step } -> std::convertible_to<bool>;
  l.start(std::move(job));
  l.flush();
  l.poll(done);
  { cl.view() } -> std::same_as<lane_view>;
};

/// Encodes \p jobs in one batch and appends the outcomes. If the batch throws, its tiles are tried alone, so that a bad one fails alone.
template <class Model, class Clock>
void encode_jobs(const Model& model, typename Model::workspace& workspace, const Clock& clock, std::span<const tile_job> jobs,
                 std::vector<tile_input>& scratch, std::vector<tile_done>& done) {
  const auto attempt = [&](std::span<const tile_job> some) -> std::string {
    scratch.clear();
    for (const tile_job& j : some) scratch.push_back({j.pixels.get(), j.tile, j.embeddings});
    try {
      model.encode(workspace, std::span<const tile_input>(scratch));
      return {};
    } catch (const std::exception& e) {
      return e.what()[0] == '\0' ? "unnamed exception" : e.what();
    } catch (...) {
      return "unknown exception";
    }
  };
  const auto report = [&](const tile_job& j, time_point began, std::size_t batch, std::string error) {
    done.push_back({j.entry, j.tile, began, clock.now(), static_cast<std::int32_t>(batch), std::move(error)});
  };
  const time_point began = clock.now();
  std::string error = attempt(jobs);
  if (error.empty() || jobs.size() == 1) {
    for (const tile_job& j : jobs) report(j, began, jobs.size(), error);
    return;
  }
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const time_point again = clock.now();
    report(jobs[i], again, 1, attempt(jobs.subspan(i, 1)));
  }
}

}  // namespace vlbatch::inline v0
