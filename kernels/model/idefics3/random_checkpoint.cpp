// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/random_checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "io/float16.hpp"
#include "model/idefics3/random_checkpoint_files.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/safetensors.hpp"

namespace vlbatch::inline v0 {

namespace {

namespace fs = std::filesystem;

// A tensor to be made: mean + deviation * noise.
struct planned_tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  float mean;
  float deviation;

  [[nodiscard]] std::int64_t elements() const {
    std::int64_t n = 1;
    for (const std::int64_t s : shape) n *= s;
    return n;
  }
};

class planner {
 public:
  explicit planner(const idefics3_config& c) : c_(c) {}

  [[nodiscard]] std::vector<planned_tensor> all() {
    vision();
    linear("model.connector.modality_projection.proj", c_.text.hidden_size,
           std::int64_t{c_.vision.hidden_size} * c_.scale_factor * c_.scale_factor);
    text();
    return std::move(tensors_);
  }

 private:
  static float root(double x) { return static_cast<float>(std::sqrt(x)); }  // correctly rounded everywhere, as IEEE 754 asks

  void add(const std::string& name, std::vector<std::int64_t> shape, float mean, float deviation) {
    tensors_.push_back({name, std::move(shape), mean, deviation});
  }
  void linear(const std::string& name, std::int64_t out, std::int64_t in, double writers = 1.0) {
    add(name + ".weight", {out, in}, 0.0F, 1.0F / root(static_cast<double>(in) * writers));
  }
  void affine(const std::string& name, std::int64_t out, std::int64_t in, double writers = 1.0) {
    linear(name, out, in, writers);
    add(name + ".bias", {out}, 0.0F, 0.02F);
  }
  void layer_norm(const std::string& name) {
    add(name + ".weight", {c_.vision.hidden_size}, 1.0F, 0.0F);
    add(name + ".bias", {c_.vision.hidden_size}, 0.0F, 0.0F);
  }
  void vision() {
    const idefics3_vision_config& v = c_.vision;
    const std::string tower = "model.vision_model.";
    const double writers = 2.0 * v.num_hidden_layers;  // layers that add to the residual stream
    const std::int64_t pixels = 3LL * v.patch_size * v.patch_size;
    add(tower + "embeddings.patch_embedding.weight", {v.hidden_size, 3, v.patch_size, v.patch_size}, 0.0F,
        1.0F / root(static_cast<double>(pixels)));
    add(tower + "embeddings.patch_embedding.bias", {v.hidden_size}, 0.0F, 0.02F);
    add(tower + "embeddings.position_embedding.weight", {v.num_patches(), v.hidden_size}, 0.0F, 0.5F);
    for (std::int32_t i = 0; i < v.num_hidden_layers; ++i) {
      const std::string layer = tower + "encoder.layers." + std::to_string(i) + ".";
      layer_norm(layer + "layer_norm1");
      layer_norm(layer + "layer_norm2");
      for (const char* part : {"q_proj", "k_proj", "v_proj"}) affine(layer + "self_attn." + part, v.hidden_size, v.hidden_size);
      affine(layer + "self_attn.out_proj", v.hidden_size, v.hidden_size, writers);
      affine(layer + "mlp.fc1", v.intermediate_size, v.hidden_size);
      affine(layer + "mlp.fc2", v.hidden_size, v.intermediate_size, writers);
    }
    layer_norm(tower + "post_layernorm");
  }
  void text() {
    const idefics3_text_config& t = c_.text;
    const std::string body = "model.text_model.";
    const double writers = 2.0 * t.num_hidden_layers;
    const std::int64_t queries = std::int64_t{t.num_attention_heads} * t.head_dim;
    const std::int64_t keys = std::int64_t{t.num_key_value_heads} * t.head_dim;
    const float head = 3.0F / root(static_cast<double>(t.hidden_size));  // logits with a deviation of 3
    add(body + "embed_tokens.weight", {t.vocab_size, t.hidden_size}, 0.0F, t.tie_word_embeddings ? head : 1.0F);
    for (std::int32_t i = 0; i < t.num_hidden_layers; ++i) {
      const std::string layer = body + "layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {t.hidden_size}, 1.0F, 0.0F);
      add(layer + "post_attention_layernorm.weight", {t.hidden_size}, 1.0F, 0.0F);
      linear(layer + "self_attn.q_proj", queries, t.hidden_size);
      linear(layer + "self_attn.k_proj", keys, t.hidden_size);
      linear(layer + "self_attn.v_proj", keys, t.hidden_size);
      linear(layer + "self_attn.o_proj", t.hidden_size, queries, writers);
      linear(layer + "mlp.gate_proj", t.intermediate_size, t.hidden_size);
      linear(layer + "mlp.up_proj", t.intermediate_size, t.hidden_size);
      linear(layer + "mlp.down_proj", t.hidden_size, t.intermediate_size, writers);
    }
    add(body + "norm.weight", {t.hidden_size}, 1.0F, 0.0F);
    if (!t.tie_word_embeddings) add("lm_head.weight", {t.vocab_size, t.hidden_size}, 0.0F, head);
  }

