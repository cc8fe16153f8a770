// SPDX-License-Identifier: Apache-2.0
// Who shares an embedding, who loses one, and where the bytes go.
#include "vlbatch/vision/encoder_cache.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

namespace vlbatch {
namespace {

std::shared_ptr<const pixel_tiles> picture(std::uint64_t key, std::int32_t tiles = 1, std::uint8_t value = 0) {
  auto p = std::make_shared<pixel_tiles>();
  p->num_tiles = tiles;
  p->height = p->width = 1;
  p->values.assign(static_cast<std::size_t>(tiles) * 3, value);
  p->key = {key, key};
  return p;
}

class cache_of_sequences : public ::testing::Test {
 protected:
  struct sequence {
    sequence_view view;
    std::deque<image_view> images;
  };

  encoder_cache make(std::int64_t bytes, bool reuse = true) {
    return encoder_cache({.bytes = bytes, .reuse = reuse}, [this](std::int64_t n) {
      ++allocations;
      live += n;
      return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(n)], [this, n](const std::byte* p) {
        live -= n;
        delete[] p;
      });
    });
  }
  sequence& add(phase where = phase::waiting) {
    sequence& s = all.emplace_back();
    s.view.id = seq_id{all.size()};
    s.view.slot = static_cast<seq_slot>(all.size() - 1);
    s.view.arrival = time_point{} + duration(all.size());
    s.view.where = where;
    return s;
  }
  // Attaches a picture of 10 bytes a tile.
  encoder_cache::entry& use(encoder_cache& c, sequence& s, const std::shared_ptr<const pixel_tiles>& p) {
    image_view& v = s.images.emplace_back();
    v.num_tiles = p->num_tiles;
    v.bytes = 10LL * p->num_tiles;
    return c.attach(p, v.bytes, {&s.view, &v});
  }
  static void encode(encoder_cache& c, encoder_cache::entry& e, const sequence& s) {
    ASSERT_TRUE(c.reserve(e, s.view, {}));
    c.start(e, e.pixels->num_tiles);
    const std::int32_t tiles = e.pixels->num_tiles;
    for (std::int32_t t = 0; t < tiles; ++t) c.complete(e);
  }

  std::deque<sequence> all;
  std::int64_t live = 0;
  int allocations = 0;
};

TEST_F(cache_of_sequences, a_picture_goes_through_its_states_in_the_eyes_of_all_sharers) {
  encoder_cache c = make(100);
  sequence& a = add();
  sequence& b = add();
  const auto p = picture(1, 3);
  encoder_cache::entry& e = use(c, a, p);
  EXPECT_EQ(a.images[0].state, image_state::missing);
  EXPECT_FALSE(a.images[0].resident);
  ASSERT_TRUE(c.reserve(e, a.view, {}));
  EXPECT_TRUE(a.images[0].resident);
  EXPECT_EQ(c.used_bytes(), 30);
  EXPECT_EQ(a.images[0].state, image_state::missing) << "no tile given to a lane yet";
  c.start(e, 2);
  EXPECT_EQ(a.images[0].state, image_state::encoding);
  EXPECT_EQ(a.images[0].tiles_started, 2);
  EXPECT_EQ(e.in_flight(), 2);
  c.complete(e);
  EXPECT_EQ(use(c, b, picture(1, 3)).id, e.id) << "equal content, another object";
  EXPECT_EQ(b.images[0].tiles_started, 2);
  EXPECT_EQ(b.images[0].tiles_ready, 1);
  EXPECT_EQ(b.images[0].state, image_state::encoding);
  EXPECT_TRUE(b.images[0].resident);
  EXPECT_EQ(c.hits(), 1);
  c.complete(e);
  c.start(e, 1);
  c.complete(e);
  for (const sequence* s : {&a, &b}) {
    EXPECT_EQ(s->images[0].state, image_state::ready);
    EXPECT_EQ(s->images[0].tiles_ready, 3);
  }
  EXPECT_TRUE(c.reserve(e, a.view, {})) << "it is there already";
  EXPECT_EQ(allocations, 1);
  EXPECT_EQ(c.peak_bytes(), 30);
}

