// SPDX-License-Identifier: Apache-2.0
// Attention with a running softmax over chunks of 64 keys (the online softmax of Milakov and Gimelshein, 2018, in the blocked form of
// FlashAttention, Dao et al., 2022).
//
// Chunks are aligned at absolute positions, so that a query walks the same chunks in the same order whatever the block size of the cache,
// the cut of a prefill, the company and the number of threads are. Within a chunk: a score is one chain of FMAs over the head's elements;
// the largest score and the sum of the weights of 64 keys come from whole vectors in which keys that do not count have score -infinity and
// weight 0; the weighted sum of values is one chain of FMAs over ascending keys, continued from chunk to chunk. Keys and values that do not
// count are never read into arithmetic.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/simd/attention.cpp"
// clang-format off: the targets come first
#include "cpu/simd/targets.hpp"
#include "hwy/foreach_target.h"
// clang-format on

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/kv_access.hpp"
#include "cpu/simd/math-inl.hpp"
#include "cpu/simd/multiply-inl.hpp"
#include "hwy/highway.h"

#ifndef VLBATCH_ATTENTION_TASK
#define VLBATCH_ATTENTION_TASK
namespace vlbatch::inline v0 {

/// Work of one thread: one KV head and some queries of one sequence, in the order (position, head of the group).
struct attention_task {
  std::int32_t sequence = 0;  ///< of the batch, or group of rows
  std::int32_t head = 0;      ///< KV head
  std::int32_t first = 0;     ///< first query row of the sequence
  std::int32_t count = 0;     ///< query rows
};

}  // namespace vlbatch::inline v0
#endif

HWY_BEFORE_NAMESPACE();
namespace vlbatch::inline v0::HWY_NAMESPACE {
namespace {

constexpr std::int32_t chunk = attention_chunk;
/// Rows of a register tile.
constexpr std::int32_t tile_rows = accumulators / 2;
/// Queries (positions times heads of a group) that share the transposition of a chunk's keys.
constexpr std::int32_t max_queries = 8 * tile_rows;
/// Vectors of a chunk's scores.
constexpr std::int32_t score_vectors = chunk / lanes;

/// One chunk of keys and values of one KV head.
struct key_chunk {
  const float* keys[chunk];    ///< `[head_dim]` each, `size` of them
  const float* values[chunk];  ///< `[head_dim]` each
  std::int32_t size = 0;       ///< keys that exist
  std::int32_t first = 0;      ///< absolute position of the first
};

/// Memory of one thread.
struct workspace {
  std::int32_t padded;  ///< head_dim, rounded up to whole vectors
  float* transposed;    ///< `[head_dim][64]` keys of the chunk, zeros where there is none
  float* values;        ///< `[64][padded]` values of the chunk, where they do not lie densely
  float* zeros;         ///< `[head_dim]`
  float* scores;        ///< `[tile_rows][64]`
  float* queries;       ///< `[max_queries][padded]`, scaled
  float* sums;          ///< `[max_queries][padded]` weighted values so far
  float* highest;       ///< `[max_queries]` largest score so far
  float* totals;        ///< `[max_queries][lanes]` sums of weights so far, still to be added up

