// SPDX-License-Identifier: Apache-2.0
// Definitions of encoder_cache.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include <algorithm>
#include <utility>

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/vision/encoder_cache.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE encoder_cache::encoder_cache(const encoder_cache_settings& settings, allocator allocate)
    : settings_(settings), allocate_(std::move(allocate)) {}
VLBATCH_INLINE encoder_cache::~encoder_cache() = default;

VLBATCH_INLINE auto encoder_cache::find(std::uint64_t id) noexcept -> entry* {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.get();
}

VLBATCH_INLINE auto encoder_cache::attach(const std::shared_ptr<const pixel_tiles>& pixels, std::int64_t bytes, sharer s) -> entry& {
  entry* e = settings_.reuse ? lookup(*pixels) : nullptr;
  if (e == nullptr) {
    auto made = std::make_unique<entry>();
    made->id = ++last_id_;
    made->pixels = pixels;
    made->bytes = bytes;
    e = made.get();
    entries_.emplace(e->id, std::move(made));
    if (settings_.reuse) by_key_.emplace(pixels->key.low, e->id);
  } else if (e->tiles_started > 0) {
    ++hits_;
  }
  e->sharers.push_back(s);
  e->last_use = ++uses_;
  update_views(*e);
  return *e;
}

VLBATCH_INLINE void encoder_cache::detach(entry& e, const image_view* image) {
  std::erase_if(e.sharers, [&](const sharer& s) { return s.image == image; });
  e.last_use = ++uses_;
  forget_if_useless(e);
}

VLBATCH_INLINE std::int64_t encoder_cache::available_for(const sequence_view& asker, const named_slots& named) const {
  std::int64_t kept = 0;
  for (const auto& [id, e] : entries_) {
    if (e->memory && !droppable(*e, asker, named)) kept += e->bytes;
  }
  return settings_.bytes - kept;
}

VLBATCH_INLINE bool encoder_cache::reserve(entry& e, const sequence_view& asker, const named_slots& named) {
  if (e.memory) return true;
  while (used_ + e.bytes > settings_.bytes) {
    entry* victim = nullptr;
    for (auto& [id, other] : entries_) {
      if (other->memory && droppable(*other, asker, named) && (victim == nullptr || drops_before(*other, *victim))) victim = other.get();
    }
    if (victim == nullptr) return false;
    victim->sharers.empty() ? erase(*victim) : drop(*victim);
  }
  e.memory = allocate_(e.bytes);
  used_ += e.bytes;
  peak_ = std::max(peak_, used_);
  update_views(e);
  return true;
}

VLBATCH_INLINE void encoder_cache::start(entry& e, std::int32_t n) {
  e.tiles_started += n;
  update_views(e);
}

VLBATCH_INLINE void encoder_cache::complete(entry& e) {
  ++e.tiles_ready;
  update_views(e);
  forget_if_useless(e);
}

VLBATCH_INLINE void encoder_cache::mark_failed(entry& e) {
  e.failed = true;
  forget_key(e);
}

VLBATCH_INLINE void encoder_cache::clear_unused() {
  std::vector<entry*> unused;
  for (auto& [id, e] : entries_) {
    if (e->sharers.empty() && e->in_flight() == 0) unused.push_back(e.get());
  }
  for (entry* e : unused) erase(*e);
}

VLBATCH_INLINE auto encoder_cache::lookup(const pixel_tiles& pixels) -> entry* {
  const auto [first, last] = by_key_.equal_range(pixels.key.low);
  for (auto it = first; it != last; ++it) {
    entry* e = find(it->second);
    if (e != nullptr && e->pixels->same_content(pixels)) return e;
  }
  return nullptr;
}

VLBATCH_INLINE bool encoder_cache::droppable(const entry& e, const sequence_view& asker, const named_slots& named) {
  if (e.in_flight() > 0) return false;
  for (const sharer& s : e.sharers) {
    const auto slot = static_cast<std::size_t>(s.sequence->slot);
    if (slot < named.size() && (named[slot] & leaves) != 0) continue;
    if (s.sequence->where != phase::waiting || !outranks(asker, *s.sequence)) return false;
    if (slot < named.size() && named[slot] != 0) return false;
  }
  return true;
}

VLBATCH_INLINE bool encoder_cache::drops_before(const entry& a, const entry& b) {
  if (a.sharers.empty() != b.sharers.empty()) return a.sharers.empty();
  if (a.sharers.empty()) return a.last_use < b.last_use;
  return arrives_before(*oldest(b), *oldest(a));
}

VLBATCH_INLINE const sequence_view* encoder_cache::oldest(const entry& e) {
  const sequence_view* best = e.sharers.front().sequence;
  for (const sharer& s : e.sharers) best = arrives_before(*s.sequence, *best) ? s.sequence : best;
  return best;
}

VLBATCH_INLINE void encoder_cache::drop(entry& e) {
  if (e.memory) used_ -= e.bytes;
  e.memory.reset();
  e.tiles_started = 0;
  e.tiles_ready = 0;
  update_views(e);
}

VLBATCH_INLINE void encoder_cache::forget_if_useless(entry& e) {
  if (!e.sharers.empty() || e.in_flight() > 0) return;
  const bool worth_keeping = settings_.reuse && !e.failed && e.memory && e.tiles_ready == e.pixels->num_tiles;
  if (!worth_keeping) erase(e);
}

VLBATCH_INLINE void encoder_cache::erase(entry& e) {
  if (e.memory) used_ -= e.bytes;
  forget_key(e);
  entries_.erase(e.id);
}

VLBATCH_INLINE void encoder_cache::forget_key(const entry& e) {
  const auto [first, last] = by_key_.equal_range(e.pixels->key.low);
  for (auto it = first; it != last; ++it) {
    if (it->second == e.id) {
      by_key_.erase(it);
      return;
    }
  }
}

VLBATCH_INLINE void encoder_cache::update_views(const entry& e) {
  for (const sharer& s : e.sharers) {
    image_view& v = *s.image;
    v.tiles_started = e.tiles_started;
    v.tiles_ready = e.tiles_ready;
    v.resident = e.memory != nullptr;
    v.state = e.tiles_ready == v.num_tiles ? image_state::ready : e.tiles_started > 0 ? image_state::encoding : image_state::missing;
  }
}

}  // namespace vlbatch::inline v0
