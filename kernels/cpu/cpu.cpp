// SPDX-License-Identifier: Apache-2.0
// The public face of the CPU backend: checks shapes once, then calls the table of its level.
#include "vlbatch/backend/cpu.hpp"

#include <cassert>
#include <string>
#include <utility>

#include "cpu/dispatch.hpp"
#include "cpu/kernels.hpp"
#include "cpu/memory.hpp"
#include "cpu/stream.hpp"
#include "cpu/weight.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

[[nodiscard]] std::string shape_text(std::int64_t rows, std::int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

template <class T>
void expect(const char* what, matrix_view<T> found, std::int64_t rows, std::int64_t cols) {
  if (found.rows != rows || found.cols != cols) {
    throw invalid_argument("cpu: " + std::string(what) + " is " + shape_text(found.rows, found.cols) + ", expected " +
                           shape_text(rows, cols));
  }
  assert(found.rows == 0 || found.cols == 0 || (found.data != nullptr && found.stride >= found.cols));
}

void expect_equal(const char* what, std::int64_t found, std::int64_t expected) {
  if (found != expected) {
    throw invalid_argument("cpu: " + std::string(what) + " is " + std::to_string(found) + ", expected " + std::to_string(expected));
  }
}

void expect_divides(const char* what, std::int64_t divisor, std::int64_t number) {
  if (divisor < 1 || number % divisor != 0) {
    throw invalid_argument("cpu: " + std::string(what) + " " + std::to_string(divisor) + " does not divide " + std::to_string(number));
  }
}

void check_heads(const attention_shape& shape) {
  if (shape.num_heads < 1 || shape.head_dim < 1) {
    throw invalid_argument("cpu: attention needs at least 1 head of 1 element, found " + shape_text(shape.num_heads, shape.head_dim));
  }
  expect_divides("number of KV heads", shape.num_kv_heads, shape.num_heads);
}

[[nodiscard]] std::int64_t width_of_qkv(const attention_shape& shape) {
  return (static_cast<std::int64_t>(shape.num_heads) + 2 * shape.num_kv_heads) * shape.head_dim;
}

void check_cache(std::int32_t rows, const attention_shape& shape, const row_map& map, const paged_kv_view& kv, std::int32_t layer) {
  const auto sequences = static_cast<std::size_t>(map.num_sequences);
  if (map.rows != rows || map.row_begin.size() < sequences + 1 || map.num_tokens.size() < sequences || map.context.size() < sequences) {
    throw invalid_argument("cpu: row map of " + std::to_string(map.num_sequences) + " sequences and " + std::to_string(map.rows) +
                           " rows, expected " + std::to_string(rows) + " rows and as many entries as sequences");
  }
  expect_equal("sequences of the KV view", kv.num_sequences, map.num_sequences);
  expect_equal("KV heads of the cache", kv.shape.num_kv_heads, shape.num_kv_heads);
  expect_equal("head size of the cache", kv.shape.head_dim, shape.head_dim);
  if (kv.shape.type != dtype::f32) {
    throw invalid_argument("cpu: the cache holds " + std::string(name_of(kv.shape.type)) + ", expected " + name_of(dtype::f32));
  }
  if (layer < 0 || layer >= kv.shape.num_layers) {
    throw invalid_argument("cpu: layer " + std::to_string(layer) + " of a cache of " + std::to_string(kv.shape.num_layers) + " layers");
  }
  const std::int64_t capacity = static_cast<std::int64_t>(kv.max_blocks) * kv.block_size;
  for (std::size_t s = 0; s < sequences; ++s) {
    const std::int64_t needed = static_cast<std::int64_t>(map.context[s]) + map.num_tokens[s];
    if (map.num_tokens[s] > 0 && needed > capacity) {
      throw invalid_argument("cpu: sequence " + std::to_string(s) + " of the batch needs " + std::to_string(needed) +
                             " tokens of KV, its blocks hold " + std::to_string(capacity));
    }
    assert(map.row_begin[s] >= 0 && map.num_tokens[s] >= 0 && map.context[s] >= 0);
    assert(map.row_begin[s] + map.num_tokens[s] <= map.row_begin[s + 1] && map.row_begin[s + 1] <= map.rows);
  }
}

// How the products of a level want their weights.
[[nodiscard]] weight_layout layout_of(cpu_level level) {
  if (level == cpu_level::reference) return weight_layout::rows;
  return level >= cpu_level::avx512_bf16 ? weight_layout::tiles : weight_layout::panels;
}

[[nodiscard]] const cpu::weight::impl& checked(const cpu::weight& w) {
  if (w.out() == 0) throw invalid_argument("cpu: the weight was never loaded, expected [out, in] with out > 0");
  return w.get();
}

}  // namespace