  [[nodiscard]] static std::int32_t pad(std::int32_t head_dim) { return ceil_div(head_dim, lanes) * lanes; }
  [[nodiscard]] static std::int64_t floats(std::int32_t head_dim) {
    return static_cast<std::int64_t>(pad(head_dim)) * (2 * chunk + 1 + 2 * max_queries) + tile_rows * chunk + max_queries * (lanes + 1);
  }
  workspace(float* memory, std::int32_t head_dim) : padded(pad(head_dim)) {
    const auto take = [&memory](std::int64_t n) {
      float* p = memory;
      memory += n;
      return p;
    };
    transposed = take(static_cast<std::int64_t>(padded) * chunk);
    values = take(static_cast<std::int64_t>(padded) * chunk);
    queries = take(static_cast<std::int64_t>(padded) * max_queries);
    sums = take(static_cast<std::int64_t>(padded) * max_queries);
    scores = take(tile_rows * chunk);
    zeros = take(padded);
    highest = take(max_queries);
    totals = take(max_queries * lanes);
    std::fill_n(zeros, padded, 0.0F);
  }
};

/// Four elements of each of `lanes` rows as four vectors: vector e, stored at `to + e * chunk`, has element `at + e` of row i in lane i.
HWY_INLINE void transpose_four(const float* const* row, std::int32_t at, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int32_t e = 0; e < 4; ++e) to[e * chunk] = row[0][at + e];
#else
  const float_tag d;
  const hn::Repartition<std::uint64_t, float_tag> dw;
  const hn::Half<float_tag> dh;
  // Block b of vector i holds the four elements of row 4 b + i.
  float_vector v[4];
  VLBATCH_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (lanes == 4) {
      v[i] = hn::LoadU(d, row[i] + at);
    } else if constexpr (lanes == 8) {
      v[i] = hn::Combine(d, hn::LoadU(dh, row[i + 4] + at), hn::LoadU(dh, row[i] + at));
    } else {
      const hn::Half<hn::Half<float_tag>> dq;
      v[i] = hn::Combine(d, hn::Combine(dh, hn::LoadU(dq, row[i + 12] + at), hn::LoadU(dq, row[i + 8] + at)),
                         hn::Combine(dh, hn::LoadU(dq, row[i + 4] + at), hn::LoadU(dq, row[i] + at)));
    }
  }
  const auto low01 = hn::BitCast(dw, hn::InterleaveLower(d, v[0], v[1]));
  const auto low23 = hn::BitCast(dw, hn::InterleaveLower(d, v[2], v[3]));
  const auto high01 = hn::BitCast(dw, hn::InterleaveUpper(d, v[0], v[1]));
  const auto high23 = hn::BitCast(dw, hn::InterleaveUpper(d, v[2], v[3]));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(dw, low01, low23)), d, to);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(dw, low01, low23)), d, to + chunk);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(dw, high01, high23)), d, to + 2 * chunk);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(dw, high01, high23)), d, to + 3 * chunk);
#endif
}

/// Keys of a chunk as `[head_dim][64]`, with zeros for keys that do not exist.
void transpose_keys(key_chunk& c, std::int32_t head_dim, const workspace& w) {
  const std::int32_t columns = ceil_div(c.size, lanes) * lanes;
  for (std::int32_t j = c.size; j < columns; ++j) c.keys[j] = w.zeros;
  for (std::int32_t j = 0; j < columns; j += lanes) {
    std::int32_t e = 0;
    for (; e + 4 <= head_dim; e += 4) transpose_four(c.keys + j, e, w.transposed + e * chunk + j);
    for (; e < head_dim; ++e) {
      for (std::int32_t i = 0; i < lanes; ++i) w.transposed[e * chunk + j + i] = c.keys[j + i][e];
    }
  }
}

/// Copies the values of a chunk into rows of whole vectors.
void gather_values(key_chunk& c, std::int32_t head_dim, const workspace& w) {
  for (std::int32_t j = 0; j < c.size; ++j) {
    float* to = w.values + static_cast<std::int64_t>(j) * w.padded;
    for (std::int32_t e = 0; e < w.padded; e += lanes) hn::Store(load_some(c.values[j] + e, head_dim - e), float_tag(), to + e);
    c.values[j] = to;
  }
}

/// Scores of \p rows queries with the chunk's keys.
HWY_INLINE void score(const float* queries, std::int32_t rows, const key_chunk& c, std::int32_t head_dim, const workspace& w) {
  const auto sweep = [&](auto vectors) HWY_ATTR {
    constexpr int n = decltype(vectors)::value;
    for (std::int32_t j = 0; j < c.size; j += n * lanes) {
      tile_kernels<plain_columns<n>>::of(rows)(queries, w.padded, {w.transposed + j, chunk}, head_dim, w.scores + j, chunk, false);
    }
  };
  // Few rows take more keys at once, so that enough chains are in flight.
  if (rows <= accumulators / 4 && c.size > 2 * lanes) {
    sweep(std::integral_constant<int, 4>());
  } else {
    sweep(std::integral_constant<int, 2>());
  }
}

