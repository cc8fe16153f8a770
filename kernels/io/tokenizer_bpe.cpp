// SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer_bpe.hpp"

#include <algorithm>

namespace vlbatch::inline v0::tokenizer_detail {

void merge_table::reserve(std::size_t n) {
  std::size_t size = 2;
  unsigned bits = 1;
  while (size < 2 * n) {
    size *= 2;
    ++bits;
  }
  slots_.assign(size, slot{free_key, {}});
  shift_ = 64 - bits;
}

void merge_table::insert(std::int32_t left, std::int32_t right, merge m) {
  const std::uint64_t key = key_of(left, right);
  std::size_t i = home(key);
  while (slots_[i].key != free_key && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = {key, m};
}

const merge_table::merge* merge_table::find(std::int32_t left, std::int32_t right) const noexcept {
  const std::uint64_t key = key_of(left, right);
  for (std::size_t i = home(key);; i = (i + 1) & (slots_.size() - 1)) {
    if (slots_[i].key == key) return &slots_[i].value;
    if (slots_[i].key == free_key) return nullptr;
  }
}

const merge_table::merge* bpe_model::mergeable(std::int32_t left, std::int32_t right, bool plain) const {
  const merge_table::merge* m = merges.find(left, right);
  if (m != nullptr && plain && special_can_merge && special[static_cast<std::size_t>(m->id)]) return nullptr;
  return m;
}

// One symbol a byte.
void bpe_model::start(std::string_view bytes, scratch& s) const {
  s.symbols.clear();
  bool after_unknown = false;
  for (const char c : bytes) {
    std::int32_t id = byte_ids[static_cast<unsigned char>(c)];
    const bool known = id >= 0;
    if (!known) {
      if (unknown < 0 || (after_unknown && fuse_unknown)) continue;
      id = unknown;
    }
    after_unknown = !known;
    s.symbols.push_back({id, no_rank, -1, -1});
  }
}

// For short pieces, which nearly all are: find the smallest rank, merge there, close the gap.
void bpe_model::merge_by_scan(bool plain, scratch& s) const {
  auto& y = s.symbols;
  const auto rank_at = [&](std::size_t i) {
    if (i + 1 >= y.size()) return no_rank;
    const merge_table::merge* m = mergeable(y[i].id, y[i + 1].id, plain);
    return m == nullptr ? no_rank : m->rank;
  };
  for (std::size_t i = 0; i < y.size(); ++i) y[i].rank = rank_at(i);
  while (y.size() > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < y.size(); ++i) {
      if (y[i].rank < y[best].rank) best = i;
    }
    if (y[best].rank == no_rank) return;
    y[best].id = mergeable(y[best].id, y[best + 1].id, plain)->id;
    y.erase(y.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    y[best].rank = rank_at(best);
    if (best > 0) y[best - 1].rank = rank_at(best - 1);
  }
}

// For long pieces: the same choice of merges in n log n steps. An entry of the heap is out of date unless its rank is still the one of its
// place.
void bpe_model::merge_by_heap(bool plain, scratch& s) const {
  auto& y = s.symbols;
  auto& heap = s.heap;
  heap.clear();
  const auto later = [](const scratch::candidate& a, const scratch::candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto at = [&](std::int32_t i) -> scratch::symbol& { return y[static_cast<std::size_t>(i)]; };
  const auto consider = [&](std::int32_t i) {
    scratch::symbol& left = at(i);
    left.rank = no_rank;
    if (left.next < 0) return;
    if (const merge_table::merge* m = mergeable(left.id, at(left.next).id, plain)) {
      left.rank = m->rank;
      heap.push_back({m->rank, i});
      std::push_heap(heap.begin(), heap.end(), later);
    }
  };
  const auto n = static_cast<std::int32_t>(y.size());
  for (std::int32_t i = 0; i < n; ++i) {
    at(i).previous = i - 1;
    at(i).next = i + 1 < n ? i + 1 : -1;
  }
  for (std::int32_t i = 0; i < n; ++i) consider(i);
  while (!heap.empty()) {
    const scratch::candidate top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    scratch::symbol& left = at(top.at);
    if (left.rank != top.rank) continue;
    scratch::symbol& right = at(left.next);
    left.id = mergeable(left.id, right.id, plain)->id;
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = top.at;
    right.rank = no_rank;
    right.id = -1;
    consider(top.at);
    if (left.previous >= 0) consider(left.previous);
  }
  y.erase(std::remove_if(y.begin(), y.end(), [](const scratch::symbol& x) { return x.id < 0; }), y.end());
}

void bpe_model::encode(std::string_view bytes, bool plain, scratch& s, std::vector<std::int32_t>& out) const {
  if (whole_first) {
    const auto it = whole.find(bytes);
    if (it != whole.end() && !(plain && special[static_cast<std::size_t>(it->second)])) {
      out.push_back(it->second);
      return;
    }
  }
  constexpr std::size_t longest_scan = 64;
  start(bytes, s);
  if (s.symbols.size() <= longest_scan) {
    merge_by_scan(plain, s);
  } else {
    merge_by_heap(plain, s);
  }
  for (const scratch::symbol& x : s.symbols) out.push_back(x.id);
}

}  // namespace vlbatch::inline v0::tokenizer_detail