TEST_F(cache_of_sequences, the_content_decides_not_the_key) {
  encoder_cache c = make(100);
  sequence& a = add();
  const std::uint64_t first = use(c, a, picture(1, 1, 7)).id;
  EXPECT_NE(use(c, a, picture(1, 1, 8)).id, first) << "equal keys, other pixels";
  EXPECT_NE(use(c, a, picture(1, 2, 7)).id, first) << "more tiles";
  EXPECT_NE(use(c, a, picture(2, 1, 7)).id, first) << "equal pixels, another key (other options of preprocessing)";
  auto other_table = std::make_shared<pixel_tiles>(*picture(1, 1, 7));
  other_table->normalised[1][3] = 0.5F;
  EXPECT_NE(use(c, a, other_table).id, first);
  auto other_high = std::make_shared<pixel_tiles>(*picture(1, 1, 7));
  other_high->key.high = 99;
  EXPECT_NE(use(c, a, other_high).id, first) << "half a key is no key";
  EXPECT_EQ(use(c, a, picture(1, 1, 7)).id, first);
  EXPECT_EQ(use(c, a, picture(1, 1, 8)).id, first + 1) << "found behind one with the same key";
}

TEST_F(cache_of_sequences, without_reuse_every_use_is_encoded_on_its_own_and_nothing_is_kept) {
  encoder_cache c = make(100, false);
  sequence& a = add();
  sequence& b = add();
  const auto p = picture(1);
  encoder_cache::entry& e = use(c, a, p);
  const std::uint64_t id = e.id;
  encode(c, e, a);
  EXPECT_NE(use(c, b, p).id, id);
  EXPECT_EQ(b.images[0].state, image_state::missing);
  c.detach(e, &a.images[0]);
  EXPECT_EQ(c.find(id), nullptr);
  EXPECT_EQ(c.used_bytes(), 0);
  EXPECT_EQ(c.hits(), 0);
}

TEST_F(cache_of_sequences, what_nobody_uses_is_kept_and_found_again) {
  encoder_cache c = make(100);
  sequence& a = add();
  encoder_cache::entry& e = use(c, a, picture(1));
  encode(c, e, a);
  c.detach(e, &a.images[0]);
  EXPECT_EQ(c.used_bytes(), 10);
  sequence& b = add();
  EXPECT_EQ(use(c, b, picture(1)).id, e.id);
  EXPECT_EQ(b.images[0].state, image_state::ready) << "nothing to encode";
  EXPECT_EQ(c.hits(), 1);
}

TEST_F(cache_of_sequences, what_was_never_encoded_is_not_worth_keeping) {
  encoder_cache c = make(100);
  sequence& a = add();
  encoder_cache::entry& e = use(c, a, picture(1, 2));
  const std::uint64_t id = e.id;
  c.detach(e, &a.images[0]);
  EXPECT_EQ(c.find(id), nullptr);
  encoder_cache::entry& half = use(c, a, picture(1, 2));
  EXPECT_NE(half.id, id) << "ids are never reused";
  const std::uint64_t half_id = half.id;
  ASSERT_TRUE(c.reserve(half, a.view, {}));
  c.start(half, 1);
  c.complete(half);
  c.detach(half, &a.images[1]);
  EXPECT_EQ(c.find(half_id), nullptr) << "half encoded and nobody to go on";
  EXPECT_EQ(c.used_bytes(), 0);
  EXPECT_EQ(live, 0);
}

TEST_F(cache_of_sequences, tiles_in_flight_survive_their_last_user) {
  encoder_cache c = make(100);
  sequence& a = add();
  encoder_cache::entry& e = use(c, a, picture(1, 2));
  const std::uint64_t id = e.id;
  ASSERT_TRUE(c.reserve(e, a.view, {}));
  c.start(e, 2);
  const std::shared_ptr<std::byte> lanes_own = e.memory;
  c.detach(e, &a.images[0]);
  c.complete(e);
  ASSERT_NE(c.find(id), nullptr);
  c.clear_unused();
  ASSERT_NE(c.find(id), nullptr) << "a lane still writes it";
  EXPECT_EQ(c.used_bytes(), 20);
  c.complete(e);
  ASSERT_NE(c.find(id), nullptr) << "whole now, and kept for reuse";
  c.clear_unused();
  EXPECT_EQ(c.find(id), nullptr);
  EXPECT_EQ(c.used_bytes(), 0);
  EXPECT_EQ(live, 20) << "whoever holds the memory keeps it alive";
}

