// SPDX-License-Identifier: Apache-2.0
// Conformance suite of the concept `backend`: compares every operation with the plain loops of `cpu{cpu_level::reference}` over awkward
// shapes, and holds the promise that a row has the same bits whatever its company, the block size of the cache, the cut of a prefill and
// the number of threads are.
//
// To use it, describe the backend in a type and instantiate the suite:
//
//   struct my_device {
//     using backend = my_backend;
//     static constexpr bool invariant = true;              // false: rows may differ by rounding with their company; bits are not compared
//     static constexpr bool rounds_inputs_to_bf16 = false;  // optional; true: products with bf16 weights round their inputs to bf16
//     static bool available();                             // false: skipped
//     static my_backend make();
//     static void to_device(void* to, const void* from, std::size_t bytes);
//     static void to_host(void* to, const void* from, std::size_t bytes);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(my, backend_suite, my_device);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conformance/backend_data.hpp"
#include "vlbatch/backend/cpu.hpp"

namespace vlbatch::conformance {

template <class Device>
class backend_suite : public testing::Test {
 protected:
  using backend = typename Device::backend;

  void SetUp() override {
    if (!Device::available()) GTEST_SKIP() << "this machine cannot run this backend or level";
  }

  // A matrix in backend memory.
  struct device_matrix {
    std::shared_ptr<std::byte> memory;
    host_matrix shape;  // its contents are the last that were copied

    [[nodiscard]] matrix_view<float> view() const {
      return {static_cast<float*>(static_cast<void*>(memory.get())), shape.rows, shape.cols, shape.stride};
    }
  };

  [[nodiscard]] device_matrix put(const host_matrix& m) const {
    device_matrix d{tested.allocate(static_cast<std::int64_t>(m.values.size() * sizeof(float))), m};
    Device::to_device(d.memory.get(), m.values.data(), m.values.size() * sizeof(float));
    return d;
  }
  [[nodiscard]] host_matrix get(const device_matrix& d) const {
    host_matrix m = d.shape;
    Device::to_host(m.values.data(), d.memory.get(), m.values.size() * sizeof(float));
    return m;
  }
  [[nodiscard]] std::shared_ptr<std::byte> put(std::span<const std::byte> bytes) const {
    auto memory = tested.allocate(static_cast<std::int64_t>(bytes.size()));
    Device::to_device(memory.get(), bytes.data(), bytes.size());
    return memory;
  }

  // Results of a product on the tested backend and on the reference.
  [[nodiscard]] host_matrix product(std::int32_t threads, const host_matrix& x, const tensor& w, const linear_options& o,
                                    const host_matrix& before) const {
    auto s = tested.make_stream(threads);
    const auto weight = tested.load_weight(w.view(), weight_format::as_stored);
    const auto dx = put(x);
    const auto dy = put(before);
    const auto bias = put(o.bias);
    tested.linear(s, dx.view(), weight, dy.view(), {o.with_bias ? bias.view().data : nullptr, o.act, o.accumulate});
    return get(dy);
  }
  [[nodiscard]] static host_matrix reference_product(host_matrix x, const tensor& w, const linear_options& o, host_matrix y) {
    if constexpr (requires { requires Device::rounds_inputs_to_bf16; }) {
      if (w.view().type == dtype::bf16) round_to_bf16(x);
    }
    const cpu b{cpu_level::reference};
    auto s = b.make_stream(1);
    b.linear(s, x.view(), b.load_weight(w.view(), weight_format::as_stored), y.view(),
             {o.with_bias ? o.bias.values.data() : nullptr, o.act, o.accumulate});
    return y;
  }

