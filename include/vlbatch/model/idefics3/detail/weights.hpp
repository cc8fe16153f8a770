// SPDX-License-Identifier: Apache-2.0
/// \file
/// Weights of the Idefics3 family in backend memory, under the names that transformers' save_pretrained gives them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vlbatch/backend/backend.hpp"
#include "vlbatch/model/idefics3/config.hpp"
#include "vlbatch/model/idefics3/detail/tensor_source.hpp"

namespace vlbatch::inline v0::idefics3_detail {

/// f32 numbers in backend memory, shared by copies.
class device_floats {
 public:
  device_floats() = default;
  /// Copies \p host. A backend whose memory the host cannot write offers `upload(span) -> shared_ptr<std::byte>`.
  template <class Backend>
  device_floats(const Backend& device, std::span<const float> host) {
    if constexpr (requires { device.upload(host); }) {
      memory_ = device.upload(host);
    } else {
      memory_ = device.allocate(static_cast<std::int64_t>(host.size_bytes()));
      std::memcpy(memory_.get(), host.data(), host.size_bytes());
    }
  }
  /// First element.
  [[nodiscard]] const float* data() const noexcept { return reinterpret_cast<const float*>(memory_.get()); }

 private:
  std::shared_ptr<std::byte> memory_;
};

/// gamma and beta of a LayerNorm.
struct norm_weights {
  device_floats gamma;
  device_floats beta;
};

/// A linear layer with bias.
template <class Backend>
struct affine {
  typename Backend::weight weight;
  device_floats bias;
};

/// SigLIP tower and connector.
template <class Backend>
struct vision_weights {
  struct layer {
    norm_weights norm1, norm2;
    affine<Backend> qkv, out, up, down;
  };
  affine<Backend> patch;    // [C, 3 * patch * patch]
  device_floats positions;  // [patches, C], one row a patch
  std::vector<layer> layers;
  norm_weights post_norm;
  typename Backend::weight projection;  // [hidden, C * scale^2]
};

/// Llama decoder.
template <class Backend>
struct text_weights {
  struct layer {
    device_floats attention_norm, mlp_norm;
    typename Backend::weight qkv, out, gate_up, down;
  };
  typename Backend::weight embedding;  // [V, H]
  std::vector<layer> layers;
  device_floats norm;
  typename Backend::weight head;  // [V, H]; the embedding itself when tied
};

/// Row of the position table that each patch of a full tile gets, `[side]` along one axis. transformers computes it in floating point as
/// floor((i / side) (1 - 1e-6) side): since version 4.55 the factor is applied to every coordinate, so that in f32 patch i > 0 falls one
/// bucket short (transformers issue 41190). `on_grid` is what the paper and earlier versions mean: i.
[[nodiscard]] inline std::vector<std::int32_t> patch_buckets(std::int32_t side, bool on_grid) {
  std::vector<std::int32_t> buckets(static_cast<std::size_t>(side));
  for (std::int32_t i = 0; i < side; ++i) buckets[static_cast<std::size_t>(i)] = on_grid ? i : std::max(i - 1, 0);
  return buckets;
}

/// Loads weights from one checkpoint.
template <class Backend>
class weight_loader {
 public:
  weight_loader(const Backend& device, weight_format format, const idefics3_config& config, tensor_source& from)
      : device_(device), format_(format), config_(config), from_(from) {}

  /// `model.vision_model.*` and `model.connector.*`.
  [[nodiscard]] vision_weights<Backend> vision(bool positions_on_grid) {
    const idefics3_vision_config& c = config_.vision;
    const std::string tower = "model.vision_model.";
    vision_weights<Backend> w;
    w.patch.weight = load(tower + "embeddings.patch_embedding.weight", {c.hidden_size, 3, c.patch_size, c.patch_size});
    w.patch.bias = floats(tower + "embeddings.patch_embedding.bias", {c.hidden_size});
    w.positions = positions(tower + "embeddings.position_embedding.weight", positions_on_grid);
    w.layers.resize(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::size_t i = 0; i < w.layers.size(); ++i) {
      const std::string name = tower + "encoder.layers." + std::to_string(i) + ".";
      auto& l = w.layers[i];
      l.norm1 = norm(name + "layer_norm1");
      l.norm2 = norm(name + "layer_norm2");
      l.qkv = vision_qkv(name + "self_attn.");
      l.out = dense(name + "self_attn.out_proj", c.hidden_size, c.hidden_size);
      l.up = dense(name + "mlp.fc1", c.intermediate_size, c.hidden_size);
      l.down = dense(name + "mlp.fc2", c.hidden_size, c.intermediate_size);
    }
    w.post_norm = norm(tower + "post_layernorm");
    const std::int64_t folded = std::int64_t{c.hidden_size} * config_.scale_factor * config_.scale_factor;
    w.projection = load("model.connector.modality_projection.proj.weight", {config_.text.hidden_size, folded});
    return w;
  }