/// Turns the scores of one query into weights, and rescales what it has summed so far. \p valid keys count, and lie in the first \p
/// Quarters quarters of the chunk: the others would add zeros.
template <int Quarters>
HWY_NOINLINE void weigh(float* scores, std::int32_t valid, float* sums, float& highest, float* total, std::int32_t padded) {
  const float_tag d;
  constexpr int vectors = Quarters * score_vectors / 4;
  constexpr float nothing = -std::numeric_limits<float>::infinity();
  float_vector s[bound<vectors>];
  VLBATCH_UNROLL
  for (int v = 0; v < vectors; ++v) s[v] = hn::Load(d, scores + v * lanes);
  if (valid < vectors * lanes) {
    VLBATCH_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const auto n = static_cast<std::size_t>(std::clamp(valid - v * lanes, 0, lanes));
      s[v] = hn::IfThenElse(hn::FirstN(d, n), s[v], hn::Set(d, nothing));
    }
  }
  float_vector top = hn::Set(d, highest);
  VLBATCH_UNROLL
  for (int v = 0; v < vectors; ++v) top = hn::Max(top, s[v]);
  const float largest = hn::GetLane(hn::MaxOfLanes(d, top));
  // Scores that are all -infinity (infinite inputs) weigh nothing, instead of -infinity minus itself.
  const float_vector shift = hn::Set(d, largest == nothing ? 0.0F : largest);
  float_vector sum = hn::Load(d, total);
  // Most chunks bring no larger score; a factor of 1 would change nothing.
  if (largest != highest) {
    const float_vector rescale = exp2_of_negative(hn::Sub(hn::Set(d, highest), shift));
    sum = hn::Mul(sum, rescale);
    for (std::int32_t e = 0; e < padded; e += lanes) hn::Store(hn::Mul(hn::Load(d, sums + e), rescale), d, sums + e);
    highest = largest;
  }
  VLBATCH_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const float_vector p = exp2_of_negative(hn::Sub(s[v], shift));
    hn::Store(p, d, scores + v * lanes);
    sum = hn::Add(sum, p);
  }
  hn::Store(sum, d, total);
}

/// sums[rows] += scores[rows][from, to) * values[from, to), walking runs of values that lie one after the other.
HWY_INLINE void add_values(const float* scores, std::int32_t rows, const key_chunk& c, std::int32_t from, std::int32_t to, float* sums,
                           std::int32_t padded) {
  while (from < to) {
    std::int32_t end = from + 1;
    while (end < to && c.values[end] == c.values[end - 1] + padded) ++end;
    const std::int32_t vectors = padded / lanes;
    std::int32_t v = 0;
    const auto sweep = [&](auto width) HWY_ATTR {
      constexpr int n = decltype(width)::value;
      using kernels = tile_kernels<plain_columns<n>>;
      for (; v + n <= vectors; v += n) {
        for (std::int32_t r = 0; r < rows; r += kernels::max_rows) {
          kernels::of(std::min(rows - r, kernels::max_rows))(scores + r * chunk + from, chunk, {c.values[from] + v * lanes, padded},
                                                             end - from, sums + r * padded + v * lanes, padded, true);
        }
      }
    };
    if (rows <= accumulators / 4) sweep(std::integral_constant<int, 4>());
    sweep(std::integral_constant<int, 2>());
    sweep(std::integral_constant<int, 1>());
    from = end;
  }
}

/// One chunk for the queries `[first, first + count)` of the workspace; \p limit(r) is how many keys query r sees, never falling with r.
template <class Limit>
void attend_chunk(key_chunk& c, std::int32_t first, std::int32_t count, const Limit& limit, std::int32_t head_dim, const workspace& w) {
  for (std::int32_t r = first; r < first + count; r += tile_rows) {
    const std::int32_t rows = std::min(tile_rows, first + count - r);
    float* sums = w.sums + static_cast<std::int64_t>(r) * w.padded;
    const auto valid = [&](std::int32_t i) { return std::min(c.size, limit(r + i) - c.first); };
    score(w.queries + static_cast<std::int64_t>(r) * w.padded, rows, c, head_dim, w);
    constexpr decltype(&weigh<1>) weigh_quarters[] = {weigh<1>, weigh<2>, weigh<3>, weigh<4>};
    for (std::int32_t i = 0; i < rows; ++i) {
      const std::int32_t n = valid(i);
      weigh_quarters[(n - 1) * 4 / chunk](w.scores + i * chunk, n, sums + i * w.padded, w.highest[r + i], w.totals + (r + i) * lanes,
                                          w.padded);
    }
    // What all see together, then the rest of each: a value that a query does not see may be anything, and 0 times it too.
    const std::int32_t common = valid(0);
    add_values(w.scores, rows, c, 0, common, sums, w.padded);
    for (std::int32_t i = 0; i < rows; ++i) {
      add_values(w.scores + i * chunk, 1, c, common, valid(i), sums + i * w.padded, w.padded);
    }
  }
}

/// Queries of a task: heads of a group side by side, one position after the other.
struct query_rows {
  matrix_view<const float> qkv;
  matrix_view<float> y;
  std::int32_t first_row;   ///< row of the first query's position
  std::int32_t first_head;  ///< first head of the group
  std::int32_t heads;       ///< heads of the group
  std::int32_t count;       ///< queries
};