  // One step of attention with its cache: rope_store, then causal_attention. The cache lives in \p cache and is updated.
  [[nodiscard]] host_matrix attention(std::int32_t threads, const attention_case& c, paged_cache& cache) const {
    auto s = tested.make_stream(threads);
    const auto dqkv = put(c.qkv());
    const auto dy = put(filled(c.rows(), c.shape.num_heads * c.shape.head_dim, 3, 7.0F));
    const auto memory = put(std::as_bytes(std::span<const float>(cache.values)));
    paged_kv_view kv = cache.view(c.ids());
    kv.data = memory.get();
    const auto layout = c.layout();
    tested.rope_store(s, dqkv.view(), layout.positions, c.theta, c.shape, layout.map(), kv, c.layer);
    tested.causal_attention(s, dqkv.view(), c.shape, layout.map(), kv, c.layer, dy.view());
    Device::to_host(cache.values.data(), memory.get(), cache.values.size() * sizeof(float));
    return get(dy);
  }
  [[nodiscard]] static host_matrix reference_attention(const attention_case& c, paged_cache& cache) {
    const cpu b{cpu_level::reference};
    auto s = b.make_stream(1);
    host_matrix qkv = c.qkv();
    host_matrix y = filled(c.rows(), c.shape.num_heads * c.shape.head_dim, 3, 7.0F);
    const auto layout = c.layout();
    b.rope_store(s, qkv.view(), layout.positions, c.theta, c.shape, layout.map(), cache.view(c.ids()), c.layer);
    b.causal_attention(s, qkv.view(), c.shape, layout.map(), cache.view(c.ids()), c.layer, y.view());
    return y;
  }
  [[nodiscard]] host_matrix full(std::int32_t threads, const host_matrix& qkv, std::int32_t group, const attention_shape& shape) const {
    auto s = tested.make_stream(threads);
    const auto x = put(qkv);
    const auto y = put(filled(qkv.rows, shape.num_heads * shape.head_dim, 1, 7.0F));
    tested.full_attention(s, x.view(), group, shape, y.view());
    return get(y);
  }

  const backend tested = Device::available() ? Device::make() : backend{};
};

TYPED_TEST_SUITE_P(backend_suite);

// --- products ---

TYPED_TEST_P(backend_suite, linear_matches_the_reference) {
  const std::int32_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 63, 64, 65};
  const std::int32_t sizes[][2] = {{1, 1}, {7, 5}, {16, 32}, {33, 31}, {100, 33}, {64, 96}, {257, 130}};
  std::int32_t variant = 0;
  for (const dtype type : {dtype::f32, dtype::bf16, dtype::f16}) {
    for (const auto& [in, out] : sizes) {
      const tensor w("w", type, out, in);
      for (const std::int32_t m : rows) {
        const linear_options o(out, variant++);
        const host_matrix x = random_matrix(m, in, variant % 3, 1);
        const host_matrix before = random_matrix(m, out, variant % 4, 2);
        const host_matrix bound = this->reference_product(magnitudes(x), w.magnitudes(), {}, filled(m, out, variant % 4, 0.0F));
        ASSERT_TRUE(close(this->product(1 + variant % 2, x, w, o, before), this->reference_product(x, w, o, before), 1e-6F, &bound))
            << "M " << m << ", K " << in << ", N " << out << ", " << name_of(type) << ", bias " << o.with_bias << ", accumulate "
            << o.accumulate;
      }
    }
  }
}

TYPED_TEST_P(backend_suite, linear_of_many_inputs_matches_the_reference) {
  // More inputs than any blocking over k can ignore.
  const tensor w("w", dtype::bf16, 40, 9001);
  for (const std::int32_t m : {1, 5, 20}) {
    const host_matrix x = random_matrix(m, 9001, 0, 1);
    const host_matrix bound = this->reference_product(magnitudes(x), w.magnitudes(), {}, filled(m, 40, 0, 0.0F));
    const host_matrix y = this->product(2, x, w, {}, filled(m, 40, 0, 0.0F));
    EXPECT_TRUE(close(y, this->reference_product(x, w, {}, filled(m, 40, 0, 0.0F)), 1e-6F, &bound)) << m;
  }
}

TYPED_TEST_P(backend_suite, linear_rows_do_not_depend_on_company_or_threads) {
  if (!TypeParam::invariant) GTEST_SKIP() << "this backend does not promise equal bits";
  for (const dtype type : {dtype::f32, dtype::bf16}) {
    for (const auto& [in, out] : {std::pair{97, 130}, std::pair{512, 1056}}) {
      const tensor w("w", type, out, in);
      const linear_options o(out, 7);
      const host_matrix x = random_matrix(150, in, 0, 1);
      const host_matrix y = random_matrix(150, out, 0, 2);
      const host_matrix together = this->product(1, x, w, o, y);
      for (std::int32_t m = 1; m <= 64; ++m) {
        // m rows from the middle, so that a row meets every place in a tile.
        const host_matrix part = this->product(1 + m % 3, x.slice(m, m), w, o, y.slice(m, m));
        ASSERT_TRUE(same_bits(part, together.slice(m, m))) << m << " rows, K " << in << ", N " << out << ", " << name_of(type);
      }
      for (const std::int32_t threads : {2, 3})
        ASSERT_TRUE(same_bits(this->product(threads, x, w, o, y), together)) << threads << " threads";
    }
  }
}