TEST_F(cache_of_sequences, a_failed_entry_is_never_shared_again) {
  encoder_cache c = make(100);
  sequence& a = add();
  sequence& b = add();
  encoder_cache::entry& e = use(c, a, picture(1, 2));
  const std::uint64_t id = e.id;
  ASSERT_TRUE(c.reserve(e, a.view, {}));
  c.start(e, 2);
  c.complete(e);
  c.mark_failed(e);
  EXPECT_NE(use(c, b, picture(1, 2)).id, id);
  c.detach(e, &a.images[0]);
  ASSERT_NE(c.find(id), nullptr) << "one tile is under way";
  c.complete(e);
  EXPECT_EQ(c.find(id), nullptr);
  EXPECT_EQ(use(c, add(), picture(1, 2)).sharers.size(), 2U) << "the fresh entry can still be found";
}

TEST_F(cache_of_sequences, unused_entries_go_first_the_least_recently_used_before_others) {
  encoder_cache c = make(40);
  sequence& waits = add();
  sequence& a = add();
  encoder_cache::entry& young = use(c, add(), picture(9));
  encode(c, young, all.back());
  std::vector<std::uint64_t> ids;
  std::vector<std::weak_ptr<const pixel_tiles>> pixels;
  for (std::uint64_t k = 1; k <= 3; ++k) {
    auto p = picture(k);
    pixels.emplace_back(p);
    encoder_cache::entry& e = use(c, a, p);
    ids.push_back(e.id);
    encode(c, e, a);
  }
  c.detach(*c.find(ids[1]), &a.images[1]);
  c.detach(*c.find(ids[0]), &a.images[0]);
  c.detach(*c.find(ids[2]), &a.images[2]);
  EXPECT_EQ(c.used_bytes(), 40);
  EXPECT_EQ(c.available_for(waits.view, {}), 40) << "the younger one's too";
  encoder_cache::entry& e = use(c, waits, picture(4));
  ASSERT_TRUE(c.reserve(e, waits.view, {}));
  EXPECT_EQ(c.find(ids[1]), nullptr) << "detached first";
  EXPECT_TRUE(pixels[1].expired()) << "nothing of it is left, its pixels neither";
  EXPECT_NE(c.find(ids[0]), nullptr);
  encoder_cache::entry& wide = use(c, waits, picture(5, 3));
  c.start(e, 1);
  ASSERT_TRUE(c.reserve(wide, waits.view, {}));
  EXPECT_EQ(c.find(ids[0]), nullptr);
  EXPECT_EQ(c.find(ids[2]), nullptr);
  EXPECT_EQ(all[2].images[0].state, image_state::missing) << "then those that wait with a weaker claim";
  EXPECT_FALSE(all[2].images[0].resident);
  EXPECT_NE(c.find(young.id), nullptr) << "but they are still asked for";
  EXPECT_EQ(c.used_bytes(), 40);
}

TEST_F(cache_of_sequences, of_waiting_ones_the_youngest_loses_first) {
  encoder_cache c = make(30);
  sequence& oldest = add();
  std::vector<encoder_cache::entry*> entries;
  for (int i = 0; i < 3; ++i) {
    sequence& s = add();
    entries.push_back(&use(c, s, picture(static_cast<std::uint64_t>(10 + i))));
    encode(c, *entries.back(), s);
  }
  ASSERT_TRUE(c.reserve(use(c, oldest, picture(1)), oldest.view, {}));
  EXPECT_EQ(entries[2]->memory, nullptr);
  EXPECT_NE(entries[1]->memory, nullptr);
  EXPECT_NE(entries[0]->memory, nullptr);
}