  const idefics3_config& c_;
  std::vector<planned_tensor> tensors_;
};

// SplitMix64's output function (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31U);
}

// A tensor's numbers depend on seed, name and index alone, so they are the same in every file layout. FNV-1a over the name.
std::uint64_t key_of(std::uint64_t seed, const std::string& name) {
  std::uint64_t h = 0xCBF29CE484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return mixed(h ^ mixed(seed + 0x9E3779B97F4A7C15ULL));
}

// Element i of the noise, deviation 1: the sum of the four 16-bit parts of one random word, nearly normal. Integers and one
// multiplication, so that the bits do not depend on a mathematical library.
float noise(std::uint64_t key, std::uint64_t i, float deviation) {
  const std::uint64_t r = mixed(key + (i + 1) * 0x9E3779B97F4A7C15ULL);
  const std::int32_t sum = static_cast<std::int32_t>((r & 0xFFFFU) + ((r >> 16U) & 0xFFFFU) + ((r >> 32U) & 0xFFFFU) + (r >> 48U)) - 131070;
  constexpr float unit = 1.0F / 37837.2266F;  // deviation of the sum: 65536 sqrt(4 / 12)
  return static_cast<float>(sum) * (unit * deviation);
}

tensor_to_write made(const planned_tensor& p, std::uint64_t seed, dtype type) {
  const auto n = static_cast<std::uint64_t>(p.elements());
  const std::uint64_t key = key_of(seed, p.name);
  tensor_to_write t{.name = p.name, .type = type, .shape = p.shape, .bytes = {}};
  t.bytes.resize(n * static_cast<std::uint64_t>(size_of(type)));
  for (std::uint64_t i = 0; i < n; ++i) {
    const float value = p.deviation == 0.0F ? p.mean : p.mean + noise(key, i, p.deviation);
    if (type == dtype::f32) {
      std::memcpy(t.bytes.data() + i * sizeof value, &value, sizeof value);
    } else {
      const std::uint16_t rounded = f32_to_bf16(value);
      std::memcpy(t.bytes.data() + i * sizeof rounded, &rounded, sizeof rounded);
    }
  }
  return t;
}

// Files of about equal size, tensors in their order. Never an empty file.
std::vector<std::vector<planned_tensor>> dealt(std::vector<planned_tensor> tensors, std::int32_t shards) {
  std::int64_t total = 0;
  for (const planned_tensor& t : tensors) total += t.elements();
  std::vector<std::vector<planned_tensor>> out(1);
  std::int64_t before = 0;
  for (planned_tensor& t : tensors) {
    const auto wanted =
        static_cast<std::size_t>(before * shards / std::max<std::int64_t>(total, 1));  // shard by the tensor's first element
    if (wanted >= out.size() && !out.back().empty()) out.emplace_back();
    before += t.elements();
    out.back().push_back(std::move(t));
  }
  return out;
}

void check_shape(const random_checkpoint_shape& shape, const random_checkpoint_options& options) {
  const idefics3_config& c = shape.config;
  const auto need = [](bool good, const std::string& what, std::int64_t found, const std::string& expected) {
    if (!good) throw invalid_argument("random checkpoint: " + what + " is " + std::to_string(found) + ", expected " + expected);
  };
  const auto positive = [&](const char* what, std::int32_t n) { need(n > 0, what, n, "at least 1"); };
  need(options.type == dtype::bf16 || options.type == dtype::f32, "the number type's size in bytes", size_of(options.type),
       "2 (bf16) or 4 (f32)");
  need(options.shards >= 1, "shards", options.shards, "at least 1");
  positive("vision hidden_size", c.vision.hidden_size), positive("vision intermediate_size", c.vision.intermediate_size);
  positive("vision num_hidden_layers", c.vision.num_hidden_layers), positive("vision num_attention_heads", c.vision.num_attention_heads);
  positive("patch_size", c.vision.patch_size), positive("scale_factor", c.scale_factor), positive("image_size", c.vision.image_size);
  positive("hidden_size", c.text.hidden_size), positive("intermediate_size", c.text.intermediate_size);
  positive("num_hidden_layers", c.text.num_hidden_layers), positive("num_attention_heads", c.text.num_attention_heads);
  positive("num_key_value_heads", c.text.num_key_value_heads), positive("head_dim", c.text.head_dim),
      positive("vocab_size", c.text.vocab_size);
  need(c.vision.hidden_size % c.vision.num_attention_heads == 0, "vision hidden_size", c.vision.hidden_size,
       "a multiple of num_attention_heads " + std::to_string(c.vision.num_attention_heads));
  need(c.vision.image_size % c.vision.patch_size == 0, "image_size", c.vision.image_size,
       "a multiple of patch_size " + std::to_string(c.vision.patch_size));
  need(c.vision.patches_per_side() % c.scale_factor == 0, "patches a side", c.vision.patches_per_side(),
       "a multiple of scale_factor " + std::to_string(c.scale_factor));
  need(c.text.num_attention_heads % c.text.num_key_value_heads == 0, "num_attention_heads", c.text.num_attention_heads,
       "a multiple of num_key_value_heads " + std::to_string(c.text.num_key_value_heads));
  need(c.text.head_dim % 2 == 0, "head_dim", c.text.head_dim, "an even number");
  check_vocabulary(shape);
}