// So many inputs that the rows are cut into blocks, with whole and odd last ones.
TYPED_TEST_P(backend_suite, linear_rows_do_not_depend_on_blocks) {
  if (!TypeParam::invariant) GTEST_SKIP() << "this backend does not promise equal bits";
  const tensor w("w", dtype::bf16, 70, 4096);
  const linear_options o(70, 7);
  const host_matrix x = random_matrix(161, 4096, 0, 1);
  const host_matrix y = random_matrix(161, 70, 0, 2);
  const host_matrix together = this->product(1, x, w, o, y);
  for (const std::int32_t m : {1, 47, 113, 144, 145, 160}) {
    const std::int32_t from = 161 - m;
    ASSERT_TRUE(same_bits(this->product(2, x.slice(from, m), w, o, y.slice(from, m)), together.slice(from, m))) << m << " rows";
  }
}

TYPED_TEST_P(backend_suite, not_a_number_stays_in_its_row) {
  const tensor w("w", dtype::bf16, 70, 65);
  const host_matrix clean = random_matrix(17, 65, 0, 1);
  host_matrix dirty = clean;
  dirty.row(5)[9] = std::numeric_limits<float>::quiet_NaN();
  dirty.row(6)[0] = std::numeric_limits<float>::infinity();
  const host_matrix expected = this->product(2, clean, w, {}, filled(17, 70, 0, 0.0F));
  const host_matrix found = this->product(2, dirty, w, {}, filled(17, 70, 0, 0.0F));
  for (std::int32_t r = 0; r < 17; ++r) {
    if (r == 5) {
      EXPECT_TRUE(std::isnan(found.row(r)[0]) && std::isnan(found.row(r)[69]));
    } else if (r == 6) {
      EXPECT_FALSE(std::isfinite(found.row(r)[0]));
    } else {
      EXPECT_TRUE(same_bits(found.slice(r, 1), expected.slice(r, 1))) << r;
    }
  }
}

TYPED_TEST_P(backend_suite, stacked_weights_are_the_weights_side_by_side) {
  const tensor a("a", dtype::bf16, 33, 40);
  const tensor b("b", dtype::bf16, 7, 40);
  const tensor_view va = a.view();
  const tensor_view vb = b.view();
  const tensor_view* const both[] = {&va, &vb};
  const auto w = this->tested.stack_weights(both, weight_format::as_stored);
  const host_matrix x = random_matrix(3, 40, 0, 1);
  auto s = this->tested.make_stream(1);
  const auto dx = this->put(x);
  const auto dy = this->put(filled(3, 40, 0, 0.0F));
  this->tested.linear(s, dx.view(), w, dy.view(), {});
  const host_matrix y = this->get(dy);
  const host_matrix left = this->reference_product(x, a, {}, filled(3, 33, 0, 0.0F));
  const host_matrix right = this->reference_product(x, b, {}, filled(3, 7, 0, 0.0F));
  for (std::int32_t r = 0; r < 3; ++r) {
    for (std::int32_t c = 0; c < 33; ++c) EXPECT_NEAR(y.row(r)[c], left.row(r)[c], 1e-5F);
    for (std::int32_t c = 0; c < 7; ++c) EXPECT_NEAR(y.row(r)[33 + c], right.row(r)[c], 1e-5F);
  }
}

// --- rows ---

