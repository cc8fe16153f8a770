// SPDX-License-Identifier: Apache-2.0
// Meaning and defaults of the keys: transformers 4.57, models idefics3, smolvlm and llama.
#include "vlbatch/model/idefics3/config.hpp"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

namespace fs = std::filesystem;
using io_detail::json_blame;
using io_detail::json_file;
using io_detail::json_node;
using family = idefics3_config::family;

// Far above any model of the family, and low enough that no product of two sizes leaves 64 bits.
constexpr std::int64_t max_file_bytes = 16LL << 20U;
constexpr std::int64_t max_width = 1 << 20;
constexpr std::int64_t max_layers = 4096;
constexpr std::int64_t max_heads = 4096;
constexpr std::int64_t max_vocab = 1 << 24;
constexpr std::int64_t max_positions = 1 << 28;
constexpr std::int64_t max_pixels_per_side = 1 << 16;
constexpr double smallest = 1e-30;

std::int32_t size_or(const json_node& node, const char* key, std::int32_t otherwise, std::int64_t high) {
  return static_cast<std::int32_t>(node.integer_or(key, otherwise, 1, high));
}

// "vision_config.hidden_size is 770, expected a multiple of num_attention_heads, which is 12"
void check_multiple(const json_node& node, const char* key, std::int32_t value, const char* of, std::int32_t divisor) {
  if (value % divisor == 0) return;
  node.fail(std::string(key) + " is " + std::to_string(value) + ", expected a multiple of " + of + ", which is " + std::to_string(divisor));
}

void check_equal(const json_node& node, const char* key, const std::string& otherwise, const char* expected) {
  const std::string found = node.string_or(key, otherwise);
  if (found != expected) node.at(key).fail_expected(std::string("\"") + expected + '"');
}

void check_off(const json_node& node, const char* key) {
  if (node.boolean_or(key, false)) node.at(key).fail_expected("false, other values are not supported");
}

family read_family(const json_node& root) {
  static constexpr std::pair<family, std::pair<const char*, const char*>> known[] = {
      {family::idefics3, {"Idefics3ForConditionalGeneration", "idefics3"}},
      {family::smolvlm, {"SmolVLMForConditionalGeneration", "smolvlm"}}};
  const std::string expected = "Idefics3ForConditionalGeneration (idefics3) or SmolVLMForConditionalGeneration (smolvlm)";
  std::optional<family> by_class;
  std::optional<family> by_type;
  if (root.has("architectures")) {
    const json_node list = root.at("architectures");
    for (std::size_t i = 0; i < list.array_size(); ++i) {
      for (const auto& [kind, names] : known) {
        if (list.at(i).string() == names.first) by_class = kind;
      }
    }
    if (!by_class) (list.array_size() > 0 ? list.at(std::size_t{0}) : list).fail_expected(expected);
  }
  if (root.has("model_type")) {
    for (const auto& [kind, names] : known) {
      if (root.at("model_type").string() == names.second) by_type = kind;
    }
    if (!by_type) root.at("model_type").fail_expected(expected);
  }
  if (!by_class && !by_type) static_cast<void>(root.at("architectures"));  // throws: missing key
  if (by_class && by_type && *by_class != *by_type) {
    root.at("model_type").fail_expected("the one that belongs to architectures, " + root.at("architectures").at(std::size_t{0}).shown());
  }
  return by_class ? *by_class : *by_type;
}

idefics3_vision_config read_vision(const json_node& node) {
  idefics3_vision_config c;
  c.hidden_size = size_or(node, "hidden_size", c.hidden_size, max_width);
  c.intermediate_size = size_or(node, "intermediate_size", c.intermediate_size, max_width);
  c.num_hidden_layers = size_or(node, "num_hidden_layers", c.num_hidden_layers, max_layers);
  c.num_attention_heads = size_or(node, "num_attention_heads", c.num_attention_heads, max_heads);
  c.image_size = size_or(node, "image_size", c.image_size, max_pixels_per_side);
  c.patch_size = size_or(node, "patch_size", c.patch_size, max_pixels_per_side);
  c.layer_norm_eps = static_cast<float>(node.number_or("layer_norm_eps", c.layer_norm_eps, smallest, 1.0));
  check_equal(node, "hidden_act", c.hidden_act, "gelu_pytorch_tanh");
  if (node.integer_or("num_channels", 3, 1, 4096) != 3) node.at("num_channels").fail_expected("3");
  check_multiple(node, "hidden_size", c.hidden_size, "num_attention_heads", c.num_attention_heads);
  check_multiple(node, "image_size", c.image_size, "patch_size", c.patch_size);
  return c;
}