void load_queries(const query_rows& q, const attention_shape& shape, const workspace& w) {
  const float_tag d;
  // Weights are powers of two: e^x = 2^(x / ln 2).
  const float_vector scale = hn::Set(d, shape.scale * 1.44269504F);
  for (std::int32_t i = 0; i < q.count; ++i) {
    const float* from = q.qkv.row(q.first_row + i / q.heads) + static_cast<std::int64_t>(q.first_head + i % q.heads) * shape.head_dim;
    float* to = w.queries + static_cast<std::int64_t>(i) * w.padded;
    for (std::int32_t e = 0; e < w.padded; e += lanes)
      hn::Store(hn::Mul(load_some(from + e, std::max(shape.head_dim - e, 0)), scale), d, to + e);
  }
  std::fill_n(w.sums, static_cast<std::int64_t>(q.count) * w.padded, 0.0F);
  std::fill_n(w.highest, q.count, -std::numeric_limits<float>::infinity());
  std::fill_n(w.totals, static_cast<std::int64_t>(q.count) * lanes, 0.0F);
}

void store_results(const query_rows& q, const attention_shape& shape, const workspace& w) {
  const float_tag d;
  for (std::int32_t i = 0; i < q.count; ++i) {
    const float_vector scale = hn::Set(d, 1.0F / sum_of(hn::Load(d, w.totals + i * lanes)));
    float* to = q.y.row(q.first_row + i / q.heads) + static_cast<std::int64_t>(q.first_head + i % q.heads) * shape.head_dim;
    const float* from = w.sums + static_cast<std::int64_t>(i) * w.padded;
    for (std::int32_t e = 0; e < shape.head_dim; e += lanes) store_some(hn::Mul(hn::Load(d, from + e), scale), to + e, shape.head_dim - e);
  }
}

/// Rows of the cache of one head of one sequence, from position \p first on.
void cached_keys(const paged_kv_view& kv, std::int32_t sequence, std::int32_t layer, std::int32_t head, key_chunk& c) {
  for (std::int32_t j = 0; j < c.size;) {
    const std::int32_t position = c.first + j;
    const std::int32_t run = std::min(kv.block_size - position % kv.block_size, c.size - j);
    const float* key = kv_row(kv, sequence, position, layer, 0, head);
    const float* value = kv_row(kv, sequence, position, layer, 1, head);
    for (std::int32_t i = 0; i < run; ++i, ++j) {
      c.keys[j] = key + static_cast<std::int64_t>(i) * kv.shape.head_dim;
      c.values[j] = value + static_cast<std::int64_t>(i) * kv.shape.head_dim;
    }
  }
}

void causal_task(const attention_task& t, matrix_view<const float> qkv, const attention_shape& shape, const row_map& map,
                 const paged_kv_view& kv, std::int32_t layer, matrix_view<float> y, float* memory) {
  const workspace w(memory, shape.head_dim);
  const std::int32_t heads = shape.num_heads / shape.num_kv_heads;
  const auto sequence = static_cast<std::size_t>(t.sequence);
  const query_rows q{qkv, y, map.row_begin[sequence] + t.first, t.head * heads, heads, t.count * heads};
  const std::int32_t context = map.context[sequence] + t.first;
  const auto limit = [=](std::int32_t r) { return context + r / heads + 1; };
  const std::int32_t keys = limit(q.count - 1);
  load_queries(q, shape, w);
  for (std::int32_t first = 0; first < keys; first += chunk) {
    key_chunk c;
    c.first = first;
    c.size = std::min(chunk, keys - first);
    cached_keys(kv, t.sequence, layer, t.head, c);
    transpose_keys(c, shape.head_dim, w);
    if (w.padded != shape.head_dim) gather_values(c, shape.head_dim, w);
    // Queries before this chunk do not see it.
    const std::int32_t skip = std::max(0, first - context) * heads;
    attend_chunk(c, skip, q.count - skip, limit, shape.head_dim, w);
  }
  store_results(q, shape, w);
}

/// Runs the tasks, several at a time where they are small; \p nanoseconds is the whole operation's guess.
template <class Body>
void share(cpu_kernels::context& s, std::span<const attention_task> tasks, double nanoseconds, const Body& body) {
  const auto count = static_cast<std::int32_t>(tasks.size());
  const std::int32_t pieces = s.pieces(nanoseconds) == 1 ? 1 : std::min(count, 8 * s.team.size());
  s.team.run(pieces, [&](std::int32_t p, std::int32_t thread) {
    // Interleaved, so that the long tasks at the end of a prefill are spread.
    for (std::int32_t t = p; t < count; t += pieces) body(tasks[static_cast<std::size_t>(t)], s.scratch_of(thread));
  });
}

