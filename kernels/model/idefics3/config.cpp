// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

using io_detail::json_blame;
using io_detail::json_file;
using io_detail::json_node;

constexpr std::int64_t max_config_bytes = 16 << 20;
constexpr std::int64_t most = 1 << 20;  // no published size is near it, and products of two stay far from overflow

std::int32_t count_or(const json_node& n, const char* key, std::int64_t otherwise, std::int64_t low = 1, std::int64_t high = most) {
  return static_cast<std::int32_t>(n.integer_or(key, otherwise, low, high));
}

void expect_string(const json_node& n, const char* key, const std::string& found, const std::string& supported) {
  if (found != supported) n.at(key).fail_expected("\"" + supported + "\"");
}

idefics3_vision_config read_vision(const json_node& n) {
  idefics3_vision_config v;
  v.hidden_size = count_or(n, "hidden_size", v.hidden_size);
  v.intermediate_size = count_or(n, "intermediate_size", v.intermediate_size);
  v.num_hidden_layers = count_or(n, "num_hidden_layers", v.num_hidden_layers, 1, 4096);
  v.num_attention_heads = count_or(n, "num_attention_heads", v.num_attention_heads);
  v.image_size = count_or(n, "image_size", v.image_size, 1, 1 << 14);
  v.patch_size = count_or(n, "patch_size", v.patch_size, 1, 1 << 12);
  v.layer_norm_eps = static_cast<float>(n.number_or("layer_norm_eps", 1e-6, 0.0, 1.0));
  v.hidden_act = n.string_or("hidden_act", v.hidden_act);
  expect_string(n, "hidden_act", v.hidden_act, "gelu_pytorch_tanh");
  if (n.has("num_channels") && n.at("num_channels").integer(1, most) != 3) n.at("num_channels").fail_expected("3");
  if (v.hidden_size % v.num_attention_heads != 0) {
    n.fail(fmt::format("hidden_size {} is not a multiple of num_attention_heads {}", v.hidden_size, v.num_attention_heads));
  }
  if (v.image_size % v.patch_size != 0) n.fail(fmt::format("image_size {} is not a multiple of patch_size {}", v.image_size, v.patch_size));
  return v;
}

idefics3_text_config read_text(const json_node& n) {
  idefics3_text_config t;
  if (n.has("model_type")) expect_string(n, "model_type", n.at("model_type").string(), "llama");
  t.hidden_size = static_cast<std::int32_t>(n.at("hidden_size").integer(1, most));
  t.intermediate_size = count_or(n, "intermediate_size", t.intermediate_size);
  t.num_hidden_layers = count_or(n, "num_hidden_layers", t.num_hidden_layers, 1, 4096);
  t.num_attention_heads = count_or(n, "num_attention_heads", t.num_attention_heads);
  t.num_key_value_heads = count_or(n, "num_key_value_heads", t.num_attention_heads);
  t.head_dim = count_or(n, "head_dim", std::max(t.hidden_size / t.num_attention_heads, 1), 1, 4096);
  t.vocab_size = count_or(n, "vocab_size", t.vocab_size, 1, 1 << 24);
  t.max_position_embeddings = count_or(n, "max_position_embeddings", t.max_position_embeddings, 1, 1 << 24);
  t.rms_norm_eps = static_cast<float>(n.number_or("rms_norm_eps", 1e-6, 0.0, 1.0));
  t.rope_theta = static_cast<float>(n.number_or("rope_theta", 10000.0, 1e-3, 1e12));
  t.tie_word_embeddings = n.boolean_or("tie_word_embeddings", false);
  t.hidden_act = n.string_or("hidden_act", t.hidden_act);
  expect_string(n, "hidden_act", t.hidden_act, "silu");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (n.boolean_or(key, false)) n.at(key).fail_expected("false: biases in the decoder are not supported");
  }
  if (n.has("rope_scaling")) n.at("rope_scaling").fail_expected("null: scaled rotary embeddings are not supported");
  if (t.num_attention_heads % t.num_key_value_heads != 0) {
    n.fail(fmt::format("num_attention_heads {} is not a multiple of num_key_value_heads {}", t.num_attention_heads, t.num_key_value_heads));
  }
  if (t.head_dim % 2 != 0) n.fail(fmt::format("head_dim {} is odd, rotary embeddings need pairs", t.head_dim));
  return t;
}

// generation_config.json, or config.json, or its text_config: one id or a list.
std::vector<std::int32_t> read_eos(const json_node& n, std::int32_t vocab) {
  std::vector<std::int32_t> ids;
  if (!n.has("eos_token_id")) return ids;
  const json_node eos = n.at("eos_token_id");
  if (!eos.is_array()) return {static_cast<std::int32_t>(eos.integer(0, vocab - 1))};
  for (std::size_t i = 0; i < eos.array_size(); ++i) ids.push_back(static_cast<std::int32_t>(eos.at(i).integer(0, vocab - 1)));
  return ids;
}

std::array<double, 3> read_channels(const json_node& n, const char* key, double otherwise, double low) {
  std::array<double, 3> out{otherwise, otherwise, otherwise};
  if (!n.has(key)) return out;
  const json_node list = n.at(key);
  if (list.array_size() != 3) list.fail_expected("three numbers");
  for (std::size_t i = 0; i < 3; ++i) out[i] = list.at(i).number(low, 1e6);
  return out;
}