TYPED_TEST_P(backend_suite, norms_match_the_reference_and_work_in_place) {
  const cpu b{cpu_level::reference};
  auto rs = b.make_stream(1);
  for (const std::int32_t cols : {1, 3, 16, 31, 64, 100, 577, 768}) {
    for (const std::int32_t rows : {1, 5, 70}) {
      const host_matrix x = random_matrix(rows, cols, 2, 1);
      const host_matrix gamma = random_matrix(1, cols, 0, 2);
      const host_matrix beta = random_matrix(1, cols, 0, 3);
      host_matrix layer = filled(rows, cols, 1, 7.0F);
      host_matrix rms = layer;
      b.layer_norm(rs, x.view(), gamma.values.data(), beta.values.data(), 1e-6F, layer.view());
      b.rms_norm(rs, x.view(), gamma.values.data(), 1e-5F, rms.view());
      const auto dg = this->put(gamma);
      const auto db = this->put(beta);
      for (const std::int32_t threads : {1, 2, 3}) {
        auto s = this->tested.make_stream(threads);
        const auto dx = this->put(x);
        const auto dy = this->put(filled(rows, cols, 1, 7.0F));
        this->tested.layer_norm(s, dx.view(), dg.view().data, db.view().data, 1e-6F, dy.view());
        ASSERT_TRUE(close(this->get(dy), layer, 1e-5F)) << rows << " x " << cols;
        this->tested.rms_norm(s, dx.view(), dg.view().data, 1e-5F, dy.view());
        const host_matrix found = this->get(dy);
        ASSERT_TRUE(close(found, rms, 1e-5F)) << rows << " x " << cols;
        this->tested.rms_norm(s, dx.view(), dg.view().data, 1e-5F, dx.view());
        const host_matrix in_place = this->get(dx);
        for (std::int32_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(same_bits(in_place.slice(r, 1), found.slice(r, 1))) << rows << " x " << cols;
        }
      }
    }
  }
}

TYPED_TEST_P(backend_suite, silu_mul_matches_the_reference) {
  const cpu b{cpu_level::reference};
  auto rs = b.make_stream(1);
  for (const std::int32_t cols : {1, 15, 64, 1001}) {
    for (const std::int32_t rows : {1, 4, 33}) {
      host_matrix x = random_matrix(rows, 2 * cols, 3, 1);
      for (auto& v : x.values) v *= 20.0F;
      host_matrix expected = filled(rows, cols, 2, 7.0F);
      b.silu_mul(rs, x.view(), expected.view());
      auto s = this->tested.make_stream(2);
      const auto dx = this->put(x);
      const auto dy = this->put(filled(rows, cols, 2, 7.0F));
      this->tested.silu_mul(s, dx.view(), dy.view());
      ASSERT_TRUE(close(this->get(dy), expected, 2e-6F)) << rows << " x " << cols;
    }
  }
}

TYPED_TEST_P(backend_suite, operations_that_move_rows_are_exact) {
  const cpu b{cpu_level::reference};
  auto rs = b.make_stream(1);
  auto s = this->tested.make_stream(2);
  for (const std::int32_t cols : {1, 17, 64, 300}) {
    // embed
    const std::vector<std::int32_t> ids{0, 40, 7, 7, 39};
    for (const dtype type : {dtype::f32, dtype::bf16, dtype::f16}) {
      const tensor table("table", type, 41, cols);
      host_matrix expected = filled(5, cols, 2, 7.0F);
      b.embed(rs, ids, b.load_weight(table.view(), weight_format::as_stored), expected.view());
      const auto y = this->put(filled(5, cols, 2, 7.0F));
      this->tested.embed(s, ids, this->tested.load_weight(table.view(), weight_format::as_stored), y.view());
      EXPECT_TRUE(same_bits(this->get(y), expected)) << cols << ' ' << name_of(type);
    }
    // inject: three rows in the middle, one at the end
    const host_matrix images = random_matrix(4, cols, 0, 4);
    const auto di = this->put(images);
    const auto y = this->put(random_matrix(9, cols, 1, 5));
    const std::vector<injected_rows> where{{2, 3, di.view().data}, {8, 1, di.view().row(3)}};
    this->tested.inject(s, where, y.view());
    host_matrix expected = random_matrix(9, cols, 1, 5);
    for (std::int32_t c = 0; c < cols; ++c) {
      for (std::int32_t r = 0; r < 3; ++r) expected.row(2 + r)[c] = images.row(r)[c];
      expected.row(8)[c] = images.row(3)[c];
    }
    EXPECT_TRUE(same_bits(this->get(y), expected)) << cols;
    // gather_rows of the same matrix
    const std::vector<std::int32_t> rows{8, 0, 3, 3};
    const auto g = this->put(filled(4, cols, 0, 7.0F));
    this->tested.gather_rows(s, y.view(), rows, g.view());
    host_matrix gathered = filled(4, cols, 0, 7.0F);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::copy_n(expected.row(rows[r]), cols, gathered.row(static_cast<std::int32_t>(r)));
    }
    EXPECT_TRUE(same_bits(this->get(g), gathered)) << cols;
    // add_rows: a table of three rows on nine
    const host_matrix table = random_matrix(3, cols, 2, 6);
    const auto dt = this->put(table);
    this->tested.add_rows(s, dt.view(), y.view());
    for (std::int32_t r = 0; r < 9; ++r) {
      for (std::int32_t c = 0; c < cols; ++c) expected.row(r)[c] += table.row(r % 3)[c];
    }
    EXPECT_TRUE(same_bits(this->get(y), expected)) << cols;
  }
}

