// SPDX-License-Identifier: Apache-2.0
// What a stream of the CPU backend holds: a team of threads, scratch memory of each, and the rotation table.
#pragma once

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

  thread_team team;
  std::vector<scratch_memory> scratch;
  std::int64_t scratch_floats = 0;
  rope_table rope;
};

}  // namespace vlbatch::inline v0