  /// `model.text_model.*` and `lm_head.weight`.
  [[nodiscard]] text_weights<Backend> text() {
    const idefics3_text_config& c = config_.text;
    const std::int64_t queries = std::int64_t{c.num_attention_heads} * c.head_dim;
    const std::int64_t keys = std::int64_t{c.num_key_value_heads} * c.head_dim;
    const std::int64_t hidden = c.hidden_size;
    const std::string body = "model.text_model.";
    text_weights<Backend> w;
    const tensor_view& table = from_.take(body + "embed_tokens.weight", {c.vocab_size, hidden});
    w.embedding = device_.load_weight(table, format_);
    w.layers.resize(static_cast<std::size_t>(c.num_hidden_layers));
    for (std::size_t i = 0; i < w.layers.size(); ++i) {
      const std::string name = body + "layers." + std::to_string(i) + ".";
      auto& l = w.layers[i];
      l.attention_norm = floats(name + "input_layernorm.weight", {hidden});
      l.mlp_norm = floats(name + "post_attention_layernorm.weight", {hidden});
      l.qkv = stack({&from_.take(name + "self_attn.q_proj.weight", {queries, hidden}),
                     &from_.take(name + "self_attn.k_proj.weight", {keys, hidden}),
                     &from_.take(name + "self_attn.v_proj.weight", {keys, hidden})});
      l.out = load(name + "self_attn.o_proj.weight", {hidden, queries});
      l.gate_up = stack({&from_.take(name + "mlp.gate_proj.weight", {c.intermediate_size, hidden}),
                         &from_.take(name + "mlp.up_proj.weight", {c.intermediate_size, hidden})});
      l.down = load(name + "mlp.down_proj.weight", {hidden, c.intermediate_size});
    }
    w.norm = floats(body + "norm.weight", {hidden});
    if (c.tie_word_embeddings) {
      from_.allow_copy("lm_head.weight", table);
      w.head = w.embedding;
    } else {
      w.head = load("lm_head.weight", {c.vocab_size, hidden});
    }
    return w;
  }

 private:
  using shape = std::initializer_list<std::int64_t>;

  [[nodiscard]] typename Backend::weight load(const std::string& name, shape s) {
    return device_.load_weight(from_.take(name, s), format_);
  }
  [[nodiscard]] typename Backend::weight stack(std::initializer_list<const tensor_view*> parts) {
    return device_.stack_weights(std::span<const tensor_view* const>(parts.begin(), parts.size()), format_);
  }
  [[nodiscard]] device_floats floats(const std::string& name, shape s) { return {device_, from_.take_floats(name, s)}; }
  [[nodiscard]] norm_weights norm(const std::string& name) {
    const std::int64_t width = config_.vision.hidden_size;
    return {floats(name + ".weight", {width}), floats(name + ".bias", {width})};
  }
  [[nodiscard]] affine<Backend> dense(const std::string& name, std::int64_t out, std::int64_t in) {
    return {load(name + ".weight", {out, in}), floats(name + ".bias", {out})};
  }
  [[nodiscard]] affine<Backend> vision_qkv(const std::string& name) {
    const std::int64_t width = config_.vision.hidden_size;
    std::vector<float> bias;
    for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
      const std::vector<float> b = from_.take_floats(name + part + ".bias", {width});
      bias.insert(bias.end(), b.begin(), b.end());
    }
    return {stack({&from_.take(name + "q_proj.weight", {width, width}), &from_.take(name + "k_proj.weight", {width, width}),
                   &from_.take(name + "v_proj.weight", {width, width})}),
            {device_, bias}};
  }
  [[nodiscard]] device_floats positions(const std::string& name, bool on_grid) {
    const auto width = static_cast<std::size_t>(config_.vision.hidden_size);
    const std::vector<float> table = from_.take_floats(name, {config_.vision.num_patches(), config_.vision.hidden_size});
    const std::int32_t side = config_.vision.patches_per_side();
    const std::vector<std::int32_t> bucket = patch_buckets(side, on_grid);
    std::vector<float> rows;
    rows.reserve(table.size());
    for (const std::int32_t y : bucket) {
      for (const std::int32_t x : bucket) {
        const auto first = table.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(y * side + x) * width);
        rows.insert(rows.end(), first, first + static_cast<std::ptrdiff_t>(width));
      }
    }
    return {device_, rows};
  }

  const Backend& device_;
  weight_format format_;
  const idefics3_config& config_;
  tensor_source& from_;
};

/// Bytes that one pass over the decoder's weights reads, lm_head included.
template <class Backend>
[[nodiscard]] std::int64_t bytes_of_pass(const text_weights<Backend>& w) {
  std::int64_t bytes = w.head.bytes();
  for (const auto& l : w.layers) bytes += l.qkv.bytes() + l.out.bytes() + l.gate_up.bytes() + l.down.bytes();
  return bytes;
}

}  // namespace vlbatch::inline v0::idefics3_detail
