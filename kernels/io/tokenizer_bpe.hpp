// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding: the bytes of a piece become token ids by merging neighbours, the merge learnt first going first.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace vlbatch::inline v0::tokenizer_detail {

/// Pair of token ids -> rank and merged id. Open addressing: a lookup is the inner loop of encoding.
class merge_table {
 public:
  struct merge {
    std::int32_t rank;  ///< smaller goes first
    std::int32_t id;    ///< of the merged token
  };

  /// Makes room for \p n pairs.
  void reserve(std::size_t n);
  /// Adds or replaces.
  void insert(std::int32_t left, std::int32_t right, merge m);
  /// Null if the pair does not merge.
  [[nodiscard]] const merge* find(std::int32_t left, std::int32_t right) const noexcept;

 private:
  struct slot {
    std::uint64_t key;
    merge value;
  };
  static constexpr std::uint64_t free_key = ~std::uint64_t{0};
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) noexcept {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U) | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t home(std::uint64_t key) const noexcept {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }

  std::vector<slot> slots_ = std::vector<slot>(2, slot{free_key, {}});
  unsigned shift_ = 63;
};

/// The model part of a tokenizer. Immutable once filled; thread-safe.
struct bpe_model {
  std::array<std::int32_t, 256> byte_ids{};  ///< token of each single byte, -1: none
  merge_table merges;
  std::vector<bool> special;                                 ///< by id: may not come out of plain text
  bool special_can_merge = false;                            ///< some merge makes a special token
  std::int32_t unknown = -1;                                 ///< token for bytes without one, -1: such bytes are dropped
  bool fuse_unknown = false;                                 ///< neighbouring unknown bytes share one token
  bool whole_first = false;                                  ///< `ignore_merges`: a piece that is a token is that token
  std::unordered_map<std::string_view, std::int32_t> whole;  ///< bytes -> id, filled if whole_first

  /// Memory that encoding needs; reused from piece to piece.
  struct scratch {
    struct symbol {
      std::int32_t id;
      std::int32_t rank;  // of the merge with the next symbol
      std::int32_t next;  // index, -1: none
      std::int32_t previous;
    };
    struct candidate {
      std::int32_t rank;
      std::int32_t at;
    };
    std::vector<symbol> symbols;
    std::vector<candidate> heap;
  };

  /// Appends the ids of \p bytes. With \p plain no special token is made.
  void encode(std::string_view bytes, bool plain, scratch& s, std::vector<std::int32_t>& out) const;

 private:
  static constexpr std::int32_t no_rank = 0x7FFFFFFF;
  [[nodiscard]] const merge_table::merge* mergeable(std::int32_t left, std::int32_t right, bool plain) const;
  void start(std::string_view bytes, scratch& s) const;
  void merge_by_scan(bool plain, scratch& s) const;
  void merge_by_heap(bool plain, scratch& s) const;
};

}  // namespace vlbatch::inline v0::tokenizer_detail