void make_room(const fs::path& folder, bool overwrite) {
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) throw file_error(folder.string() + ": cannot be made: " + ec.message());
  if (fs::is_empty(folder, ec)) return;
  if (!overwrite) throw file_error(folder.string() + ": is not empty, and overwriting was not asked for");
  std::vector<fs::path> weights;  // of an earlier checkpoint: one file and shards side by side would contradict each other
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "model.safetensors.index.json" || (name.starts_with("model") && name.ends_with(".safetensors")))
      weights.push_back(entry.path());
  }
  for (const fs::path& p : weights) fs::remove(p);
}

std::string file_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return text.data();
}

constexpr std::array<std::string_view, 3> shape_names{"tiny", "smolvlm-256m", "smolvlm-500m"};

}  // namespace

std::span<const std::string_view> checkpoint_shape_names() noexcept { return shape_names; }

random_checkpoint_shape named_checkpoint_shape(std::string_view name) {
  random_checkpoint_shape shape;
  idefics3_config& c = shape.config;
  if (name == shape_names[0]) {
    shape.tile_grid = 4;
    c.vision = {
        .hidden_size = 128, .intermediate_size = 384, .num_hidden_layers = 3, .num_attention_heads = 4, .image_size = 96, .patch_size = 8};
    c.text = {.hidden_size = 256,
              .intermediate_size = 640,
              .num_hidden_layers = 5,
              .num_attention_heads = 8,
              .num_key_value_heads = 4,
              .head_dim = 32,
              .vocab_size = 488,
              .max_position_embeddings = 1024,
              .rms_norm_eps = 1e-5F,
              .rope_theta = 10000.0F};
    c.preprocessing.size_longest_edge = c.preprocessing.max_image_size_longest_edge = 96;
    c.preprocessing.do_image_splitting = false;
    c.scale_factor = 2;
    c.image_token_id = 486;
    c.eos_token_ids = {467};
    return shape;
  }
  const bool small = name == shape_names[1];
  if (!small && name != shape_names[2]) {
    std::string known;
    for (const std::string_view n : shape_names) known += (known.empty() ? "" : ", ") + std::string(n);
    throw invalid_argument("no checkpoint shape is called '" + std::string(name) + "', expected one of " + known);
  }
  c.vision = {.hidden_size = 768,
              .intermediate_size = 3072,
              .num_hidden_layers = 12,
              .num_attention_heads = 12,
              .image_size = 512,
              .patch_size = 16};
  c.text = {.hidden_size = small ? 576 : 960,
            .intermediate_size = small ? 1536 : 2560,
            .num_hidden_layers = small ? 30 : 32,
            .num_attention_heads = small ? 9 : 15,
            .num_key_value_heads = small ? 3 : 5,
            .head_dim = 64,
            .vocab_size = 49280,
            .max_position_embeddings = 8192,
            .rms_norm_eps = 1e-5F,
            .rope_theta = 100000.0F};
  c.preprocessing.size_longest_edge = 2048;
  c.preprocessing.max_image_size_longest_edge = 512;
  c.scale_factor = 4;
  c.image_token_id = 49190;
  c.eos_token_ids = {49279};
  return shape;
}

random_checkpoint_report write_random_checkpoint(const random_checkpoint_shape& shape, const std::string& folder,
                                                 const random_checkpoint_options& options) {
  check_shape(shape, options);
  const fs::path dir(folder);
  make_room(dir, options.overwrite);
  write_checkpoint_files(shape, options.type, dir);

  const auto shards = dealt(planner(shape.config).all(), options.shards);
  random_checkpoint_report report{.files = static_cast<std::int32_t>(shards.size())};
  for (const auto& shard : shards) {
    for (const planned_tensor& t : shard) report.parameters += t.elements();
  }
  report.weight_bytes = report.parameters * size_of(options.type);
  nlohmann::json places = nlohmann::json::object();
  std::int64_t done = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = file_name(i, shards.size());
    std::vector<tensor_to_write> tensors;
    for (const planned_tensor& t : shards[i]) {
      tensors.push_back(made(t, options.seed, options.type));
      places[t.name] = file;
      done += t.elements() * size_of(options.type);
      if (options.progress) options.progress(done, report.weight_bytes);
    }
    write_safetensors((dir / file).string(), tensors);
  }
  if (shards.size() > 1)
    write_json(dir / "model.safetensors.index.json", {{"metadata", {{"total_size", report.weight_bytes}}}, {"weight_map", places}});
  return report;
}

}  // namespace vlbatch::inline v0