// {"longest_edge": n}, or n itself.
std::int32_t read_edge(const json_node& n, const char* key, std::int32_t otherwise) {
  if (!n.has(key)) return otherwise;
  const json_node edge = n.at(key);
  if (edge.is_number()) return static_cast<std::int32_t>(edge.integer(1, 1 << 16));
  return static_cast<std::int32_t>(edge.at("longest_edge").integer(1, 1 << 16));
}

idefics3_preprocessing read_preprocessing(const json_node& n) {
  idefics3_preprocessing p;
  p.do_convert_rgb = n.boolean_or("do_convert_rgb", p.do_convert_rgb);
  p.do_resize = n.boolean_or("do_resize", p.do_resize);
  p.size_longest_edge = read_edge(n, "size", p.size_longest_edge);
  p.resample = static_cast<std::int32_t>(n.integer_or("resample", p.resample, 0, 5));
  p.do_image_splitting = n.boolean_or("do_image_splitting", p.do_image_splitting);
  p.max_image_size_longest_edge = read_edge(n, "max_image_size", p.max_image_size_longest_edge);
  p.do_rescale = n.boolean_or("do_rescale", p.do_rescale);
  p.rescale_factor = n.number_or("rescale_factor", p.rescale_factor, -1e6, 1e6);
  p.do_normalize = n.boolean_or("do_normalize", p.do_normalize);
  p.image_mean = read_channels(n, "image_mean", 0.5, -1e6);
  p.image_std = read_channels(n, "image_std", 0.5, 1e-12);
  return p;
}

dtype read_dtype(const json_node& n) {
  const char* key = n.has("dtype") ? "dtype" : "torch_dtype";  // transformers renamed it
  const std::string name = n.string_or(key, "float32");
  if (name == "float32") return dtype::f32;
  if (name == "float16") return dtype::f16;
  if (name == "bfloat16") return dtype::bf16;
  n.at(key).fail_expected("float32, float16 or bfloat16");
}

}  // namespace

idefics3_config idefics3_config::load(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path base(folder);
  if (!fs::is_directory(base)) throw file_error(folder + ": is not a folder");
  const json_file file = json_file::load(base / "config.json", max_config_bytes);
  const json_node root = file.root(json_blame::model).object();

  idefics3_config c;
  c.source = folder;
  const json_node architectures = root.at("architectures");
  if (architectures.array_size() < 1) architectures.fail_expected("one architecture");
  const std::string& name = architectures.at(std::size_t{0}).string();
  if (name == "Idefics3ForConditionalGeneration") {
    c.kind = family::idefics3;
  } else if (name == "SmolVLMForConditionalGeneration") {
    c.kind = family::smolvlm;
  } else {
    architectures.at(std::size_t{0}).fail_expected("Idefics3ForConditionalGeneration or SmolVLMForConditionalGeneration");
  }
  c.vision = read_vision(root.at("vision_config").object());
  const json_node text = root.at("text_config").object();
  c.text = read_text(text);
  c.scale_factor = count_or(root, "scale_factor", c.scale_factor, 1, 1024);
  c.image_token_id = static_cast<std::int32_t>(root.integer_or("image_token_id", c.image_token_id, 0, c.text.vocab_size - 1));
  if (c.image_token_id >= c.text.vocab_size)
    root.fail(fmt::format("image_token_id {} is not below vocab_size {}", c.image_token_id, c.text.vocab_size));
  c.torch_dtype = read_dtype(root);
  if (c.vision.patches_per_side() % c.scale_factor != 0) {
    root.fail(fmt::format("{} patches a side are not a multiple of scale_factor {}", c.vision.patches_per_side(), c.scale_factor));
  }

  c.eos_token_ids.clear();
  if (fs::exists(base / "generation_config.json")) {
    const json_file generation = json_file::load(base / "generation_config.json", max_config_bytes);
    c.eos_token_ids = read_eos(generation.root(json_blame::model).object(), c.text.vocab_size);
  }
  if (c.eos_token_ids.empty()) c.eos_token_ids = read_eos(root, c.text.vocab_size);
  if (c.eos_token_ids.empty()) c.eos_token_ids = read_eos(text, c.text.vocab_size);
  if (c.eos_token_ids.empty()) c.eos_token_ids = {2};  // LlamaConfig's default

  if (fs::exists(base / "preprocessor_config.json")) {
    const json_file pre = json_file::load(base / "preprocessor_config.json", max_config_bytes);
    const json_node n = pre.root(json_blame::model).object();
    c.preprocessing = read_preprocessing(n);
    if (c.preprocessing.max_image_size_longest_edge != c.vision.image_size) {
      n.fail(fmt::format("max_image_size {} is not vision_config.image_size {} of config.json", c.preprocessing.max_image_size_longest_edge,
                         c.vision.image_size));
    }
  } else {
    c.preprocessing.max_image_size_longest_edge = c.vision.image_size;
    c.preprocessing.size_longest_edge = 4 * c.vision.image_size;
  }
  if (fs::exists(base / "processor_config.json")) {
    const json_file processor = json_file::load(base / "processor_config.json", max_config_bytes);
    const json_node n = processor.root(json_blame::model).object();
    if (n.has("image_seq_len") && n.at("image_seq_len").integer(1, most) != c.tokens_per_tile()) {
      n.at("image_seq_len").fail_expected(fmt::format("{}: the vision tower's patches over scale_factor squared", c.tokens_per_tile()));
    }
  }
  return c;
}

}  // namespace vlbatch::inline v0
