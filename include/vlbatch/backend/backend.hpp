// SPDX-License-Identifier: Apache-2.0
/// \file
/// The backend concept: buffers, opaque weights, and the list of operations that a model skeleton is written with.
///
/// A backend is a small value (a handle to a device and its options) whose operations take a `stream`: an execution context of its own
/// (threads and scratch on the CPU, a stream on a GPU). Operations on one stream run in order; streams are independent, so that a vision
/// lane may encode while the engine decodes. Every operation has a plain-loop definition in `kernels/cpu/reference`, which is its meaning;
/// `tests/conformance/backend_suite.hpp` holds every backend to it. All activations are f32 matrices in backend memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>

#include "vlbatch/core/batch.hpp"
#include "vlbatch/core/matrix_view.hpp"
#include "vlbatch/core/prepared_request.hpp"
#include "vlbatch/core/types.hpp"
#include "vlbatch/io/safetensors.hpp"
#include "vlbatch/kv/kv_view.hpp"

namespace vlbatch::inline v0 {

/// What follows a matrix product in the same pass: `y = act(x W^T + bias)`, or `y += act(x W^T + bias)` when \p accumulate.
struct linear_epilogue {
  /// Activation functions that a product can end with.
  enum class activation : std::uint8_t { none, gelu_tanh };
  const float* bias = nullptr;        ///< `[out]` in backend memory, or none
  activation act = activation::none;  ///< applied after the bias
  bool accumulate = false;            ///< add to what y holds (residual), instead of overwriting it
};

/// How a weight is kept: as stored in the checkpoint (f16 becomes f32), or as asked for.
enum class weight_format : std::uint8_t { as_stored, f32, bf16 };

/// Shape of causal attention: grouped queries share KV heads.
struct attention_shape {
  std::int32_t num_heads = 0;     ///< query heads
  std::int32_t num_kv_heads = 0;  ///< divides num_heads
  std::int32_t head_dim = 0;      ///< elements of a head
  float scale = 0.0F;             ///< factor on q.k, usually 1/sqrt(head_dim)
};

// clang-format off
/// A type that can run a model.
///
/// Semantics (M rows, all matrices row-major f32, `s` a stream):
/// - `linear(s, x[M,K], w, y[M,N], epilogue)`: y = x W^T with W `[N,K]`; every element accumulates over k in ascending order.
/// - `layer_norm(s, x[M,C], gamma[C], beta[C], eps, y[M,C])`, `rms_norm(s, x[M,C], gamma[C], eps, y[M,C])`.
/// - `silu_mul(s, gate_up[M,2I], y[M,I])`: y = silu(gate) * up, gate in the first I columns.
/// - `embed(s, ids[M], w, y[M,C])`: rows of the embedding table W `[V,C]`; an id outside `[0,V)` is a precondition violation, checked by the engine.
/// - `inject(s, images, y[M,C])`: overwrites rows with image embeddings.
/// - `rope_store(s, qkv[M,(H+2G)D], positions[M], theta, shape, map, kv, layer)`: rotates q and k in place (pairs (i, i + D/2), the Llama convention) and stores
///   k and v of real rows in the cache; pads and empty rows are left alone.
/// - `causal_attention(s, qkv, shape, map, kv, layer, y[M,H*D])`: each real row attends to the keys of its sequence at positions up to its own;
///   rows without a token get zeros. Keys are walked in fixed chunks of 64 aligned at absolute positions, so the bits do not depend on block size, chunking or company.
/// - `full_attention(s, qkv[T*P,3HD], group = P, shape, y[T*P,H*D])`: bidirectional inside each group of P rows (one tile).
/// - `patches(s, tiles, patch, y[T*P,3*patch*patch])`: cuts tiles into patches in the order (channel, y, x), normalised by the tiles' table.
/// - `add_rows(s, table[P,C], y[T*P,C])`: adds row r % P of the table to row r (position embeddings).
/// - `pixel_shuffle(s, x[T*P,C], side, factor, y[T*P/f^2, C*f^2])`: Idefics3's: f x f neighbouring patches become one row.
/// - `gather_rows(s, x[M,C], rows[W], y[W,C])`.
/// - `load_weight(view of W[N,K], format)`, `stack_weights({W1[N1,K], W2[N2,K], ...}, format)`: weights merged along N.
/// - `make_stream(threads)`, `allocate(bytes)` (64-byte aligned at least; shared ownership), `upload(host, n)`.
///
/// Bits: an element of a result has one sequence of operations, whatever M, the other rows and the number of threads are ("row invariance").
/// Thread safety: const members may be called from several threads with different streams.
template <class B>
concept backend = std::copyable<B> && requires(
    const B b, typename B::stream& s, const typename B::weight& w, const tensor_view& t, std::span<const tensor_view* const> ts,
    matrix_view<const float> x, matrix_view<float> y, const float* v, std::span<const std::int32_t> ids, std::span<const injected_rows> images,
    const row_map& map, const paged_kv_view& kv, const attention_shape& shape, std::span<const std::uint8_t* const> tiles, const pixel_tiles& pixels) {
  { B::name() } -> std::convertible_to<std::string_view>;
  { b.make_stream(1) } -> std::same_as<typename B::stream>;
  { b.load_weight(t, weight_format::as_stored) } -> std::same_as<typename B::weight>;
  { b.stack_weights(ts, weight_format::as_stored) } -> std::same_as<typename B::weight>;
  b.allocate(std::int64_t{});
  b.linear(s, x, w, y, linear_epilogue{});
  b.layer_norm(s, x, v, v, 1e-6F, y);
  b.rms_norm(s, x, v, 1e-5F, y);
  b.silu_mul(s, x, y);
  b.embed(s, ids, w, y);
  b.inject(s, images, y);
  b.rope_store(s, y, ids, 1e4F, shape, map, kv, 0);
  b.causal_attention(s, x, shape, map, kv, 0, y);
  b.full_attention(s, x, 1, shape, y);
  b.patches(s, tiles, pixels, 1, y);
  b.add_rows(s, x, y);
  b.pixel_shuffle(s, x, 1, 1, y);
  b.gather_rows(s, x, ids, y);
};
// clang-format on

}  // namespace vlbatch::inline v0
