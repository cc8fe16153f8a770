// SPDX-License-Identifier: Apache-2.0
/// \file
/// The CPU backend: plain reference loops, and vectorised kernels chosen at run time. Declared here, defined in the compiled library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "vlbatch/backend/backend.hpp"

namespace vlbatch::inline v0 {

/// Instruction sets that the CPU kernels exist for. Bits may differ between them; within one they never do.
enum class cpu_level : std::uint8_t {
  best,         ///< the fastest that this machine runs
  reference,    ///< plain loops: the definition of every operation
  scalar,       ///< the vectorised code without vector instructions
  avx2,         ///< 256-bit vectors with FMA
  avx512,       ///< 512-bit vectors
  avx512_bf16,  ///< `avx512`, and products with bf16 weights by dot products of bf16 pairs: their inputs are rounded to bf16 (nearest, ties
                ///< to even), the sums are f32
  amx           ///< `avx512`, and products with bf16 weights in the matrix unit, with inputs rounded in the same way
};

/// Spelling for options and reports.
[[nodiscard]] std::string_view name_of(cpu_level level) noexcept;
/// Levels that this machine can run, slowest first (but Intel's avx512_bf16 is slower than avx512), `best` left out.
[[nodiscard]] std::span<const cpu_level> available_cpu_levels() noexcept;

/// What a weight is loaded for.
enum class weight_use : std::uint8_t {
  product,  ///< `linear`, and `embed` slowly: columns are packed for the products of the level that loads it
  rows      ///< `embed` only: a table of rows, as large as in the checkpoint. A tied table is loaded once for each use if memory allows
};

struct cpu_kernels;  // table of one level's operations, private to the compiled library

/// CPU backend. A copyable handle without state of its own: all state lies in streams and weights.
class cpu {
 public:
  /// Execution context: a team of threads and scratch memory. Not thread-safe; one for each engine and each lane. Movable.
  class stream {
   public:
    stream(stream&&) noexcept;
    stream& operator=(stream&&) noexcept;
    ~stream();
    /// Threads that work on an operation, the caller's included.
    [[nodiscard]] std::int32_t threads() const noexcept;
    struct impl;  ///< defined in the compiled library
    /// Access for kernels.
    [[nodiscard]] impl& get() noexcept { return *impl_; }

   private:
    friend class cpu;
    explicit stream(std::unique_ptr<impl> p) noexcept;
    std::unique_ptr<impl> impl_;
  };

  /// Packed weight `[out, in]`, immutable, shared by copies.
  class weight {
   public:
    weight() = default;
    /// Rows of W: outputs.
    [[nodiscard]] std::int32_t out() const noexcept;
    /// Columns of W: inputs.
    [[nodiscard]] std::int32_t in() const noexcept;
    /// Bytes that one pass over it reads.
    [[nodiscard]] std::int64_t bytes() const noexcept;
    struct impl;  ///< defined in the compiled library
    /// Access for kernels.
    [[nodiscard]] const impl& get() const noexcept { return *impl_; }

   private:
    friend class cpu;
    explicit weight(std::shared_ptr<const impl> p) noexcept;
    std::shared_ptr<const impl> impl_;
  };

  /// Shared block of floats or bytes, 64-byte aligned.
  using buffer = std::shared_ptr<std::byte>;

  /// \throws invalid_argument if this machine cannot run \p level, naming it and the best that it can
  explicit cpu(cpu_level level = cpu_level::best);

  /// "cpu"
  [[nodiscard]] static constexpr std::string_view name() noexcept { return "cpu"; }
  /// The level in use, never `best`.
  [[nodiscard]] cpu_level level() const noexcept;

  /// New context with \p threads threads (at least 1; the calling thread is one of them).
  [[nodiscard]] stream make_stream(std::int32_t threads) const;
  /// Zeroed memory of \p bytes. \throws device_error naming how much was wanted
  [[nodiscard]] buffer allocate(std::int64_t bytes) const;

  /// Packs a two-dimensional (or flattened higher-dimensional: first axis out, rest in) tensor of floats. \throws model_error on another
  /// shape or number type, naming file and tensor
  [[nodiscard]] weight load_weight(const tensor_view& t, weight_format format, weight_use use = weight_use::product) const;
  /// Packs several with equal `in`, one below the other. Stored as f32 unless all are bf16 or bf16 is asked for. \throws model_error naming
  /// both if `in` differs
  [[nodiscard]] weight stack_weights(std::span<const tensor_view* const> ts, weight_format format) const;

  // Operations, as documented at the concept `backend`. Each throws invalid_argument naming both shapes if they do not fit, before anything
  // is written. Inputs and outputs must not overlap, except that the norms may work in place.
  /// y = act(x W^T + bias), or y += .
  void linear(stream& s, matrix_view<const float> x, const weight& w, matrix_view<float> y, const linear_epilogue& e) const;
  /// Layer normalisation of rows.
  void layer_norm(stream& s, matrix_view<const float> x, const float* gamma, const float* beta, float eps, matrix_view<float> y) const;
  /// Root-mean-square normalisation of rows.
  void rms_norm(stream& s, matrix_view<const float> x, const float* gamma, float eps, matrix_view<float> y) const;
  /// y = silu(gate) * up.
  void silu_mul(stream& s, matrix_view<const float> gate_up, matrix_view<float> y) const;
  /// Rows of the embedding table.
  void embed(stream& s, std::span<const std::int32_t> ids, const weight& table, matrix_view<float> y) const;
  /// Overwrites rows with image embeddings.
  void inject(stream& s, std::span<const injected_rows> images, matrix_view<float> y) const;
  /// Rotates q and k, stores k and v.
  void rope_store(stream& s, matrix_view<float> qkv, std::span<const std::int32_t> positions, float theta, const attention_shape& shape,
                  const row_map& map, const paged_kv_view& kv, std::int32_t layer) const;
  /// Causal attention over the cache.
  void causal_attention(stream& s, matrix_view<const float> qkv, const attention_shape& shape, const row_map& map, const paged_kv_view& kv,
                        std::int32_t layer, matrix_view<float> y) const;
  /// Bidirectional attention inside groups of rows.
  void full_attention(stream& s, matrix_view<const float> qkv, std::int32_t group, const attention_shape& shape,
                      matrix_view<float> y) const;
  /// Cuts tiles (`[height, width, 3]` bytes each, geometry and table of \p like) into patches.
  void patches(stream& s, std::span<const std::uint8_t* const> tiles, const pixel_tiles& like, std::int32_t patch,
               matrix_view<float> y) const;
  /// Adds a repeating table of rows.
  void add_rows(stream& s, matrix_view<const float> table, matrix_view<float> y) const;
  /// Idefics3's pixel shuffle.
  void pixel_shuffle(stream& s, matrix_view<const float> x, std::int32_t side, std::int32_t factor, matrix_view<float> y) const;
  /// Copies the named rows.
  void gather_rows(stream& s, matrix_view<const float> x, std::span<const std::int32_t> rows, matrix_view<float> y) const;

 private:
  const cpu_kernels* kernels_;
};

static_assert(backend<cpu>);

}  // namespace vlbatch::inline v0
