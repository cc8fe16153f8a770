// SPDX-License-Identifier: Apache-2.0
#include "cpu/thread_team.hpp"

#include <chrono>
#include <string>
#include <system_error>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

constexpr std::chrono::microseconds spin_time{50};
constexpr int spins_before_clock = 64;   // pauses between two looks at the clock
constexpr int spins_before_yield = 512;  // pauses of a waiting caller before it offers its processor

}  // namespace

thread_team::thread_team(std::int32_t threads) {
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (std::int32_t t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
  } catch (const std::system_error& e) {
    const std::size_t started = workers_.size() + 1;
    stop();  // the destructor of a half-made object does not run, and the started threads would be waited for
    throw device_error("cpu: thread " + std::to_string(started + 1) + " of " + std::to_string(threads) + " cannot be started: " + e.what());
  }
}

thread_team::~thread_team() { stop(); }

void thread_team::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  workers_.clear();
}

std::int32_t thread_team::claim() noexcept {
  std::uint64_t word = tasks_.load(std::memory_order_acquire);
  while ((word & 0xFFFFFFFFU) < (word >> 32U)) {
    if (tasks_.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return static_cast<std::int32_t>(word & 0xFFFFFFFFU);
    }
  }
  return -1;
}

bool thread_team::wanted() const noexcept {
  // Sequentially consistent, as the store of the tasks and the count of sleepers: either the caller sees that somebody sleeps, or the
  // sleeper sees the tasks.
  const std::uint64_t word = tasks_.load();
  return (word & 0xFFFFFFFFU) < (word >> 32U) || stop_.load();
}

void thread_team::fork_join(std::int32_t tasks, trampoline body, void* context) {
  body_ = body;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  tasks_.store(static_cast<std::uint64_t>(tasks) << 32U);
  if (sleeping_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    if (tasks >= size()) {
      wake_.notify_all();
    } else {
      for (std::int32_t t = 1; t < tasks; ++t) wake_.notify_one();
    }
  }
  std::int32_t own = 0;
  for (std::int32_t t = claim(); t >= 0; t = claim(), ++own) body(context, t, 0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks - own; ++spins) {
    if (spins < spins_before_yield) {
      relax();
    } else {
      std::this_thread::yield();
    }
  }
}

void thread_team::work(std::int32_t thread) {
  while (!stop_.load(std::memory_order_relaxed)) {
    if (const std::int32_t task = claim(); task >= 0) {
      body_(context_, task, thread);
      done_.fetch_add(1, std::memory_order_release);
      continue;
    }
    const auto give_up = std::chrono::steady_clock::now() + spin_time;
    bool found = false;
    do {
      for (int i = 0; i < spins_before_clock && !found; ++i) {
        relax();
        found = wanted();
      }
    } while (!found && std::chrono::steady_clock::now() < give_up);
    if (found) continue;
    std::unique_lock lock(mutex_);
    sleeping_.fetch_add(1);
    wake_.wait(lock, [this] { return wanted(); });
    sleeping_.fetch_sub(1);
  }
}

}  // namespace vlbatch::inline v0
