// SPDX-License-Identifier: Apache-2.0
// Inputs of the backend suite: matrices, weights, caches and batches, all made from their coordinates, so that the same token has the same
// numbers in every batch.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/backend/cpu.hpp"

namespace vlbatch::conformance {

/// A number in [-1, 1) that depends on its coordinates alone (the finaliser of SplitMix64, Steele et al.).
[[nodiscard]] inline float number_at(std::int64_t seed, std::int64_t a, std::int64_t b = 0, std::int64_t c = 0) {
  auto z = static_cast<std::uint64_t>(seed) * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(a) * 0xD1B54A32D192ED03ULL +
           static_cast<std::uint64_t>(b) * 0x8CB92BA72F3D8DD7ULL + static_cast<std::uint64_t>(c) * 0xAEF17502108EF2D9ULL;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return static_cast<float>(static_cast<std::int32_t>((z ^ (z >> 31U)) >> 40U) - (1 << 23)) * 0x1.0p-23F;
}

/// A matrix with `stride - cols` elements of gap after each row, which operations must leave alone.
struct host_matrix {
  std::int32_t rows = 0;
  std::int32_t cols = 0;
  std::int64_t stride = 0;
  std::vector<float> values;

  [[nodiscard]] float* row(std::int32_t r) { return values.data() + r * stride; }
  [[nodiscard]] const float* row(std::int32_t r) const { return values.data() + r * stride; }
  [[nodiscard]] matrix_view<float> view() { return {values.data(), rows, cols, stride}; }
  [[nodiscard]] matrix_view<const float> view() const { return {values.data(), rows, cols, stride}; }
  /// Copy of the rows `[first, first + n)`.
  [[nodiscard]] host_matrix slice(std::int32_t first, std::int32_t n) const {
    return {n, cols, stride, {values.begin() + first * stride, values.begin() + (first + n) * stride}};
  }
};

[[nodiscard]] inline host_matrix filled(std::int32_t rows, std::int32_t cols, std::int32_t gap, float value) {
  const std::int64_t stride = static_cast<std::int64_t>(cols) + gap;
  return {rows, cols, stride, std::vector<float>(static_cast<std::size_t>(rows * stride), value)};
}

[[nodiscard]] inline host_matrix random_matrix(std::int32_t rows, std::int32_t cols, std::int32_t gap, std::int64_t seed) {
  host_matrix m = filled(rows, cols, gap, 7.0F);
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::int32_t c = 0; c < cols; ++c) m.row(r)[c] = number_at(seed, r, c);
  }
  return m;
}

[[nodiscard]] inline host_matrix magnitudes(host_matrix m) {
  for (auto& v : m.values) v = std::abs(v);
  return m;
}

/// Equal up to `tolerance * (1 + |expected|)`, or `tolerance * (1 + bound)` where the sum of magnitudes that cancelled is known. Gaps must
/// be equal.
[[nodiscard]] inline testing::AssertionResult close(const host_matrix& found, const host_matrix& expected, float tolerance,
                                                    const host_matrix* bound = nullptr) {
  if (found.rows != expected.rows || found.values.size() != expected.values.size()) return testing::AssertionFailure() << "shapes differ";
  for (std::size_t i = 0; i < found.values.size(); ++i) {
    const auto column = static_cast<std::int64_t>(i) % expected.stride;
    const bool gap = column >= expected.cols;
    const float size = bound != nullptr && !gap ? bound->values[i] : std::abs(expected.values[i]);
    const float allowed = gap ? 0.0F : tolerance * (1.0F + size);
    if (!(std::abs(found.values[i] - expected.values[i]) <= allowed) && !(std::isnan(found.values[i]) && std::isnan(expected.values[i]))) {
      return testing::AssertionFailure() << "at [" << static_cast<std::int64_t>(i) / expected.stride << ", " << column << "]"
                                         << (gap ? " (gap)" : "") << ": " << found.values[i] << ", expected " << expected.values[i]
                                         << " within " << allowed;
    }
  }
  return testing::AssertionSuccess();
}

/// Equal bit by bit, gaps left out.
[[nodiscard]] inline testing::AssertionResult same_bits(const host_matrix& found, const host_matrix& expected) {
  if (found.rows != expected.rows || found.cols != expected.cols) return testing::AssertionFailure() << "shapes differ";
  for (std::int32_t r = 0; r < found.rows; ++r) {
    for (std::int32_t c = 0; c < found.cols; ++c) {
      if (std::bit_cast<std::uint32_t>(found.row(r)[c]) != std::bit_cast<std::uint32_t>(expected.row(r)[c])) {
        return testing::AssertionFailure() << "at [" << r << ", " << c << "]: " << found.row(r)[c] << ", expected " << expected.row(r)[c];
      }
    }
  }
  return testing::AssertionSuccess();
}

