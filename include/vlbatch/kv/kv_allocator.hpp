// SPDX-License-Identifier: Apache-2.0
/// \file
/// The KV allocator concept.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/core/types.hpp"
#include "vlbatch/kv/kv_view.hpp"

namespace vlbatch::inline v0 {

/// What a KV cache holds right now.
struct kv_usage {
  std::int32_t blocks_used = 0;       ///< blocks that sequences hold
  std::int32_t peak_blocks_used = 0;  ///< highest blocks_used so far
  std::int64_t tokens_stored =
      0;  ///< tokens that those blocks were reserved for; blocks_used * block_size - tokens_stored is lost to fragmentation
  std::int32_t sequences = 0;  ///< sequences that hold blocks
  friend bool operator==(const kv_usage&, const kv_usage&) = default;
};

/// What a model needs of a cache, and where its memory comes from.
struct kv_binding {
  kv_shape shape;                                                    ///< what a token occupies
  std::int32_t max_positions = 0;                                    ///< the longest sequence the model takes
  std::function<std::shared_ptr<std::byte>(std::int64_t)> allocate;  ///< zeroed backend memory of so many bytes
};

/// Decides where the keys and values of sequences lie. Bookkeeping is on the host; the storage is the backend's.
///
/// 1. `bind(binding)` is called once, before anything else: takes the storage. \throws invalid_argument if the capacity is less than one
/// block, with both numbers.
/// 2. `reserve(id, tokens)` makes room for the first \p tokens tokens of a sequence; all or nothing; never shrinks. It succeeds whenever
/// `budget()` says that the
///    blocks are there.
/// 3. `release(id)` gives back everything; an unknown id is no error. After everything is released `usage().blocks_used == 0`.
/// 4. `blocks_of(id)` are the blocks that a release would free.
/// 5. `view(ids)` is what a kernel gets: a trivially copyable value, valid until the next call of any member that is not const.
/// Not thread-safe: the engine's thread alone uses it.
template <class A>
concept kv_allocator = std::movable<A> && std::is_trivially_copyable_v<typename A::view_type> &&
    requires(A a, const A ca, seq_id id, std::span<const seq_id> ids, const kv_binding& binding) {
  { A::name() } -> std::convertible_to<std::string_view>;
  a.bind(binding);
  { ca.budget() } -> std::same_as<kv_budget>;
  { ca.usage() } -> std::same_as<kv_usage>;
  { ca.blocks_of(id) } -> std::same_as<std::int32_t>;
  { a.reserve(id, std::int32_t{}) } -> std::same_as<bool>;
  { a.release(id) }
  noexcept;
  { a.view(ids) } -> std::same_as<typename A::view_type>;
};

/// The most tokens of one sequence that \p kv holds when it is empty.
template <kv_allocator Kv>
[[nodiscard]] std::int64_t most_tokens_per_sequence(const Kv& kv) {
  if constexpr (requires { kv.max_tokens_per_sequence(); }) return kv.max_tokens_per_sequence();
  const kv_budget b = kv.budget();
  return static_cast<std::int64_t>(b.total_blocks) * b.block_size;
}

}  // namespace vlbatch::inline v0
