// SPDX-License-Identifier: Apache-2.0
// One configuration of the experiment: what is run, what came out, how it is shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "vlbatch/core/parts.hpp"
#include "vlbatch/observe/latency_recorder.hpp"
#include "vlbatch/observe/timeline.hpp"

namespace vlbatch::programs {

/// What is run.
struct configuration {
  std::string policy;
  std::string vision;
  std::string kv;
  bool encoder_cache = false;

  [[nodiscard]] std::string label() const { return policy + " / " + vision + " / " + kv + (encoder_cache ? " / encoder cache" : ""); }
  friend bool operator==(const configuration&, const configuration&) = default;
};

/// What came out of one run.
struct outcome {
  double makespan_s = 0.0;
  double encode_s = 0.0;  // vision lane busy
  std::int64_t completed = 0, failed = 0, dropped = 0, output_tokens = 0;
  std::int64_t correct = 0, identical = 0;
  std::int32_t kv_peak_blocks = 0;
  std::string first_failure;
  latencies latency;
  engine_stats stats;
  std::vector<timeline_row> timeline;
  time_point began{};

  [[nodiscard]] double requests_per_s() const { return static_cast<double>(completed) / makespan_s; }
  [[nodiscard]] double tokens_per_s() const { return static_cast<double>(output_tokens) / makespan_s; }
  [[nodiscard]] double rows_per_step() const {
    return stats.steps > 0 ? static_cast<double>(stats.rows) / static_cast<double>(stats.steps) : 0.0;
  }
  [[nodiscard]] double encoder_share() const { return encode_s / makespan_s; }
};

/// A configuration with its runs, the median one by makespan shown.
struct experiment_row {
  configuration what;
  std::vector<outcome> runs;

  [[nodiscard]] const outcome& median() const;
  [[nodiscard]] double fastest_s() const;
  [[nodiscard]] double slowest_s() const;
};

/// What the whole report says about itself.
struct experiment_header {
  std::string model, workload, machine, git, command;
  std::int32_t requests = 0;
  std::uint64_t seed = 0;
  limits bounds;
  std::int32_t threads = 0;
  std::string level;
};

/// Table for a terminal.
[[nodiscard]] std::string as_table(const std::vector<experiment_row>& rows, const experiment_header& header);
/// Array of objects with the keys of the design.
[[nodiscard]] std::string as_json(const std::vector<experiment_row>& rows, const experiment_header& header);
/// One self-contained page with table and timelines.
[[nodiscard]] std::string as_html(const std::vector<experiment_row>& rows, const experiment_header& header);
/// Makespan of the fastest sequential row: what every speed-up is measured against. Empty without one.
[[nodiscard]] std::optional<double> baseline_s(const std::vector<experiment_row>& rows);

}  // namespace vlbatch::programs