/// As matrix units that take bf16 do: nearest, ties to even.
inline void round_to_bf16(host_matrix& m) {
  for (float& v : m.values) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    if (v == v) v = std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) & 0xFFFF0000U);
  }
}

/// A stored tensor `[out, in]`, at an address that is not aligned.
class tensor {
 public:
  tensor(std::string name, dtype type, std::int32_t out, std::int32_t in)
      : name_(std::move(name)),
        type_(type),
        shape_{out, in},
        bytes_(static_cast<std::size_t>(out) * static_cast<std::size_t>(in) * static_cast<std::size_t>(size_of(type)) + 1) {
    for (std::int64_t i = 0; i < elements(); ++i) set(i, number_at(static_cast<std::int64_t>(name_.size()) + 100, i / in, i % in));
  }

  [[nodiscard]] tensor_view view() const { return {name_, "test", type_, shape_, bytes_.data() + 1, elements()}; }
  [[nodiscard]] tensor magnitudes() const {
    tensor t = *this;
    for (std::int64_t i = 0; i < elements(); ++i) {
      // The sign is the upper bit of the last byte.
      auto& top = t.bytes_[static_cast<std::size_t>((i + 1) * size_of(type_))];
      top &= std::byte{0x7F};
    }
    return t;
  }

 private:
  [[nodiscard]] std::int64_t elements() const { return shape_[0] * shape_[1]; }
  void set(std::int64_t i, float value) {
    auto bits = std::bit_cast<std::uint32_t>(value);
    if (type_ == dtype::bf16) bits >>= 16U;
    if (type_ == dtype::f16) {
      // Numbers of [2^-14, 2) cut to ten bits of fraction; smaller ones become zero.
      const std::uint32_t exponent = (bits >> 23U) & 0xFFU;
      bits = exponent < 113U ? 0U : ((bits >> 16U) & 0x8000U) | ((exponent - 112U) << 10U) | ((bits >> 13U) & 0x3FFU);
    }
    std::memcpy(bytes_.data() + 1 + i * size_of(type_), &bits, static_cast<std::size_t>(size_of(type_)));
  }

  std::string name_;
  dtype type_;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
};

/// Epilogues, all combinations by number.
struct linear_options {
  host_matrix bias;
  bool with_bias = false;
  bool accumulate = false;
  linear_epilogue::activation act = linear_epilogue::activation::none;

  linear_options() : bias(filled(1, 1, 0, 0.0F)) {}
  linear_options(std::int32_t out, std::int32_t variant)
      : bias(random_matrix(1, out, 0, 9)),
        with_bias(variant % 2 == 1),
        accumulate(variant / 2 % 2 == 1),
        act(variant / 4 % 2 == 1 ? linear_epilogue::activation::gelu_tanh : linear_epilogue::activation::none) {}
};

/// A batch for attention.
struct attention_case {
  struct sequence {
    std::int64_t id = 0;
    std::int32_t context = 0;
    std::int32_t tokens = 0;
    std::int32_t pads = 0;
  };
  struct rows_of {
    std::vector<std::int32_t> row_begin, num_tokens, context, positions;
    std::int32_t rows = 0;
    [[nodiscard]] row_map map() const { return {static_cast<std::int32_t>(num_tokens.size()), rows, row_begin, num_tokens, context}; }
  };

  attention_shape shape;
  std::vector<sequence> sequences;
  std::int32_t empty_rows = 0;
  std::int32_t layers = 2;
  std::int32_t layer = 1;
  float theta = 1e4F;
  std::int32_t poisoned_row = -1;

  [[nodiscard]] std::int32_t rows() const { return layout().rows; }
  [[nodiscard]] rows_of layout() const {
    rows_of l;
    for (const auto& s : sequences) {
      l.row_begin.push_back(l.rows);
      l.num_tokens.push_back(s.tokens);
      l.context.push_back(s.context);
      for (std::int32_t i = 0; i < s.tokens; ++i) l.positions.push_back(s.context + i);
      l.positions.resize(l.positions.size() + static_cast<std::size_t>(s.pads), 0);
      l.rows += s.tokens + s.pads;
    }
    l.row_begin.push_back(l.rows);
    l.rows += empty_rows;
    l.positions.resize(static_cast<std::size_t>(l.rows), 0);
    return l;
  }
  [[nodiscard]] std::vector<std::int64_t> ids() const {
    std::vector<std::int64_t> v;
    for (const auto& s : sequences) v.push_back(s.id);
    return v;
  }
  /// Rows of q, k and v; those of pads and of nobody are not numbers.
  [[nodiscard]] host_matrix qkv() const {
    host_matrix m = filled(rows(), (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim, 5, std::numeric_limits<float>::quiet_NaN());
    std::int32_t r = 0;
    for (const auto& s : sequences) {
      for (std::int32_t i = 0; i < s.tokens; ++i) {
        for (std::int32_t c = 0; c < m.cols; ++c) m.row(r + i)[c] = 2.0F * number_at(s.id, s.context + i, c, 1);
      }
      r += s.tokens + s.pads;
    }
    if (poisoned_row >= 0) std::fill_n(m.row(poisoned_row), m.cols, std::numeric_limits<float>::quiet_NaN());
    return m;
  }
};

/// A paged cache in host memory whose blocks lie in no order. Tokens of the contexts are filled in, everything else is not a number.
struct paged_cache {
  kv_shape shape;
  std::int32_t block_size = 0;
  std::int32_t blocks_a_sequence = 0;
  std::vector<std::int64_t> sequence_ids;
  std::vector<std::int32_t> table;  // of the last view
  std::vector<float> values;