TYPED_TEST_P(backend_suite, vision_rearrangements_match_the_reference) {
  const cpu b{cpu_level::reference};
  auto rs = b.make_stream(1);
  auto s = this->tested.make_stream(2);
  const pixel_tiles tiles = random_tiles(3, 12, 20);
  const std::vector<const std::uint8_t*> pointers{tiles.tile(2), tiles.tile(0)};
  host_matrix patches = filled(2 * 15, 48, 1, 7.0F);
  b.patches(rs, pointers, tiles, 4, patches.view());
  const auto dp = this->put(filled(2 * 15, 48, 1, 7.0F));
  this->tested.patches(s, pointers, tiles, 4, dp.view());
  EXPECT_TRUE(same_bits(this->get(dp), patches));

  const host_matrix x = random_matrix(2 * 36, 5, 2, 1);
  for (const std::int32_t factor : {1, 2, 3, 6}) {
    host_matrix expected = filled(72 / (factor * factor), 5 * factor * factor, 1, 7.0F);
    const auto dx = this->put(x);
    const auto dy = this->put(expected);
    b.pixel_shuffle(rs, x.view(), 6, factor, expected.view());
    this->tested.pixel_shuffle(s, dx.view(), 6, factor, dy.view());
    EXPECT_TRUE(same_bits(this->get(dy), expected)) << factor;
  }
}

// --- attention ---

TYPED_TEST_P(backend_suite, attention_matches_the_reference) {
  const std::int32_t heads[][2] = {{1, 1}, {2, 1}, {3, 3}, {4, 2}, {9, 3}, {15, 5}};
  std::uint32_t variant = 0;
  for (const std::int32_t head_dim : {16, 24, 32, 64, 80, 128}) {
    for (const auto& [query_heads, kv_heads] : heads) {
      for (const std::int32_t block : {1, 16, 100}) {
        ++variant;
        attention_case c;
        c.shape = {query_heads, kv_heads, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))};
        // Contexts around the borders of chunks; pads, rows that belong to nobody, and a sequence that only has pads.
        c.sequences = {{0, 0, 5, 2}, {1, 62 + static_cast<std::int32_t>(variant % 4), 1, 0}, {2, 64, 3, 1}, {3, 190, 7, 0}, {4, 3, 0, 2},
                       {5, 0, 66, 0}};
        c.empty_rows = static_cast<std::int32_t>(variant % 3);
        paged_cache expected_cache(c, block);
        paged_cache cache = expected_cache;
        const host_matrix expected = this->reference_attention(c, expected_cache);
        ASSERT_TRUE(close(this->attention(1 + static_cast<std::int32_t>(variant % 3), c, cache), expected, 2e-5F))
            << query_heads << '/' << kv_heads << " heads of " << head_dim << ", blocks of " << block;
        ASSERT_TRUE(close(cache.as_matrix(), expected_cache.as_matrix(), 1e-6F)) << "keys and values";
      }
    }
  }
}