TEST_F(cache_of_sequences, an_entry_counts_as_its_oldest_sharer) {
  encoder_cache c = make(20);
  sequence& first = add();
  sequence& second = add();
  sequence& third = add();
  sequence& fourth = add();
  encoder_cache::entry& shared = use(c, second, picture(1));
  use(c, fourth, picture(1));
  encode(c, shared, second);
  encoder_cache::entry& own = use(c, third, picture(2));
  encode(c, own, third);
  EXPECT_EQ(c.available_for(third.view, {}), 0) << "its own is needed, and the other is shared by an older one";
  EXPECT_EQ(c.available_for(second.view, {}), 10);
  EXPECT_EQ(c.available_for(first.view, {}), 20);
  ASSERT_TRUE(c.reserve(use(c, first, picture(3)), first.view, {}));
  EXPECT_EQ(own.memory, nullptr) << "its oldest sharer is younger";
  EXPECT_NE(shared.memory, nullptr);
}

TEST_F(cache_of_sequences, stronger_claims_named_ones_and_running_ones_keep_what_they_have) {
  encoder_cache c = make(20);
  sequence& old = add();
  sequence& young = add();
  encoder_cache::entry& e = use(c, old, picture(1));
  encode(c, e, old);
  encoder_cache::entry& wanted = use(c, young, picture(2, 2));
  EXPECT_EQ(c.available_for(young.view, {}), 10);
  EXPECT_FALSE(c.reserve(wanted, young.view, {})) << "an older one waits for it";
  EXPECT_NE(e.memory, nullptr);
  EXPECT_EQ(wanted.memory, nullptr);
  young.view.where = phase::running;
  EXPECT_EQ(c.available_for(young.view, {}), 20) << "whoever runs outranks whoever waits";
  EXPECT_EQ(c.available_for(young.view, {1, 0}), 10) << "unless the plan names it";
  EXPECT_FALSE(c.reserve(wanted, young.view, {1, 0}));
  old.view.where = phase::running;
  EXPECT_EQ(c.available_for(young.view, {}), 10);
  EXPECT_FALSE(c.reserve(wanted, young.view, {})) << "running ones never lose an embedding";
  old.view.where = phase::waiting;
  EXPECT_TRUE(c.reserve(wanted, young.view, {}));
  EXPECT_EQ(old.images[0].state, image_state::missing);
  EXPECT_EQ(c.used_bytes(), 20);
}

TEST_F(cache_of_sequences, an_entry_in_flight_is_not_dropped) {
  encoder_cache c = make(10);
  sequence& old = add();
  sequence& young = add();
  encoder_cache::entry& e = use(c, young, picture(1));
  ASSERT_TRUE(c.reserve(e, young.view, {}));
  c.start(e, 1);
  EXPECT_EQ(c.available_for(old.view, {}), 0);
  EXPECT_FALSE(c.reserve(use(c, old, picture(2)), old.view, {}));
  c.complete(e);
  EXPECT_EQ(c.available_for(old.view, {}), 10);
}

TEST_F(cache_of_sequences, a_dropped_entry_is_encoded_again) {
  encoder_cache c = make(10);
  sequence& old = add();
  sequence& young = add();
  encoder_cache::entry& e = use(c, young, picture(1));
  encode(c, e, young);
  encoder_cache::entry& first = use(c, old, picture(2));
  encode(c, first, old);
  EXPECT_EQ(young.images[0].tiles_started, 0);
  EXPECT_FALSE(c.reserve(e, young.view, {}));
  c.detach(first, &old.images[0]);
  encode(c, e, young);
  EXPECT_EQ(young.images[0].state, image_state::ready);
  EXPECT_EQ(live, 10);
}

