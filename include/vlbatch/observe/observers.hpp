// SPDX-License-Identifier: Apache-2.0
/// \file
/// Several observers as one.
#pragma once

#include <tuple>
#include <utility>

#include "vlbatch/core/hooks.hpp"
#include "vlbatch/observe/observer.hpp"

namespace vlbatch::inline v0 {

/// Several observers as one: each hook goes to every one that has it.
template <class... Observers>
class observers {
 public:
  /// Takes them by value; recorders are handles.
  explicit observers(Observers... each) : each_(std::move(each)...) {}
  observers() = default;
  /// To all.
  void on_arrival(const sequence_view& v) {
    std::apply([&](auto&... o) { (hook::on_arrival(o, v), ...); }, each_);
  }
  /// To all.
  void on_encoded(const tile_done& d, const sequence_view& v, std::int32_t image) {
    std::apply([&](auto&... o) { (hook::on_encoded(o, d, v, image), ...); }, each_);
  }
  /// To all.
  void on_step(const step_report& r) {
    std::apply([&](auto&... o) { (hook::on_step(o, r), ...); }, each_);
  }
  /// To all.
  void on_token(const sequence_view& v) {
    std::apply([&](auto&... o) { (hook::on_token(o, v), ...); }, each_);
  }
  /// To all.
  void on_evict(seq_id id, time_point when) {
    std::apply([&](auto&... o) { (hook::on_evict(o, id, when), ...); }, each_);
  }
  /// To all.
  void on_finish(const result& r) {
    std::apply([&](auto&... o) { (hook::on_finish(o, r), ...); }, each_);
  }

 private:
  std::tuple<Observers...> each_;
};

}  // namespace vlbatch::inline v0