cpu::stream::stream(std::unique_ptr<impl> p) noexcept : impl_(std::move(p)) {}
cpu::stream::stream(stream&&) noexcept = default;
cpu::stream& cpu::stream::operator=(stream&&) noexcept = default;
cpu::stream::~stream() = default;
std::int32_t cpu::stream::threads() const noexcept { return impl_->team.size(); }

cpu::weight::weight(std::shared_ptr<const impl> p) noexcept : impl_(std::move(p)) {}
std::int32_t cpu::weight::out() const noexcept { return impl_ ? impl_->out : 0; }
std::int32_t cpu::weight::in() const noexcept { return impl_ ? impl_->in : 0; }
std::int64_t cpu::weight::bytes() const noexcept { return impl_ ? impl_->stored() * size_of(impl_->type) : 0; }

cpu::cpu(cpu_level level) : kernels_(&kernels_for(level)) {}
cpu_level cpu::level() const noexcept { return kernels_->level; }

cpu::stream cpu::make_stream(std::int32_t threads) const {
  constexpr std::int32_t limit = 1024;
  if (threads < 1 || threads > limit) {
    throw invalid_argument("cpu: a stream of " + std::to_string(threads) + " threads, expected 1 to " + std::to_string(limit));
  }
  return stream(std::make_unique<stream::impl>(threads));
}

cpu::buffer cpu::allocate(std::int64_t bytes) const { return allocate_zeroed(bytes); }

cpu::weight cpu::load_weight(const tensor_view& t, weight_format format, weight_use use) const {
  const tensor_view* const one[] = {&t};
  return weight(pack_weight(one, format, use == weight_use::product ? layout_of(level()) : weight_layout::rows));
}

cpu::weight cpu::stack_weights(std::span<const tensor_view* const> ts, weight_format format) const {
  return weight(pack_weight(ts, format, layout_of(level())));
}

void cpu::linear(stream& s, matrix_view<const float> x, const weight& w, matrix_view<float> y, const linear_epilogue& e) const {
  const weight::impl& packed = checked(w);
  expect("input of a product", x, x.rows, packed.in);
  expect("result of a product", y, x.rows, packed.out);
  const bool foreign = packed.layout == weight_layout::tiles && level() < cpu_level::avx512_bf16;
  if (level() != cpu_level::reference && (packed.layout == weight_layout::rows || foreign)) {
    throw invalid_argument("cpu: a product at level " + std::string(name_of(level())) + " with a weight " +
                           shape_text(packed.out, packed.in) + " that was loaded " + (foreign ? "at level avx512_bf16 or amx" : "as rows") +
                           ", expected weight_use::product and this level");
  }
  if (x.rows > 0) kernels_->linear(s.get(), x, packed, y, e);
}

void cpu::layer_norm(stream& s, matrix_view<const float> x, const float* gamma, const float* beta, float eps, matrix_view<float> y) const {
  expect("result of layer_norm", y, x.rows, x.cols);
  kernels_->layer_norm(s.get(), x, gamma, beta, eps, y);
}

void cpu::rms_norm(stream& s, matrix_view<const float> x, const float* gamma, float eps, matrix_view<float> y) const {
  expect("result of rms_norm", y, x.rows, x.cols);
  kernels_->rms_norm(s.get(), x, gamma, eps, y);
}

void cpu::silu_mul(stream& s, matrix_view<const float> gate_up, matrix_view<float> y) const {
  expect("input of silu_mul", gate_up, y.rows, 2 * static_cast<std::int64_t>(y.cols));
  kernels_->silu_mul(s.get(), gate_up, y);
}

void cpu::embed(stream& s, std::span<const std::int32_t> ids, const weight& table, matrix_view<float> y) const {
  const weight::impl& packed = checked(table);
  expect("result of embed", y, static_cast<std::int64_t>(ids.size()), packed.in);
  for ([[maybe_unused]] const auto id : ids) assert(id >= 0 && id < packed.out);
  kernels_->embed(s.get(), ids, packed, y);
}

