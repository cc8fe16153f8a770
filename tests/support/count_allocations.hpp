// SPDX-License-Identifier: Apache-2.0
// Counts allocations of the whole program. Include it in exactly one file of a program: it replaces the global operator new.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace vlbatch::testing {
inline std::atomic<std::int64_t> allocations_so_far{0};
}  // namespace vlbatch::testing

// Not inlined: the compiler would take malloc and delete, or new and free, for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t n) {
  ++vlbatch::testing::allocations_so_far;
  if (void* p = std::malloc(n == 0 ? 1 : n)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t n) { return ::operator new(n); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  ++vlbatch::testing::allocations_so_far;
  const auto alignment = static_cast<std::size_t>(a);
  if (void* p = std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a) { return ::operator new(n, a); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
// The forms that do not throw call the ones that do, in libstdc++; the address sanitizer has its own, which would not match.
[[gnu::noinline]] void* operator new(std::size_t n, const std::nothrow_t& /*tag*/) noexcept {
  ++vlbatch::testing::allocations_so_far;
  return std::malloc(n == 0 ? 1 : n);
}
[[gnu::noinline]] void* operator new[](std::size_t n, const std::nothrow_t& tag) noexcept { return ::operator new(n, tag); }
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t& /*tag*/) noexcept {
  ++vlbatch::testing::allocations_so_far;
  const auto alignment = static_cast<std::size_t>(a);
  return std::aligned_alloc(alignment, (n + alignment - 1) / alignment * alignment);
}
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t& tag) noexcept {
  return ::operator new(n, a, tag);
}
