// SPDX-License-Identifier: Apache-2.0
/// \file
/// Llama decoder, written with the operations of the backend concept.
#pragma once

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <span>

#include "vlbatch/backend/backend.hpp"
#include "vlbatch/core/batch.hpp"
#include "vlbatch/kv/kv_view.hpp"
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/idefics3/detail/activations.hpp"
#include "vlbatch/model/idefics3/detail/weights.hpp"

namespace vlbatch::inline v0::idefics3_detail {

/// Activations of the decoder, reused from call to call.
struct text_scratch {
  activation x, normed, qkv, attended, gate_up, inner, wanted, logits;
};

/// Runs one ragged batch. Refers to weights and configuration; const members are thread-safe with separate scratch.
template <class Backend>
class decoder {
 public:
  decoder(const Backend& device, const idefics3_text_config& config, const text_weights<Backend>& weights)
      : device_(device), config_(config), weights_(weights) {}

  /// Stores keys and values of all real rows and returns the logits of the wanted ones, `[wanted, vocab]`, valid until the next call.
  [[nodiscard]] matrix_view<const float> forward(typename Backend::stream& s, text_scratch& w, const forward_input& in,
                                                 const paged_kv_view& kv) const {
    check(in, kv);
    const idefics3_text_config& c = config_;
    const matrix_view<float> x = w.x.shaped(device_, in.map.rows, c.hidden_size);
    if (in.map.rows > 0) {
      device_.embed(s, in.token_ids, weights_.embedding, x);
      if (!in.images.empty()) device_.inject(s, in.images, x);
      for (std::size_t i = 0; i < weights_.layers.size(); ++i) layer(s, w, in, kv, static_cast<std::int32_t>(i), x);
    }
    // Only the rows that somebody samples from pass the final norm and the largest matrix.
    const auto count = static_cast<std::int32_t>(in.logit_rows.size());
    const matrix_view<float> logits = w.logits.shaped(device_, count, c.vocab_size);
    if (count == 0) return logits;
    const matrix_view<float> wanted = w.wanted.shaped(device_, count, c.hidden_size);
    const matrix_view<float> normed = w.normed.shaped(device_, std::max(count, in.map.rows), c.hidden_size).rows_from(0, count);
    device_.gather_rows(s, x, in.logit_rows, wanted);
    device_.rms_norm(s, wanted, weights_.norm.data(), c.rms_norm_eps, normed);
    device_.linear(s, normed, weights_.head, logits, {});
    return logits;
  }

 private:
  // Pre-norm decoder layer; x is the residual stream.
  void layer(typename Backend::stream& s, text_scratch& w, const forward_input& in, const paged_kv_view& kv, std::int32_t index,
             matrix_view<float> x) const {
    const idefics3_text_config& c = config_;
    const auto& l = weights_.layers[static_cast<std::size_t>(index)];
    const std::int32_t queries = c.num_attention_heads * c.head_dim;
    const matrix_view<float> normed = w.normed.shaped(device_, x.rows, c.hidden_size);
    const matrix_view<float> qkv = w.qkv.shaped(device_, x.rows, queries + 2 * c.num_key_value_heads * c.head_dim);
    const matrix_view<float> attended = w.attended.shaped(device_, x.rows, queries);
    const matrix_view<float> gate_up = w.gate_up.shaped(device_, x.rows, 2 * c.intermediate_size);
    const matrix_view<float> inner = w.inner.shaped(device_, x.rows, c.intermediate_size);
    const attention_shape shape{.num_heads = c.num_attention_heads,
                                .num_kv_heads = c.num_key_value_heads,
                                .head_dim = c.head_dim,
                                .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)))};
    device_.rms_norm(s, x, l.attention_norm.data(), c.rms_norm_eps, normed);
    device_.linear(s, normed, l.qkv, qkv, {});
    device_.rope_store(s, qkv, in.positions.first(static_cast<std::size_t>(x.rows)), c.rope_theta, shape, in.map, kv, index);
    device_.causal_attention(s, qkv, shape, in.map, kv, index, attended);
    device_.linear(s, attended, l.out, x, {.accumulate = true});
    device_.rms_norm(s, x, l.mlp_norm.data(), c.rms_norm_eps, normed);
    device_.linear(s, normed, l.gate_up, gate_up, {});
    device_.silu_mul(s, gate_up, inner);
    device_.linear(s, inner, l.down, x, {.accumulate = true});
  }

  // What the engine guarantees; a model driven by hand finds its mistakes in builds with assertions.
  void check([[maybe_unused]] const forward_input& in, [[maybe_unused]] const paged_kv_view& kv) const {
#ifndef NDEBUG
    const auto rows = static_cast<std::size_t>(in.map.rows);
    const auto sequences = static_cast<std::size_t>(in.map.num_sequences);
    assert(in.axes == 1 && in.token_ids.size() == rows && in.positions.size() == rows);
    assert(in.map.row_begin.size() == sequences + 1 && in.map.num_tokens.size() == sequences && in.map.context.size() == sequences);
    assert(in.map.row_begin.front() == 0 && in.map.row_begin.back() <= in.map.rows && kv.num_sequences == in.map.num_sequences);
    assert(kv.shape.num_layers == config_.num_hidden_layers && kv.shape.num_kv_heads == config_.num_key_value_heads);
    assert(kv.shape.head_dim == config_.head_dim);
    for (std::size_t s = 0; s < sequences; ++s) {
      const std::int32_t end = in.map.context[s] + in.map.num_tokens[s];
      assert(in.map.row_begin[s] + in.map.num_tokens[s] <= in.map.row_begin[s + 1] && end <= kv.max_blocks * kv.block_size);
      static_cast<void>(end);
    }
    for (const std::int32_t id : in.token_ids) assert(id >= 0 && id < config_.vocab_size);
    for (const std::int32_t row : in.logit_rows) assert(row >= 0 && row < in.map.rows);
    for (const injected_rows& i : in.images) assert(i.first_row >= 0 && i.num_rows > 0 && i.first_row + i.num_rows <= in.map.rows);
#endif
  }

  const Backend& device_;
  const idefics3_text_config& config_;
  const text_weights<Backend>& weights_;
};

}  // namespace vlbatch::inline v0::idefics3_detail