// Only the plain rotary embedding: {"rope_type": "default"} or, in older files, {"type": "default"}.
void check_rope(const json_node& node) {
  for (const char* key : {"rope_type", "type"}) check_equal(node, key, "default", "default");
}

idefics3_text_config read_text(const json_node& node) {
  check_equal(node, "model_type", "llama", "llama");
  idefics3_text_config c;
  c.hidden_size = static_cast<std::int32_t>(node.at("hidden_size").integer(1, max_width));
  c.intermediate_size = size_or(node, "intermediate_size", c.intermediate_size, max_width);
  c.num_hidden_layers = size_or(node, "num_hidden_layers", c.num_hidden_layers, max_layers);
  c.num_attention_heads = size_or(node, "num_attention_heads", c.num_attention_heads, max_heads);
  c.num_key_value_heads = size_or(node, "num_key_value_heads", c.num_attention_heads, max_heads);
  if (node.has("head_dim")) {
    c.head_dim = size_or(node, "head_dim", c.head_dim, 1 << 14);
  } else {
    check_multiple(node, "hidden_size", c.hidden_size, "num_attention_heads", c.num_attention_heads);
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  if (c.head_dim % 2 != 0) node.fail("head_dim is " + std::to_string(c.head_dim) + ", expected an even number");
  check_multiple(node, "num_attention_heads", c.num_attention_heads, "num_key_value_heads", c.num_key_value_heads);
  c.vocab_size = size_or(node, "vocab_size", c.vocab_size, max_vocab);
  c.max_position_embeddings = size_or(node, "max_position_embeddings", c.max_position_embeddings, max_positions);
  c.rms_norm_eps = static_cast<float>(node.number_or("rms_norm_eps", c.rms_norm_eps, smallest, 1.0));
  c.rope_theta = static_cast<float>(node.number_or("rope_theta", c.rope_theta, 1.0, 1e12));
  if (node.has("rope_scaling")) check_rope(node.at("rope_scaling"));
  if (node.has("rope_parameters")) {  // the same in the files of transformers 5
    const json_node rope = node.at("rope_parameters");
    check_rope(rope);
    c.rope_theta = static_cast<float>(rope.number_or("rope_theta", c.rope_theta, 1.0, 1e12));
  }
  if (node.number_or("partial_rotary_factor", 1.0, 0.0, 1e6) != 1.0) node.at("partial_rotary_factor").fail_expected("1");
  c.tie_word_embeddings = node.boolean_or("tie_word_embeddings", false);
  check_equal(node, "hidden_act", c.hidden_act, "silu");
  check_off(node, "attention_bias");
  check_off(node, "mlp_bias");
  return c;
}

std::optional<dtype> read_dtype(const json_node& node) {
  static constexpr std::pair<const char*, dtype> known[] = {{"float32", dtype::f32}, {"float16", dtype::f16}, {"bfloat16", dtype::bf16}};
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!node.has(key)) continue;
    for (const auto& [name, type] : known) {
      if (node.at(key).string() == name) return type;
    }
    node.at(key).fail_expected("float32, float16 or bfloat16");
  }
  return std::nullopt;
}

// One id or a list of them; nothing if absent.
std::vector<std::int32_t> read_eos(const json_node& node, std::int32_t vocab_size) {
  std::vector<std::int32_t> ids;
  if (!node.has("eos_token_id")) return ids;
  const json_node value = node.at("eos_token_id");
  if (!value.is_array()) {
    ids.push_back(static_cast<std::int32_t>(value.integer(0, vocab_size - 1)));
    return ids;
  }
  for (std::size_t i = 0; i < value.array_size(); ++i) ids.push_back(static_cast<std::int32_t>(value.at(i).integer(0, vocab_size - 1)));
  return ids;
}

std::array<double, 3> read_channels(const json_node& node, const char* key, std::array<double, 3> otherwise, double low) {
  if (!node.has(key)) return otherwise;
  const json_node value = node.at(key);
  std::array<double, 3> out{};
  if (value.is_number()) {
    out.fill(value.number(low, 1e6));
    return out;
  }
  if (value.array_size() != out.size()) value.fail_expected("3 numbers");
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = value.at(i).number(low, 1e6);
  return out;
}

std::int32_t read_longest_edge(const json_node& node, const char* key, std::int32_t otherwise) {
  if (!node.has(key)) return otherwise;
  return static_cast<std::int32_t>(node.at(key).at("longest_edge").integer(1, max_pixels_per_side));
}