// Any order of operations against what must always hold.
TEST_F(cache_of_sequences, random_operations_keep_the_account) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    all.clear();
    live = 0;
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    {
      encoder_cache c = make(100, seed % 4 != 0);
      struct held {
        sequence* who;
        image_view* image;
        std::uint64_t entry;
      };
      std::vector<held> uses;
      std::set<std::uint64_t> seen;
      const auto check = [&] {
        std::int64_t resident = 0;
        for (const std::uint64_t id : seen) {
          const encoder_cache::entry* e = c.find(id);
          if (e == nullptr) continue;
          resident += e->memory ? e->bytes : 0;
          ASSERT_TRUE(e->memory || e->tiles_started == 0);
          ASSERT_TRUE(e->memory || !e->sharers.empty()) << "an entry without memory and users is of no use";
        }
        ASSERT_EQ(resident, c.used_bytes());
        ASSERT_LE(c.used_bytes(), 100);
        ASSERT_EQ(live, c.used_bytes());
        for (const held& h : uses) {
          const encoder_cache::entry* e = c.find(h.entry);
          ASSERT_NE(e, nullptr);
          ASSERT_EQ(h.image->tiles_ready, e->tiles_ready);
          ASSERT_EQ(h.image->tiles_started, e->tiles_started);
          ASSERT_EQ(h.image->resident, e->memory != nullptr);
          ASSERT_EQ(h.image->state == image_state::ready, e->tiles_ready == h.image->num_tiles);
        }
      };
      for (int i = 0; i < 12; ++i) add();
      for (int step = 0; step < 600; ++step) {
        const std::size_t what = below(6);
        if (what == 0 || uses.empty()) {
          sequence& s = all[below(all.size())];
          const encoder_cache::entry& e = use(c, s, picture(below(8), 1 + static_cast<std::int32_t>(below(8) % 3)));
          uses.push_back({&s, &s.images.back(), e.id});
          seen.insert(e.id);
        } else if (what == 1) {
          const std::size_t k = below(uses.size());
          c.detach(*c.find(uses[k].entry), uses[k].image);
          uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(k));
        } else if (what == 2) {
          sequence& s = all[below(all.size())];
          s.view.where = s.view.where == phase::running ? phase::waiting : phase::running;
        } else {
          const held h = uses[below(uses.size())];
          encoder_cache::entry& e = *c.find(h.entry);
          if (!e.memory) {
            std::vector<std::uint64_t> kept;  // what a running sequence uses
            for (const held& u : uses)
              if (u.who->view.where == phase::running && c.find(u.entry)->memory) kept.push_back(u.entry);
            if (e.bytes <= c.available_for(h.who->view, {})) {
              ASSERT_TRUE(c.reserve(e, h.who->view, {})) << "what is said to be available is";
            }
            for (const std::uint64_t id : kept) ASSERT_NE(c.find(id)->memory, nullptr);
          } else if (e.tiles_started < e.pixels->num_tiles && what == 3) {
            c.start(e, 1);
          } else if (e.in_flight() > 0) {
            c.complete(e);
          }
        }
        check();
        if (HasFatalFailure()) return;
      }
      for (const std::uint64_t id : seen)
        while (c.find(id) != nullptr && c.find(id)->in_flight() > 0) c.complete(*c.find(id));
      for (const held& u : uses) c.detach(*c.find(u.entry), u.image);
      c.clear_unused();
      EXPECT_EQ(c.used_bytes(), 0);
      for (const std::uint64_t id : seen) EXPECT_EQ(c.find(id), nullptr);
    }
    EXPECT_EQ(live, 0) << "seed " << seed;
  }
}

TEST(outranks, running_before_waiting_then_arrival_then_id) {
  sequence_view a;
  a.id = seq_id{1};
  a.arrival = time_point{} + duration(5);
  sequence_view b = a;
  b.id = seq_id{2};
  EXPECT_TRUE(outranks(a, b));
  EXPECT_FALSE(outranks(b, a));
  EXPECT_FALSE(outranks(a, a));
  b.arrival -= duration(1);
  EXPECT_TRUE(outranks(b, a));
  a.where = phase::running;
  EXPECT_TRUE(outranks(a, b));
  b.where = phase::running;
  EXPECT_TRUE(outranks(b, a));
}

}  // namespace
}  // namespace vlbatch