void causal_attention(cpu_kernels::context& s, matrix_view<const float> qkv, const attention_shape& shape, const row_map& map,
                      const paged_kv_view& kv, std::int32_t layer, matrix_view<float> y) {
  const std::int32_t positions = std::max(1, max_queries / (shape.num_heads / shape.num_kv_heads));
  std::int64_t count = 0;
  double scores = 0.0;
  std::int32_t row = 0;
  const auto clear = [&](std::int32_t end) {
    for (; row < end; ++row) std::fill_n(y.row(row), y.cols, 0.0F);
  };
  for (std::int32_t q = 0; q < map.num_sequences; ++q) {
    const auto sequence = static_cast<std::size_t>(q);
    const std::int32_t tokens = map.num_tokens[sequence];
    clear(map.row_begin[sequence]);
    row += tokens;
    count += static_cast<std::int64_t>(ceil_div(tokens, positions)) * shape.num_kv_heads;
    scores += static_cast<double>(tokens) * (map.context[sequence] + tokens * 0.5 + chunk * 0.5);
  }
  clear(map.rows);

  const auto tasks = s.task_list.get<attention_task>(count);
  std::size_t next = 0;
  for (std::int32_t q = 0; q < map.num_sequences; ++q) {
    const std::int32_t tokens = map.num_tokens[static_cast<std::size_t>(q)];
    for (std::int32_t first = 0; first < tokens; first += positions) {
      for (std::int32_t h = 0; h < shape.num_kv_heads; ++h) tasks[next++] = {q, h, first, std::min(positions, tokens - first)};
    }
  }
  s.reserve_scratch(workspace::floats(shape.head_dim));
  const double nanoseconds = scores * shape.num_heads * shape.head_dim / (4.0 * lanes);
  share(s, tasks, nanoseconds, [&](const attention_task& t, float* memory) { causal_task(t, qkv, shape, map, kv, layer, y, memory); });
}

void full_attention(cpu_kernels::context& s, matrix_view<const float> qkv, std::int32_t group, const attention_shape& shape,
                    matrix_view<float> y) {
  const std::int32_t groups = qkv.rows / group;
  const std::int32_t parts = ceil_div(group, max_queries);
  const std::int64_t count = static_cast<std::int64_t>(groups) * shape.num_heads * parts;
  const auto tasks = s.task_list.get<attention_task>(count);
  std::size_t next = 0;
  for (std::int32_t g = 0; g < groups; ++g) {
    for (std::int32_t h = 0; h < shape.num_heads; ++h) {
      for (std::int32_t p = 0; p < parts; ++p) {
        const auto cut = [=](std::int32_t i) { return static_cast<std::int32_t>(static_cast<std::int64_t>(group) * i / parts); };
        tasks[next++] = {g, h, cut(p), cut(p + 1) - cut(p)};
      }
    }
  }
  s.reserve_scratch(workspace::floats(shape.head_dim));
  const double nanoseconds = static_cast<double>(qkv.rows) * group * shape.num_heads * shape.head_dim / (4.0 * lanes);
  share(s, tasks, nanoseconds, [&](const attention_task& t, float* memory) {
    const workspace w(memory, shape.head_dim);
    const std::int32_t width = shape.num_heads * shape.head_dim;
    const query_rows q{qkv, y, t.sequence * group + t.first, t.head, 1, t.count};
    load_queries(q, shape, w);
    for (std::int32_t first = 0; first < group; first += chunk) {
      key_chunk c;
      c.first = first;
      c.size = std::min(chunk, group - first);
      for (std::int32_t j = 0; j < c.size; ++j) {
        c.keys[j] = qkv.row(t.sequence * group + first + j) + width + t.head * shape.head_dim;
        c.values[j] = c.keys[j] + width;
      }
      transpose_keys(c, shape.head_dim, w);
      gather_values(c, shape.head_dim, w);
      attend_chunk(
          c, 0, t.count, [=](std::int32_t /*row*/) { return group; }, shape.head_dim, w);
    }
    store_results(q, shape, w);
  });
}

}  // namespace

void add_attention(cpu_kernels& table) {
  table.causal_attention = causal_attention;
  table.full_attention = full_attention;
}

}  // namespace vlbatch::inline v0::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace vlbatch::inline v0 {

void add_attention(cpu_kernels& table, cpu_level level) { VLBATCH_AT_LEVEL(level, add_attention(table)) }

}  // namespace vlbatch::inline v0
#endif
