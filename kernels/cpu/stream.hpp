// SPDX-License-Identifier: Apache-2.0
// What a stream of the CPU backend holds: a team of threads, scratch memory of each, and the rotation table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/memory.hpp"
#include "cpu/rope_table.hpp"
#include "cpu/thread_team.hpp"
#include "vlbatch/backend/cpu.hpp"

namespace vlbatch::inline v0 {

struct cpu::stream::impl {
  explicit impl(std::int32_t threads) : team(threads), scratch(static_cast<std::size_t>(threads)) {}

  /// Scratch of \p n floats for each thread. Called before the team starts, so that growth happens on the caller.
  void reserve_scratch(std::int64_t n) {
    for (auto& s : scratch) static_cast<void>(s.get<float>(n));
    scratch_floats = n;
  }
  /// Scratch of thread \p t, as large as was last reserved.
  [[nodiscard]] float* scratch_of(std::int32_t t) { return scratch[static_cast<std::size_t>(t)].get<float>(scratch_floats).data(); }

  /// Pieces that an operation of about \p nanoseconds is cut into: 1 where joining threads would cost more than it saves, else enough for a
  /// thread that the system delays to be made up for by the others.
  [[nodiscard]] std::int32_t pieces(double nanoseconds) const noexcept {
    constexpr double worth_sharing = 4000.0;
    constexpr double piece = 2000.0;
    if (team.size() == 1 || nanoseconds < worth_sharing) return 1;
    return std::clamp(static_cast<std::int32_t>(std::min(nanoseconds / piece, 1e6)), team.size(), 4 * team.size());
  }
  /// Calls `row(r)` for every r below \p rows, shared between the threads if that pays; \p nanoseconds is what the whole operation takes.
  template <class Row>
  void for_rows(std::int32_t rows, double nanoseconds, const Row& row) {
    const std::int32_t parts = std::min(pieces(nanoseconds), rows);
    const auto cut = [=](std::int32_t i) { return static_cast<std::int32_t>(static_cast<std::int64_t>(rows) * i / parts); };
    team.run(parts, [&](std::int32_t t, std::int32_t /*thread*/) {
      for (std::int32_t r = cut(t); r < cut(t + 1); ++r) row(r);
    });
  }

  thread_team team;
  std::vector<scratch_memory> scratch;
  std::int64_t scratch_floats = 0;
  scratch_memory task_list;      ///< tasks of an operation whose pieces are not of one size
  scratch_memory rounded_input;  ///< input of a product in bf16
  rope_table rope;
};

}  // namespace vlbatch::inline v0