TYPED_TEST_P(backend_suite, attention_does_not_depend_on_blocks_threads_company_or_chunks) {
  if (!TypeParam::invariant) GTEST_SKIP() << "this backend does not promise equal bits";
  for (const auto& [query_heads, kv_heads, head_dim] : {std::tuple{3, 1, 64}, std::tuple{4, 4, 24}, std::tuple{6, 2, 32}}) {
    attention_case c;
    c.shape = {query_heads, kv_heads, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))};
    c.sequences = {{7, 0, 199, 0}};
    paged_cache alone(c, 200);
    const host_matrix expected = this->attention(1, c, alone);
    for (const std::int32_t block : {1, 16, 32, 100, 256}) {
      for (const std::int32_t threads : {1, 2, 3}) {
        paged_cache cache(c, block);
        ASSERT_TRUE(same_bits(this->attention(threads, c, cache), expected)) << "blocks of " << block << ", " << threads << " threads";
      }
    }
    // In steps of several sizes, the last ones token by token, in company.
    paged_cache cache(c, 16, 4);
    std::int32_t done = 0;
    for (const std::int32_t n : {1, 50, 13, 3, 64, 60, 1, 1, 1, 1, 1, 1, 1, 1}) {
      attention_case part = c;
      part.sequences = {{3, 70 + done % 3, 1, 1}, {7, done, n, done % 2}, {2, 5, 9, 0}};
      part.empty_rows = 1;
      const host_matrix y = this->attention(2, part, cache);
      const std::int32_t first = part.sequences[0].tokens + part.sequences[0].pads;
      ASSERT_TRUE(same_bits(y.slice(first, n), expected.slice(done, n))) << n << " tokens at " << done;
      done += n;
    }
    ASSERT_EQ(done, 199);
  }
}

TYPED_TEST_P(backend_suite, attention_of_bad_rows_leaves_the_others_alone) {
  attention_case c;
  c.shape = {2, 1, 32, 0.2F};
  c.sequences = {{0, 10, 12, 0}, {1, 60, 8, 0}};
  paged_cache cache(c, 16);
  const host_matrix expected = this->attention(2, c, cache);
  c.poisoned_row = 4;  // of sequence 0: its query, key and value are not numbers
  paged_cache again(c, 16);
  const host_matrix found = this->attention(2, c, again);
  for (std::int32_t r = 0; r < c.rows(); ++r) {
    if (r >= 4 && r < 12) {
      for (std::int32_t i = 0; i < found.cols; ++i) EXPECT_TRUE(std::isnan(found.row(r)[i])) << r;
    } else {
      EXPECT_TRUE(same_bits(found.slice(r, 1), expected.slice(r, 1))) << r;
    }
  }
}

TYPED_TEST_P(backend_suite, full_attention_matches_the_reference) {
  const cpu b{cpu_level::reference};
  auto rs = b.make_stream(1);
  for (const auto& [heads, head_dim] : {std::pair{1, 16}, std::pair{3, 32}, std::pair{2, 64}, std::pair{5, 24}, std::pair{2, 80}}) {
    const attention_shape shape{heads, heads, head_dim, 1.0F / std::sqrt(static_cast<float>(head_dim))};
    for (const std::int32_t group : {1, 9, 64, 65, 144, 260}) {
      const host_matrix qkv = random_matrix(3 * group, 3 * heads * head_dim, 2, 1);
      host_matrix expected = filled(3 * group, heads * head_dim, 1, 7.0F);
      b.full_attention(rs, qkv.view(), group, shape, expected.view());
      const host_matrix found = this->full(1, qkv, group, shape);
      ASSERT_TRUE(close(found, expected, 2e-5F)) << heads << " heads of " << head_dim << ", groups of " << group;
      if (!TypeParam::invariant) continue;
      for (const std::int32_t threads : {2, 3}) ASSERT_TRUE(same_bits(this->full(threads, qkv, group, shape), found)) << threads;
      ASSERT_TRUE(same_bits(this->full(1, qkv.slice(group, group), group, shape), found.slice(group, group))) << "alone";
    }
  }
}

REGISTER_TYPED_TEST_SUITE_P(backend_suite, linear_matches_the_reference, linear_of_many_inputs_matches_the_reference,
                            linear_rows_do_not_depend_on_company_or_threads, linear_rows_do_not_depend_on_blocks,
                            not_a_number_stays_in_its_row, stacked_weights_are_the_weights_side_by_side,
                            norms_match_the_reference_and_work_in_place, silu_mul_matches_the_reference,
                            operations_that_move_rows_are_exact, vision_rearrangements_match_the_reference, attention_matches_the_reference,
                            attention_does_not_depend_on_blocks_threads_company_or_chunks, attention_of_bad_rows_leaves_the_others_alone,
                            full_attention_matches_the_reference);

}  // namespace vlbatch::conformance
