// SPDX-License-Identifier: Apache-2.0
// A model for tests of the engine: no weights, no arithmetic, but every property that a batch could break is visible in its tokens.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "vlbatch/core/error.hpp"
#include "vlbatch/kv/kv_view.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::testing {

/// The KV of a token is a hash of (its own id or embedding, position); the logits of a row put the maximum on a hash of all KV of its
/// sequence up to it. So the next token depends on every earlier token, image row and position, and on where the cache says they are;
/// nothing else.
class fake_model {
 public:
  struct knobs {
    std::atomic<int> forwards{0};
    std::atomic<int> encodes{0};
    std::atomic<int> tiles{0};
    std::atomic<int> fail_forward_at{-1};  // index of the forward that throws
    std::atomic<int> fail_tile_value{-1};  // tiles whose first byte is this throw
    std::atomic<int> nan_token{-1};        // rows with this token id get NaN logits
    std::atomic<int> encode_us{0};
    std::atomic<int> eos_every{0};  // a hash divisible by this makes the model end the answer; 0: never
    std::atomic<bool> unknown_exception{false};
    std::atomic<int> allocations{0};
    std::atomic<int> fail_allocation_at{-1};  // index of the allocation that throws
  };
  struct workspace {
    std::vector<float> logits;
    std::int32_t rows = 0;
  };
  struct ticket {};
  static constexpr std::int32_t vocab = 97;
  static constexpr std::int32_t hidden = 4;
  static constexpr std::int32_t per_tile = 5;