  /// For the sequences of \p c, or for the ids `[0, num_ids)` and those of \p c.
  paged_cache(const attention_case& c, std::int32_t block, std::int64_t num_ids = 0)
      : shape{c.layers, c.shape.num_kv_heads, c.shape.head_dim, dtype::f32}, block_size(block), sequence_ids(c.ids()) {
    for (std::int64_t id = 0; id < num_ids; ++id) {
      if (std::find(sequence_ids.begin(), sequence_ids.end(), id) == sequence_ids.end()) sequence_ids.push_back(id);
    }
    blocks_a_sequence = ceil_div(260, block);
    const auto blocks = static_cast<std::int64_t>(sequence_ids.size()) * blocks_a_sequence;
    values.assign(static_cast<std::size_t>(blocks * block * shape.bytes_per_token() / 4), std::numeric_limits<float>::quiet_NaN());
    std::vector<std::int32_t> contexts(sequence_ids.size(), num_ids > 0 ? 80 : 0);
    for (std::size_t s = 0; s < c.sequences.size(); ++s) contexts[s] = c.sequences[s].context;
    const paged_kv_view kv = view(sequence_ids);
    for (std::size_t s = 0; s < sequence_ids.size(); ++s) {
      for (std::int32_t p = 0; p < contexts[s]; ++p) {
        for (std::int32_t i = 0; i < 2 * c.shape.num_kv_heads; ++i) {
          const std::int64_t at = kv.offset(kv.block_of(static_cast<std::int32_t>(s), p), c.layer, i % 2, i / 2) +
                                  static_cast<std::int64_t>(p % block) * shape.head_dim;
          for (std::int32_t e = 0; e < shape.head_dim; ++e) {
            values[static_cast<std::size_t>(at + e)] = 2.0F * number_at(sequence_ids[s], p, i, e + 1000);
          }
        }
      }
    }
  }

  /// View for sequences in the order of \p ids.
  [[nodiscard]] paged_kv_view view(const std::vector<std::int64_t>& ids) {
    table.clear();
    const auto count = static_cast<std::int32_t>(sequence_ids.size());
    for (const std::int64_t id : ids) {
      const auto s = static_cast<std::int32_t>(std::find(sequence_ids.begin(), sequence_ids.end(), id) - sequence_ids.begin());
      // Blocks of all sequences are interleaved, last first.
      for (std::int32_t b = 0; b < blocks_a_sequence; ++b) table.push_back((blocks_a_sequence - 1 - b) * count + s);
    }
    auto* data = static_cast<std::byte*>(static_cast<void*>(values.data()));
    return {data, table.data(), static_cast<std::int32_t>(ids.size()), blocks_a_sequence, block_size, shape};
  }
  [[nodiscard]] host_matrix as_matrix() const {
    return {1, static_cast<std::int32_t>(values.size()), static_cast<std::int64_t>(values.size()), values};
  }
};

[[nodiscard]] inline pixel_tiles random_tiles(std::int32_t count, std::int32_t height, std::int32_t width) {
  pixel_tiles t;
  t.num_tiles = count;
  t.height = height;
  t.width = width;
  t.values.resize(static_cast<std::size_t>(count * height * width * 3));
  for (std::size_t i = 0; i < t.values.size(); ++i) {
    t.values[i] = static_cast<std::uint8_t>((number_at(5, static_cast<std::int64_t>(i)) + 1.0F) * 127.0F);
  }
  for (std::size_t c = 0; c < 3; ++c) {
    for (std::size_t v = 0; v < 256; ++v) t.normalised[c][v] = static_cast<float>(v) * 0.01F + static_cast<float>(c);
  }
  return t;
}

}  // namespace vlbatch::conformance
