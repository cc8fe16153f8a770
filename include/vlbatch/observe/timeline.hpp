// SPDX-License-Identifier: Apache-2.0
/// \file
/// What every request did when: the data of the timeline picture.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "vlbatch/core/request.hpp"
#include "vlbatch/observe/observer.hpp"

namespace vlbatch::inline v0 {

/// What a request does in a stretch of time.
enum class activity : std::uint8_t { preparing, waiting, encoding, prefill, decode, padding };

/// Spelling for reports.
[[nodiscard]] constexpr const char* name_of(activity a) noexcept {
  constexpr const char* names[] = {"preparing", "waiting", "encoding", "prefill", "decode", "padding"};
  return names[static_cast<std::size_t>(a)];
}

/// A stretch of time in which a request did one thing.
struct timeline_segment {
  activity what = activity::waiting;  ///< what
  time_point begin{};                 ///< from
  time_point end{};                   ///< to
};

/// One request.
struct timeline_row {
  seq_id id{};                             ///< whose
  time_point arrival{};                    ///< its first moment
  time_point finished{};                   ///< its last, padding aside
  std::vector<timeline_segment> segments;  ///< may overlap: later ones lie above earlier ones
};

/// Observer that records a timeline. A handle like latency_recorder: copies share what is recorded.
class timeline_recorder {
 public:
  /// A step was computed: what its sequences did during it.
  void on_step(const step_report& r) {
    const bool new_batch = std::none_of(r.run.begin(), r.run.end(), [&](const run_item& i) { return data_->last_run.contains(i.id); });
    if (new_batch) {  // but who ended in its first step already is one of it
      std::erase_if(data_->ended,
                    [&](seq_id id) { return std::none_of(r.run.begin(), r.run.end(), [&](const run_item& i) { return i.id == id; }); });
    }
    for (const run_item& i : r.run) {
      const bool first_token = !data_->decoding.contains(i.id);
      extend(i.id,
             i.pad_tokens > i.num_tokens ? activity::padding
             : first_token               ? activity::prefill
                                         : activity::decode,
             r.launched, r.computed);
    }
    if (r.empty_rows > 0) {  // lockstep: the rows that ended are computed on
      for (const seq_id id : data_->ended) {
        const auto same = [&](const run_item& i) { return i.id == id; };
        if (std::none_of(r.run.begin(), r.run.end(), same)) extend(id, activity::padding, r.launched, r.computed);
      }
    }
    data_->last_run.clear();
    for (const run_item& i : r.run) data_->last_run.insert(i.id);
    for (const seq_id id : data_->fresh) data_->decoding.insert(id);
    data_->fresh.clear();
  }
  /// From its first token on a sequence decodes.
  void on_token(const sequence_view& v) { data_->fresh.push_back(v.id); }
  /// A request ended: the rest of its life is known.
  void on_finish(const result& r) {
    timeline_row& row = row_of(r.id);
    row.arrival = r.when.arrival;
    row.finished = r.when.finished;
    std::vector<timeline_segment> life = {{activity::waiting, r.when.arrival, r.when.finished}};
    if (r.when.prepared != never) life.push_back({activity::preparing, r.when.prepare_start, r.when.prepared});
    if (r.when.encode_start != never && r.when.encoded != never) life.push_back({activity::encoding, r.when.encode_start, r.when.encoded});
    row.segments.insert(row.segments.begin(), life.begin(), life.end());
    data_->ended.push_back(r.id);
  }
  /// Rows in the order in which requests were first seen.
  [[nodiscard]] const std::vector<timeline_row>& rows() const noexcept { return data_->rows; }

 private:
  struct recorded {
    std::vector<timeline_row> rows;
    std::unordered_map<seq_id, std::size_t> index;
    std::unordered_set<seq_id> decoding, last_run;
    std::vector<seq_id> fresh, ended;
  };
  timeline_row& row_of(seq_id id) {
    const auto [it, added] = data_->index.try_emplace(id, data_->rows.size());
    if (added) data_->rows.push_back({.id = id, .segments = {}});
    return data_->rows[it->second];
  }
  void extend(seq_id id, activity what, time_point begin, time_point end) {
    std::vector<timeline_segment>& s = row_of(id).segments;
    // Steps follow each other within microseconds: one stretch, so that a page of 200 requests stays small.
    if (!s.empty() && s.back().what == what && begin - s.back().end < std::chrono::milliseconds(1)) {
      s.back().end = end;
    } else {
      s.push_back({what, begin, end});
    }
  }
  std::shared_ptr<recorded> data_ = std::make_shared<recorded>();
};

}  // namespace vlbatch::inline v0
