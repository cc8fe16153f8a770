// SPDX-License-Identifier: Apache-2.0
/// \file
/// Vocabulary types shared by every part of the library.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>

namespace vlbatch::inline v0 {

/// Identity of a request for its whole life. Unique within one engine, increasing in the order of submission.
enum class seq_id : std::uint64_t {};

/// Dense index of a live sequence, stable while it lives and reused afterwards: a policy's own per-sequence state is an array indexed by
/// it.
using seq_slot = std::int32_t;

/// Who sent a request (fair schedulers account by it). 0 when nobody cares.
enum class client_id : std::uint32_t {};

/// Conversation a request belongs to. 0 when there is none.
enum class session_id : std::uint64_t {};

/// All durations are whole nanoseconds: equal inputs of a simulated run give byte-equal reports.
using duration = std::chrono::nanoseconds;

/// A point on the clock that the engine was given (wall or virtual). Only differences mean anything.
using time_point = std::chrono::time_point<std::chrono::steady_clock, duration>;

/// The time that has not come: "not yet", "never".
inline constexpr time_point never = time_point::max();

/// Seconds as a double, for reports.
[[nodiscard]] constexpr double to_seconds(duration d) noexcept { return static_cast<double>(d.count()) * 1e-9; }

/// Number type of stored tensors and KV entries.
enum class dtype : std::uint8_t { f32, f16, bf16, i8 };

/// Bytes of one element of \p t.
[[nodiscard]] constexpr std::int32_t size_of(dtype t) noexcept {
  switch (t) {
    case dtype::f32:
      return 4;
    case dtype::f16:
    case dtype::bf16:
      return 2;
    case dtype::i8:
      return 1;
  }
  return 0;
}

/// Spelling used in files, options and error texts.
[[nodiscard]] constexpr const char* name_of(dtype t) noexcept {
  switch (t) {
    case dtype::f32:
      return "f32";
    case dtype::f16:
      return "f16";
    case dtype::bf16:
      return "bf16";
    case dtype::i8:
      return "i8";
  }
  return "?";
}

/// ceil(a / b) for a >= 0, b > 0.
template <class Int>
[[nodiscard]] constexpr Int ceil_div(Int a, Int b) noexcept {
  return static_cast<Int>((a + b - 1) / b);
}

/// Literals for byte counts: `256_MiB`.
inline namespace literals {
/// Kibibytes.
[[nodiscard]] constexpr std::int64_t operator""_KiB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n) * 1024; }
/// Mebibytes.
[[nodiscard]] constexpr std::int64_t operator""_MiB(unsigned long long n) noexcept { return static_cast<std::int64_t>(n) * 1024 * 1024; }
/// Gibibytes.
[[nodiscard]] constexpr std::int64_t operator""_GiB(unsigned long long n) noexcept {
  return static_cast<std::int64_t>(n) * 1024 * 1024 * 1024;
}
}  // namespace literals

}  // namespace vlbatch::inline v0
