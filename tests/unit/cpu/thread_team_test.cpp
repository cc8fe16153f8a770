// SPDX-License-Identifier: Apache-2.0
#include "cpu/thread_team.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace vlbatch {
namespace {

TEST(thread_team, runs_every_task_once) {
  for (const std::int32_t threads : {1, 2, 3, 8}) {
    thread_team team(threads);
    EXPECT_EQ(team.size(), threads);
    for (std::int32_t tasks = 0; tasks < 50; ++tasks) {
      // Plain integers: the fork and the join must order them for the caller.
      std::vector<std::int32_t> ran(static_cast<std::size_t>(tasks), 0);
      std::vector<std::int32_t> thread_of(static_cast<std::size_t>(tasks), -1);
      team.run(tasks, [&](std::int32_t task, std::int32_t thread) {
        ++ran[static_cast<std::size_t>(task)];
        thread_of[static_cast<std::size_t>(task)] = thread;
      });
      for (const auto n : ran) EXPECT_EQ(n, 1);
      for (const auto t : thread_of) EXPECT_TRUE(t >= 0 && t < threads);
    }
  }
}

TEST(thread_team, results_of_one_operation_are_seen_by_the_next) {
  thread_team team(3);
  std::vector<std::int64_t> cells(64, 1);
  std::vector<std::int64_t> next(64, 0);
  for (std::int32_t round = 0; round < 2000; ++round) {
    team.run(64, [&](std::int32_t t, std::int32_t) {
      next[static_cast<std::size_t>(t)] = cells[static_cast<std::size_t>(t)] + cells[static_cast<std::size_t>((t + 1) % 64)] % 7;
    });
    std::swap(cells, next);
  }
  std::vector<std::int64_t> expected(64, 1);
  for (std::int32_t round = 0; round < 2000; ++round) {
    for (std::size_t t = 0; t < 64; ++t) next[t] = expected[t] + expected[(t + 1) % 64] % 7;
    std::swap(expected, next);
  }
  EXPECT_EQ(cells, expected);
}

TEST(thread_team, wakes_workers_that_sleep) {
  thread_team team(2);
  bool shared = false;
  // On a busy machine the caller may be alone for a while; it must never be alone for ever.
  for (std::int32_t attempt = 0; attempt < 1000 && !shared; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // long enough to fall asleep
    std::vector<std::int32_t> thread_of(2, -1);
    team.run(2, [&](std::int32_t task, std::int32_t thread) {
      thread_of[static_cast<std::size_t>(task)] = thread;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    });
    shared = thread_of[0] != thread_of[1];
  }
  EXPECT_TRUE(shared);
}

TEST(thread_team, teams_of_several_threads_do_not_disturb_each_other) {
  // More threads than processors, all in small operations: nobody may hang or lose a task.
  std::vector<std::jthread> callers;
  std::vector<std::int64_t> sums(4, 0);
  for (std::size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&sums, c] {
      thread_team team(3);
      std::vector<std::int64_t> parts(5, 0);
      for (std::int32_t round = 0; round < 300; ++round) {
        team.run(5, [&](std::int32_t t, std::int32_t) { parts[static_cast<std::size_t>(t)] += t; });
      }
      for (const auto p : parts) sums[c] += p;
    });
  }
  callers.clear();
  for (const auto s : sums) EXPECT_EQ(s, 300 * 10);
}

TEST(thread_team, ends_while_its_workers_sleep_or_spin) {
  for (std::int32_t i = 0; i < 50; ++i) {
    thread_team team(4);
    if (i % 2 == 0) team.run(4, [](std::int32_t, std::int32_t) {});
    if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace vlbatch