  fake_model() {
    info_ = {.name = "fake",
             .kv = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .type = dtype::f32},
             .hidden_size = hidden,
             .vocab_size = vocab,
             .max_positions = 512,
             .position_axes = 1,
             .tokens_per_tile = per_tile,
             .eos_tokens = {0}};
  }

  knobs& control() const { return *knobs_; }
  const model_info& info() const { return info_; }
  model_info& edit_info() { return info_; }
  prepared_request prepare(const request& r) const {
    if (r.prepared) return *r.prepared;
    prepared_request p;  // text: one token a byte; "!" fails; an image part is one tile
    for (const message& m : r.messages) {
      for (const message_part& part : m.parts) {
        if (const auto* t = std::get_if<text_part>(&part)) {
          for (const char c : t->text) {
            if (c == '!') throw invalid_argument("fake: the text has a '!'");
            p.tokens.push_back(1 + static_cast<unsigned char>(c) % (vocab - 1));
          }
        }
      }
    }
    return p;
  }
  workspace make_workspace(std::int32_t) const { return {}; }
  std::shared_ptr<std::byte> allocate(std::int64_t n) const {
    if (knobs_->allocations++ == knobs_->fail_allocation_at) throw std::bad_alloc();
    // Poisoned: what nobody stored must not be read.
    auto* p = new std::byte[static_cast<std::size_t>(std::max<std::int64_t>(n, 1))];
    std::memset(p, 0xFF, static_cast<std::size_t>(n));
    return {p, [](std::byte* q) { delete[] q; }};
  }
  void encode(workspace&, std::span<const tile_input> tiles) const {
    ++knobs_->encodes;
    if (knobs_->encode_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(knobs_->encode_us));
    for (const tile_input& t : tiles) {
      if (*t.image->tile(t.tile) == knobs_->fail_tile_value) throw std::runtime_error("fake: bad tile");
    }
    for (const tile_input& t : tiles) {
      ++knobs_->tiles;
      for (int i = 0; i < per_tile * hidden; ++i)
        t.embeddings[i] = static_cast<float>((*t.image->tile(t.tile) * 31 + t.tile * 7 + i) % 1000);
    }
  }
  ticket forward(workspace& w, const forward_input& in, const paged_kv_view& kv) const {
    const int index = knobs_->forwards++;
    if (index == knobs_->fail_forward_at) {
      if (knobs_->unknown_exception) throw 42;
      throw std::runtime_error("fake: device lost");
    }
    std::vector<std::uint32_t> values(static_cast<std::size_t>(in.map.rows));
    for (std::size_t r = 0; r < values.size(); ++r) values[r] = mix(static_cast<std::uint32_t>(in.token_ids[r]), 17);
    for (const injected_rows& i : in.images) {
      for (int r = 0; r < i.num_rows; ++r) {
        std::uint32_t h = 99;
        for (int c = 0; c < hidden; ++c) h = mix(h, static_cast<std::uint32_t>(i.embeddings[r * hidden + c]));
        values[static_cast<std::size_t>(i.first_row + r)] = h;
      }
    }
    auto* store = reinterpret_cast<std::uint32_t*>(kv.data);
    w.rows = static_cast<std::int32_t>(in.logit_rows.size());
    w.logits.assign(static_cast<std::size_t>(w.rows) * vocab, 0.0F);
    std::size_t next = 0;
    for (std::int32_t s = 0; s < in.map.num_sequences; ++s) {
      const auto us = static_cast<std::size_t>(s);
      for (std::int32_t i = 0; i < in.map.num_tokens[us]; ++i) {
        const std::int32_t row = in.map.row_begin[us] + i;
        const std::int32_t position = in.map.context[us] + i;
        if (in.positions[static_cast<std::size_t>(row)] != position) throw std::logic_error("fake: wrong position");
        store[kv.offset(kv.block_of(s, position), 0, 0, 0) + position % kv.block_size] =
            mix(values[static_cast<std::size_t>(row)], static_cast<std::uint32_t>(position));
      }
      for (std::int32_t i = 0; i < in.map.num_tokens[us]; ++i) {
        const std::int32_t row = in.map.row_begin[us] + i;
        if (next == in.logit_rows.size() || in.logit_rows[next] != row) continue;
        std::uint32_t h = 5;
        for (std::int32_t p = 0; p <= in.map.context[us] + i; ++p)
          h = mix(h, store[kv.offset(kv.block_of(s, p), 0, 0, 0) + p % kv.block_size]);
        const int every = knobs_->eos_every;
        const std::uint32_t token = every > 0 && h % static_cast<std::uint32_t>(every) == 0 ? 0 : 1 + h % (vocab - 1);
        float* logits = w.logits.data() + next * vocab;
        for (int v = 0; v < vocab; ++v) logits[v] = static_cast<float>(mix(h, static_cast<std::uint32_t>(v)) % 1000) / 1000.0F;
        logits[token] = 9.0F;
        if (in.token_ids[static_cast<std::size_t>(row)] == knobs_->nan_token) logits[3] = std::numeric_limits<float>::quiet_NaN();
        ++next;
      }
    }
    if (next != in.logit_rows.size()) throw std::logic_error("fake: a wanted row belongs to nobody");
    return {};
  }
  void wait(workspace&, ticket) const {}
  matrix_view<const float> logits(workspace& w) const { return {w.logits.data(), w.rows, vocab}; }
  void append_text(std::int32_t token, std::string& out) const {
    out += token == 0 ? std::string() : std::string(1, static_cast<char>(' ' + token - 1));
  }

  static std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
    std::uint32_t h = a * 2654435761U ^ (b + 0x9E3779B9U + (a << 6U) + (a >> 2U));
    h ^= h >> 15U;
    h *= 2246822519U;
    return h ^ (h >> 13U);
  }

 private:
  model_info info_;
  std::shared_ptr<knobs> knobs_ = std::make_shared<knobs>();
};
static_assert(vlm_model<fake_model>);
static_assert(runs_on<fake_model, paged_kv_view>);

/// A picture of \p tiles tiles, 2 x 2 pixels each, filled with \p value.
inline std::shared_ptr<const pixel_tiles> picture(std::uint8_t value, std::int32_t tiles = 1) {
  auto p = std::make_shared<pixel_tiles>();
  p->num_tiles = tiles;
  p->height = p->width = 2;
  p->values.assign(static_cast<std::size_t>(tiles) * 12, value);
  p->key = {1, value};
  return p;
}

