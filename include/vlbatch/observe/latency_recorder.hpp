// SPDX-License-Identifier: Apache-2.0
/// \file
/// Latencies of requests, by the definitions of docs/benchmarking.md.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "vlbatch/core/request.hpp"
#include "vlbatch/core/scheduler_state.hpp"

namespace vlbatch::inline v0 {

/// Mean and percentiles of one quantity, milliseconds. Empty where there are too few values: p99 needs 1,000.
struct latency_summary {
  std::optional<double> mean;  ///< needs one value
  std::optional<double> p50;   ///< needs one value
  std::optional<double> p90;   ///< needs ten values
  std::optional<double> p99;   ///< needs 1,000 values
  friend bool operator==(const latency_summary&, const latency_summary&) = default;
};

/// Summary of \p values (milliseconds). Percentiles by linear interpolation between order statistics, as numpy's default.
[[nodiscard]] inline latency_summary summarise(std::vector<double> values) {
  latency_summary s;
  if (values.empty()) return s;
  std::sort(values.begin(), values.end());
  double sum = 0.0;
  for (const double v : values) sum += v;
  const auto at = [&](double q) {
    const double place = q * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const std::size_t high = std::min(low + 1, values.size() - 1);
    return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
  };
  s.mean = sum / static_cast<double>(values.size());
  s.p50 = at(0.5);
  if (values.size() >= 10) s.p90 = at(0.9);
  if (values.size() >= 1000) s.p99 = at(0.99);
  return s;
}

/// Latencies of a run.
struct latencies {
  latency_summary ttft;  ///< arrival to first token
  latency_summary tpot;  ///< mean time of the tokens after the first, one value a request of at least two tokens
  latency_summary itl;   ///< time between two tokens of a request, pooled over all requests; the first token is in none
  latency_summary e2e;   ///< arrival to last token
};

/// Observer that collects latencies of requests that finished. A handle: copies share what is recorded, so that the caller keeps one while
/// the engine owns another. Not thread-safe: read it when the engine is not stepping.
class latency_recorder {
 public:
  /// A token exists.
  void on_token(const sequence_view& v) {
    times& t = data_->open[v.id];
    if (t.tokens > 0) t.gaps.push_back(milliseconds(v.last_token - t.last));
    t.last = v.last_token;
    ++t.tokens;
  }
  /// A request ended.
  void on_finish(const result& r) {
    const auto it = data_->open.find(r.id);
    if (it == data_->open.end()) return;
    const times t = std::move(it->second);
    data_->open.erase(it);
    if (r.outcome != status::finished) return;
    data_->ttft.push_back(milliseconds(r.when.first_token - r.when.arrival));
    data_->e2e.push_back(milliseconds(r.when.last_token - r.when.arrival));
    if (t.tokens > 1) data_->tpot.push_back(milliseconds(r.when.last_token - r.when.first_token) / static_cast<double>(t.tokens - 1));
    data_->itl.insert(data_->itl.end(), t.gaps.begin(), t.gaps.end());
  }
  /// Forgets everything (after a warm-up).
  void clear() { *data_ = {}; }
  /// Summaries so far.
  [[nodiscard]] latencies summary() const {
    return {.ttft = summarise(data_->ttft), .tpot = summarise(data_->tpot), .itl = summarise(data_->itl), .e2e = summarise(data_->e2e)};
  }

 private:
  [[nodiscard]] static double milliseconds(duration d) { return static_cast<double>(d.count()) * 1e-6; }
  struct times {
    time_point last{};
    std::int64_t tokens = 0;
    std::vector<double> gaps;
  };
  struct recorded {
    std::unordered_map<seq_id, times> open;
    std::vector<double> ttft, tpot, itl, e2e;
  };
  std::shared_ptr<recorded> data_ = std::make_shared<recorded>();
};

}  // namespace vlbatch::inline v0
