// SPDX-License-Identifier: Apache-2.0
#include "cpu/memory.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "vlbatch/core/error.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace vlbatch::inline v0 {
namespace {

constexpr std::int64_t alignment = 64;
constexpr std::int64_t huge_page = std::int64_t{2} << 20;

[[noreturn]] void refuse(std::int64_t bytes) { throw device_error("cpu: cannot allocate " + std::to_string(bytes) + " bytes"); }

[[nodiscard]] std::shared_ptr<std::byte> allocate_small(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(std::max(bytes, std::int64_t{1}));
  constexpr std::align_val_t align{static_cast<std::size_t>(alignment)};
  void* p = ::operator new(size, align, std::nothrow);
  if (p == nullptr) refuse(bytes);
  std::memset(p, 0, size);
  return {static_cast<std::byte*>(p), [](std::byte* q) { ::operator delete(q, align); }};
}

}  // namespace

std::shared_ptr<std::byte> allocate_zeroed(std::int64_t bytes) {
  if (bytes < 0 || bytes > std::numeric_limits<std::int64_t>::max() - 2 * huge_page) refuse(bytes);
#if defined(__linux__)
  if (bytes >= huge_page) {
    // A mapping of its own, one huge page longer than asked for, so that the block can begin at a huge page. Zero pages cost nothing
    // until they are written: a large KV cache only takes what it uses.
    const auto length = static_cast<std::size_t>((bytes + 2 * huge_page - 1) / huge_page * huge_page);
    void* base = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) refuse(bytes);
    auto* aligned = base;
    auto space = length;
    std::align(static_cast<std::size_t>(huge_page), static_cast<std::size_t>(bytes), aligned, space);
    // Only advice: without huge pages everything works, slower.
    static_cast<void>(::madvise(aligned, space / huge_page * huge_page, MADV_HUGEPAGE));
    return {static_cast<std::byte*>(aligned), [base, length](std::byte*) { ::munmap(base, length); }};
  }
#endif
  return allocate_small(bytes);
}

void scratch_memory::grow(std::int64_t bytes) {
  const auto wanted = std::max(bytes, capacity_ + capacity_ / 2);
  data_.reset();
  capacity_ = 0;
  data_ = allocate_zeroed(wanted);
  capacity_ = wanted;
}

}  // namespace vlbatch::inline v0