void cpu::inject(stream& s, std::span<const injected_rows> images, matrix_view<float> y) const {
  for (const injected_rows& image : images) {
    if (image.first_row < 0 || image.num_rows < 0 || image.num_rows > y.rows - image.first_row) {
      throw invalid_argument("cpu: image rows [" + std::to_string(image.first_row) + ", +" + std::to_string(image.num_rows) +
                             ") of a matrix " + shape_text(y.rows, y.cols));
    }
  }
  kernels_->inject(s.get(), images, y);
}

void cpu::rope_store(stream& s, matrix_view<float> qkv, std::span<const std::int32_t> positions, float theta, const attention_shape& shape,
                     const row_map& map, const paged_kv_view& kv, std::int32_t layer) const {
  check_heads(shape);
  expect_divides("2, for pairs of elements,", 2, shape.head_dim);
  expect("input of rope_store", qkv, qkv.rows, width_of_qkv(shape));
  expect_equal("number of positions", static_cast<std::int64_t>(positions.size()), qkv.rows);
  check_cache(qkv.rows, shape, map, kv, layer);
  for ([[maybe_unused]] const auto p : positions) assert(p >= 0);
  kernels_->rope_store(s.get(), qkv, positions, theta, shape, map, kv, layer);
}

void cpu::causal_attention(stream& s, matrix_view<const float> qkv, const attention_shape& shape, const row_map& map,
                           const paged_kv_view& kv, std::int32_t layer, matrix_view<float> y) const {
  check_heads(shape);
  expect("input of causal_attention", qkv, qkv.rows, width_of_qkv(shape));
  expect("result of causal_attention", y, qkv.rows, static_cast<std::int64_t>(shape.num_heads) * shape.head_dim);
  check_cache(qkv.rows, shape, map, kv, layer);
  kernels_->causal_attention(s.get(), qkv, shape, map, kv, layer, y);
}

void cpu::full_attention(stream& s, matrix_view<const float> qkv, std::int32_t group, const attention_shape& shape,
                         matrix_view<float> y) const {
  check_heads(shape);
  expect_equal("number of KV heads of full_attention", shape.num_kv_heads, shape.num_heads);
  expect("input of full_attention", qkv, qkv.rows, width_of_qkv(shape));
  expect("result of full_attention", y, qkv.rows, static_cast<std::int64_t>(shape.num_heads) * shape.head_dim);
  expect_divides("rows of a group", group, qkv.rows);
  kernels_->full_attention(s.get(), qkv, group, shape, y);
}

void cpu::patches(stream& s, std::span<const std::uint8_t* const> tiles, const pixel_tiles& like, std::int32_t patch,
                  matrix_view<float> y) const {
  expect_divides("patch size", patch, like.height);
  expect_divides("patch size", patch, like.width);
  const std::int64_t a_tile = static_cast<std::int64_t>(like.height / patch) * (like.width / patch);
  expect("result of patches", y, static_cast<std::int64_t>(tiles.size()) * a_tile, 3LL * patch * patch);
  kernels_->patches(s.get(), tiles, like, patch, y);
}

void cpu::add_rows(stream& s, matrix_view<const float> table, matrix_view<float> y) const {
  expect("table of add_rows", table, table.rows, y.cols);
  expect_divides("rows of the table of add_rows", table.rows, y.rows);
  kernels_->add_rows(s.get(), table, y);
}

void cpu::pixel_shuffle(stream& s, matrix_view<const float> x, std::int32_t side, std::int32_t factor, matrix_view<float> y) const {
  expect_divides("shuffle factor", factor, side);
  const std::int64_t a_tile = static_cast<std::int64_t>(side) * side;
  expect_divides("patches of a tile", a_tile, x.rows);
  const std::int64_t merged = static_cast<std::int64_t>(factor) * factor;
  expect("result of pixel_shuffle", y, x.rows / merged, x.cols * merged);
  kernels_->pixel_shuffle(s.get(), x, side, factor, y);
}

void cpu::gather_rows(stream& s, matrix_view<const float> x, std::span<const std::int32_t> rows, matrix_view<float> y) const {
  expect("result of gather_rows", y, static_cast<std::int64_t>(rows.size()), x.cols);
  for ([[maybe_unused]] const auto r : rows) assert(r >= 0 && r < x.rows);
  kernels_->gather_rows(s.get(), x, rows, y);
}

}  // namespace vlbatch::inline v0
