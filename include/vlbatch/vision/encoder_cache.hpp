// SPDX-License-Identifier: Apache-2.0
/// \file
/// Byte-budgeted, reference-counted store of image embeddings.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "vlbatch/core/prepared_request.hpp"
#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/core/sequence_table.hpp"

namespace vlbatch::inline v0 {

/// Settings of the encoder cache.
struct encoder_cache_settings {
  std::int64_t bytes = 256_MiB;  ///< capacity
  bool reuse = true;  ///< false: every use of a picture is encoded on its own, nothing is kept (to compare strategies by batching alone)
  friend bool operator==(const encoder_cache_settings&, const encoder_cache_settings&) = default;
};

/// Embeddings of the images of live sequences, and of images that may be asked for again.
///
/// An entry is one picture (128-bit key, verified by comparison); sequences that use it are its sharers, and their `image_view`s are kept
/// up to date here and nowhere else. Memory of an entry is reserved when its first tile is given to a lane. When there is no room, entries
/// may be dropped and encoded again later: first those without sharers, least recently used first, then those whose sharers all wait and
/// have a weaker claim than the sequence that asks (`outranks`). A running sequence never loses an embedding, and the oldest one always
/// gets its turn, so that a small cache costs time and never an answer. Not thread-safe: the engine's thread alone uses it. Memory given to
/// a lane is shared with it and outlives the entry if need be.
class encoder_cache {
 public:
  /// Source of backend memory: zeroed bytes.
  using allocator = std::function<std::shared_ptr<std::byte>(std::int64_t)>;
  /// Which sequences the current plan names, by slot: their entries stay.
  using named_slots = std::vector<char>;
  /// Flag of a slot whose sequence the plan ends: it holds nothing any more.
  static constexpr char leaves = 8;

  /// A sequence's use of an entry.
  struct sharer {
    const sequence_view* sequence = nullptr;  ///< whose
    image_view* image = nullptr;              ///< its view of the image
  };
  /// One picture.
  struct entry {
    std::uint64_t id = 0;                       ///< never reused
    std::shared_ptr<const pixel_tiles> pixels;  ///< content
    std::shared_ptr<std::byte> memory;          ///< `[num_tiles * tokens_per_tile, hidden]` f32; null while not resident
    std::int64_t bytes = 0;                     ///< size of memory
    std::int32_t tiles_started = 0;             ///< leading tiles given to a lane
    std::int32_t tiles_ready = 0;               ///< leading tiles done
    std::uint64_t last_use = 0;                 ///< for the order of dropping
    bool failed = false;                        ///< a lane failed on it
    std::vector<sharer> sharers;                ///< sequences that still need it
    /// Tiles that a lane works on.
    [[nodiscard]] std::int32_t in_flight() const noexcept { return tiles_started - tiles_ready; }
  };

  encoder_cache(const encoder_cache&) = delete;
  encoder_cache& operator=(const encoder_cache&) = delete;
  ~encoder_cache();
  /// The allocator is called once for each picture that becomes resident.
  encoder_cache(const encoder_cache_settings& settings, allocator allocate);

  /// Settings as given.
  [[nodiscard]] const encoder_cache_settings& settings() const noexcept { return settings_; }
  /// Bytes of resident entries.
  [[nodiscard]] std::int64_t used_bytes() const noexcept { return used_; }
  /// Highest used_bytes() so far.
  [[nodiscard]] std::int64_t peak_bytes() const noexcept { return peak_; }
  /// Times that a sequence found its picture ready or being encoded.
  [[nodiscard]] std::int64_t hits() const noexcept { return hits_; }
  /// The entry \p id, or nullptr if it is gone.
  [[nodiscard]] entry* find(std::uint64_t id) noexcept;

  /// Makes \p s a user of the picture \p pixels of \p bytes of embeddings. Equal content shares one entry if reuse is on.
  entry& attach(const std::shared_ptr<const pixel_tiles>& pixels, std::int64_t bytes, sharer s);

  /// \p s needs the entry no more. Without sharers it is kept for reuse, or dropped as soon as no lane writes it.
  void detach(entry& e, const image_view* image);

  /// Bytes that \p asker could have for new entries, without harming the sequences \p named or any that is running or has a stronger claim.
  [[nodiscard]] std::int64_t available_for(const sequence_view& asker, const named_slots& named) const;

  /// Makes the entry resident, dropping others as described above. \pre entry.bytes <= available_for(asker, named) less what was reserved
  /// since \return false if there is no room
  bool reserve(entry& e, const sequence_view& asker, const named_slots& named);

  /// \p n further tiles were given to a lane.
  void start(entry& e, std::int32_t n);
  /// One tile is done. Tiles of an entry are done in order.
  void complete(entry& e);
  /// A lane could not encode a tile of the entry: nobody new may share it. Its sharers are the engine's to fail; tiles under way still
  /// complete.
  void mark_failed(entry& e);
  /// Forgets everything that no sequence uses.
  void clear_unused();

 private:
  [[nodiscard]] entry* lookup(const pixel_tiles& pixels);
  [[nodiscard]] static bool droppable(const entry& e, const sequence_view& asker, const named_slots& named);
  // Unused before used; among unused the least recently used; among used the one whose oldest sharer is youngest.
  [[nodiscard]] static bool drops_before(const entry& a, const entry& b);
  [[nodiscard]] static const sequence_view* oldest(const entry& e);
  void drop(entry& e);
  void forget_if_useless(entry& e);
  void erase(entry& e);
  void forget_key(const entry& e);
  static void update_views(const entry& e);

  encoder_cache_settings settings_;
  allocator allocate_;
  std::unordered_map<std::uint64_t, std::unique_ptr<entry>> entries_;
  std::unordered_multimap<std::uint64_t, std::uint64_t> by_key_;  // low half of the key -> entry id; the content decides
  std::int64_t used_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t hits_ = 0;
  std::uint64_t last_id_ = 0;
  std::uint64_t uses_ = 0;
};

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/vision/encoder_cache-inl.hpp"
#endif
