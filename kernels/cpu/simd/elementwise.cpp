// SPDX-License-Identifier: Apache-2.0
// Operations on single elements and single rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/elementwise.cpp"
// clang-format off: the targets come first
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstdint>

#include "cpu/kv_access.hpp"
#include "cpu/reference/reference.hpp"
#include "cpu/simd/math-inl.hpp"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace {

void silu_mul(cpu_kernels::context& s, matrix_view<const float> gate_up, matrix_view<float> y) {
  s.for_rows(y.rows, static_cast<double>(y.rows) * y.cols * 8 / lanes, [&](std::int32_t r) HWY_ATTR {
    const float* gate = gate_up.row(r);
    const float* up = gate + y.cols;
    for (std::int32_t c = 0; c < y.cols; c += lanes) {
      const std::int32_t n = y.cols - c;
      const float_vector g = load_some(gate + c, n);
      store_some(hn::Mul(times_logistic(g, g), load_some(up + c, n)), y.row(r) + c, n);
    }
  });
}

void add_rows(cpu_kernels::context& s, matrix_view<const float> table, matrix_view<float> y) {
  s.for_rows(y.rows, static_cast<double>(y.rows) * y.cols * 0.2, [&](std::int32_t r) HWY_ATTR {
    const float* add = table.row(r % table.rows);
    for (std::int32_t c = 0; c < y.cols; c += lanes) {
      const std::int32_t n = y.cols - c;
      store_some(hn::Add(load_some(y.row(r) + c, n), load_some(add + c, n)), y.row(r) + c, n);
    }
  });
}

/// A row of a table of rows as f32.
HWY_INLINE void widen(const std::uint16_t* from, float* to, std::int32_t count) {
  const float_tag d;
  const hn::RebindToUnsigned<float_tag> du;
  const hn::Rebind<std::uint16_t, float_tag> dh;
  std::int32_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, from + c)))), d, to + c);
  }
  for (; c < count; ++c) to[c] = bf16_to_f32(from[c]);
}

void embed(cpu_kernels::context& s, std::span<const std::int32_t> ids, const cpu::weight::impl& table, matrix_view<float> y) {
  const bool rows = table.layout == weight_layout::rows;
  // A row of a table of panels lies in as many cache lines as it has elements.
  s.for_rows(y.rows, static_cast<double>(y.rows) * y.cols * (rows ? 0.2 : 2.0), [&](std::int32_t r) HWY_ATTR {
    const std::int32_t id = ids[static_cast<std::size_t>(r)];
    if (rows && table.type == dtype::bf16) {
      widen(table.elements<std::uint16_t>() + table.index(id, 0), y.row(r), y.cols);
    } else if (rows) {
      std::copy_n(table.elements<float>() + table.index(id, 0), y.cols, y.row(r));
    } else {
      for (std::int32_t c = 0; c < y.cols; ++c) y.row(r)[c] = table.at(id, c);
    }
  });
}

void patches(cpu_kernels::context& s, std::span<const std::uint8_t* const> tiles, const pixel_tiles& like, std::int32_t patch,
             matrix_view<float> y) {
  const auto count = static_cast<std::int32_t>(tiles.size());
  if (count == 0) return;
  const std::int32_t a_tile = y.rows / count;
  s.for_rows(count, static_cast<double>(y.rows) * y.cols, [&](std::int32_t t) {
    reference::patches(s, tiles.subspan(static_cast<std::size_t>(t), 1), like, patch, y.rows_from(t * a_tile, a_tile));
  });
}

/// Rotates the pairs (i, i + half) of a head. Products and sums are rounded one by one, as in the models' own code.
HWY_INLINE void rotate(float* head, const float* cosines, std::int32_t half) {
  const float* sines = cosines + half;
  for (std::int32_t i = 0; i < half; i += lanes) {
    const std::int32_t n = half - i;
    const float_vector a = load_some(head + i, n);
    const float_vector b = load_some(head + half + i, n);
    const float_vector c = load_some(cosines + i, n);
    const float_vector z = load_some(sines + i, n);
    store_some(hn::Sub(hn::Mul(a, c), hn::Mul(b, z)), head + i, n);
    store_some(hn::Add(hn::Mul(b, c), hn::Mul(a, z)), head + half + i, n);
  }
}

void rope_store(cpu_kernels::context& s, matrix_view<float> qkv, std::span<const std::int32_t> positions, float theta,
                const attention_shape& shape, const row_map& map, const paged_kv_view& kv, std::int32_t layer) {
  const std::int32_t dim = shape.head_dim;
  s.rope.prepare(theta, dim, positions);
  // Sequences of one token are the usual step; a long prefill is shared by rows.
  for (std::int32_t q = 0; q < map.num_sequences; ++q) {
    const auto sequence = static_cast<std::size_t>(q);
    const std::int32_t begin = map.row_begin[sequence];
    const std::int32_t context = map.context[sequence];
    const std::int32_t tokens = map.num_tokens[sequence];
    s.for_rows(tokens, static_cast<double>(tokens) * qkv.cols * 0.25, [&](std::int32_t i) HWY_ATTR {
      float* row = qkv.row(begin + i);
      const float* cosines = s.rope.row(positions[static_cast<std::size_t>(begin + i)]);
      for (std::int32_t h = 0; h < shape.num_heads + shape.num_kv_heads; ++h) rotate(row + h * dim, cosines, dim / 2);
      const float* keys = row + shape.num_heads * dim;
      const float* values = keys + shape.num_kv_heads * dim;
      for (std::int32_t g = 0; g < shape.num_kv_heads; ++g) {
        std::copy_n(keys + g * dim, dim, kv_row(kv, q, context + i, layer, 0, g));
        std::copy_n(values + g * dim, dim, kv_row(kv, q, context + i, layer, 1, g));
      }
    });
  }
}

}  // namespace

void add_elementwise(cpu_kernels& table) {
  table.silu_mul = silu_mul;
  table.add_rows = add_rows;
  table.embed = embed;
  table.patches = patches;
  table.rope_store = rope_store;
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vlbatch::inline v0 {

void add_elementwise(cpu_kernels& table, cpu_level level) { VLBATCH_AT_LEVEL(level, add_elementwise(table)) }

}  // namespace vlbatch::inline v0
#endif