/// Ready tokens: \p text tokens, then for each picture a separator and its placeholders (one separator between tiles), then \p tail tokens.
inline std::shared_ptr<const prepared_request> prompt(std::int32_t seed, std::int32_t text,
                                                      const std::vector<std::shared_ptr<const pixel_tiles>>& pictures = {},
                                                      std::int32_t tail = 1, bool atomic = false) {
  auto p = std::make_shared<prepared_request>();
  const auto word = [&] {
    p->tokens.push_back(1 + static_cast<std::int32_t>(
                                fake_model::mix(static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(p->tokens.size())) % 96));
  };
  for (std::int32_t i = 0; i < text; ++i) word();
  for (const auto& pixels : pictures) {
    word();
    prepared_image image{.pixels = pixels, .tokens_per_tile = fake_model::per_tile, .tile_positions = {}, .atomic = atomic};
    image.first_position = static_cast<std::int32_t>(p->tokens.size());
    for (std::int32_t t = 0; t < pixels->num_tiles; ++t) {
      if (t > 0) word();
      image.tile_positions.push_back(static_cast<std::int32_t>(p->tokens.size()));
      p->tokens.insert(p->tokens.end(), fake_model::per_tile, 50);
    }
    image.num_tokens = static_cast<std::int32_t>(p->tokens.size()) - image.first_position;
    p->images.push_back(std::move(image));
  }
  for (std::int32_t i = 0; i < tail; ++i) word();
  return p;
}

/// A request for \p tokens tokens after ready \p p.
inline request ask(std::shared_ptr<const prepared_request> p, std::int32_t tokens) {
  request r;
  r.prepared = std::move(p);
  r.max_new_tokens = tokens;
  return r;
}

/// What the fake model answers to \p p, computed here without engine, cache or batch.
inline std::vector<std::int32_t> expected_tokens(const prepared_request& p, std::int32_t count, int eos_every = 0) {
  std::vector<std::uint32_t> kv;
  std::vector<std::int32_t> out;
  const auto value_at = [&](std::size_t position) -> std::uint32_t {
    for (const prepared_image& image : p.images) {
      for (std::size_t t = 0; t < image.tile_positions.size(); ++t) {
        const auto first = static_cast<std::size_t>(image.tile_positions[t]);
        if (position < first || position >= first + fake_model::per_tile) continue;
        std::uint32_t h = 99;
        for (std::size_t c = 0; c < fake_model::hidden; ++c) {
          const std::size_t i = (position - first) * fake_model::hidden + c;
          h = fake_model::mix(
              h, static_cast<std::uint32_t>(
                     (*image.pixels->tile(static_cast<std::int32_t>(t)) * 31 + static_cast<int>(t) * 7 + static_cast<int>(i)) % 1000));
        }
        return h;
      }
    }
    const std::int32_t token = position < p.tokens.size() ? p.tokens[position] : out[position - p.tokens.size()];
    return fake_model::mix(static_cast<std::uint32_t>(token), 17);
  };
  for (;;) {
    while (kv.size() < p.tokens.size() + out.size()) {
      const std::uint32_t value = value_at(kv.size());
      kv.push_back(fake_model::mix(value, static_cast<std::uint32_t>(kv.size())));
    }
    if (static_cast<std::int32_t>(out.size()) >= count) return out;
    std::uint32_t h = 5;
    for (const std::uint32_t v : kv) h = fake_model::mix(h, v);
    if (eos_every > 0 && h % static_cast<std::uint32_t>(eos_every) == 0) return out;
    out.push_back(static_cast<std::int32_t>(1 + h % (fake_model::vocab - 1)));
  }
}

}  // namespace vlbatch::testing