idefics3_preprocessing read_preprocessing(const json_node& node) {
  idefics3_preprocessing p;
  p.do_convert_rgb = node.boolean_or("do_convert_rgb", p.do_convert_rgb);
  p.do_resize = node.boolean_or("do_resize", p.do_resize);
  p.size_longest_edge = read_longest_edge(node, "size", p.size_longest_edge);
  p.resample = static_cast<std::int32_t>(node.integer_or("resample", p.resample, 0, 5));
  p.do_image_splitting = node.boolean_or("do_image_splitting", p.do_image_splitting);
  p.max_image_size_longest_edge = read_longest_edge(node, "max_image_size", p.max_image_size_longest_edge);
  p.do_rescale = node.boolean_or("do_rescale", p.do_rescale);
  p.rescale_factor = node.number_or("rescale_factor", p.rescale_factor, smallest, 1e6);
  p.do_normalize = node.boolean_or("do_normalize", p.do_normalize);
  p.image_mean = read_channels(node, "image_mean", p.image_mean, -1e6);
  p.image_std = read_channels(node, "image_std", p.image_std, 1e-12);
  return p;
}

std::optional<json_file> load_if_present(const fs::path& path) {
  std::error_code ec;
  if (!fs::exists(path, ec)) return std::nullopt;
  return json_file::load(path, max_file_bytes);
}

// The image processor's own file, or in newer folders a part of the processor's.
idefics3_preprocessing load_preprocessing(const fs::path& folder, const std::optional<json_file>& processor, std::int32_t image_size) {
  const auto check_tile = [&](const json_node& node, const idefics3_preprocessing& p) {
    if (p.max_image_size_longest_edge == image_size) return p;
    node.fail("max_image_size.longest_edge is " + std::to_string(p.max_image_size_longest_edge) +
              ", expected vision_config.image_size of config.json, which is " + std::to_string(image_size));
  };
  if (const auto file = load_if_present(folder / "preprocessor_config.json")) {
    const json_node root = file->root(json_blame::model);
    return check_tile(root, read_preprocessing(root));
  }
  if (processor && processor->root(json_blame::model).has("image_processor")) {
    const json_node node = processor->root(json_blame::model).at("image_processor");
    return check_tile(node, read_preprocessing(node));
  }
  idefics3_preprocessing p;
  p.max_image_size_longest_edge = image_size;
  p.size_longest_edge = 4 * image_size;
  return p;
}

}  // namespace

idefics3_config idefics3_config::load(const std::string& folder) {
  const fs::path dir(folder);
  const json_file file = json_file::load(dir / "config.json", max_file_bytes);
  const json_node root = file.root(json_blame::model).object();

  idefics3_config c;
  c.source = folder;
  c.kind = read_family(root);
  if (root.has("quantization_config")) root.at("quantization_config").fail("quantised weights are not supported");
  const json_node text = root.at("text_config").object();
  const json_node vision = root.at("vision_config").object();
  c.text = read_text(text);
  c.vision = read_vision(vision);
  c.scale_factor = size_or(root, "scale_factor", c.scale_factor, 1024);
  if (c.vision.patches_per_side() % c.scale_factor != 0) {
    root.fail("scale_factor is " + std::to_string(c.scale_factor) +
              ", expected a divisor of the patches along a side, vision_config.image_size / patch_size = " +
              std::to_string(c.vision.patches_per_side()));
  }
  c.image_token_id = static_cast<std::int32_t>(root.integer_or("image_token_id", c.image_token_id, 0, max_vocab));
  if (c.image_token_id >= c.text.vocab_size) {
    root.fail("image_token_id is " + std::to_string(c.image_token_id) + ", expected an id below text_config.vocab_size, which is " +
              std::to_string(c.text.vocab_size));
  }
  c.torch_dtype = read_dtype(root).value_or(read_dtype(text).value_or(dtype::f32));

  std::vector<std::int32_t> eos;
  if (const auto generation = load_if_present(dir / "generation_config.json")) {
    eos = read_eos(generation->root(json_blame::model), c.text.vocab_size);
  }
  if (eos.empty()) eos = read_eos(root, c.text.vocab_size);
  if (eos.empty()) eos = read_eos(text, c.text.vocab_size);
  if (!eos.empty()) c.eos_token_ids = std::move(eos);

  const auto processor = load_if_present(dir / "processor_config.json");
  c.preprocessing = load_preprocessing(dir, processor, c.vision.image_size);
  if (processor) {
    const json_node node = processor->root(json_blame::model);
    if (node.integer_or("image_seq_len", c.tokens_per_tile(), 0, max_positions) != c.tokens_per_tile()) {
      node.at("image_seq_len").fail_expected(std::to_string(c.tokens_per_tile()) + ", the embedding rows of a tile by config.json");
    }
  }
  return c;
}

}  // namespace vlbatch::inline v0
