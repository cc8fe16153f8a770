// SPDX-License-Identifier: Apache-2.0
#include "model/idefics3/random_checkpoint_files.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int32_t first_byte_token = 3;  // after <|endoftext|>, <|im_start|>, <|im_end|>
constexpr std::int32_t num_byte_tokens = 256;
constexpr const char* end_of_utterance = "<end_of_utterance>";

constexpr const char* chat_template =
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% if message['content'][0]['type'] != 'image' %}{{ ' ' }}{% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}";

// GPT-2's printable stand-ins for bytes, in the order of their code points: printable bytes stand for themselves, the 68 others are
// U+0100 onwards.
std::vector<std::string> byte_alphabet() {
  std::vector<std::int32_t> points;
  std::int32_t next = 256;
  for (std::int32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    points.push_back(printable ? b : next++);
  }
  std::sort(points.begin(), points.end());
  std::vector<std::string> letters;
  for (const std::int32_t p : points) {
    if (p < 0x80) {
      letters.emplace_back(1, static_cast<char>(p));
    } else {
      letters.push_back({static_cast<char>(0xC0 | (p >> 6)), static_cast<char>(0x80 | (p & 0x3F))});
    }
  }
  return letters;
}

// Where the tokens of pictures lie: <global-img>, the grid, <fake_token_around_image>, <image>, next to each other.
struct special_layout {
  std::int32_t image, fake, first_cell, global, eos, first_added;
};

special_layout layout_of(const random_checkpoint_shape& shape) {
  special_layout l{};
  l.image = shape.config.image_token_id;
  l.fake = l.image - 1;
  l.first_cell = l.fake - shape.tile_grid * shape.tile_grid;
  l.global = l.first_cell - 1;
  l.eos = shape.config.eos_token_ids.empty() ? -1 : shape.config.eos_token_ids.front();
  // The tokenizers package numbers added tokens on from the vocabulary, so they are the last ids without a gap.
  l.first_added = std::min(l.global, l.eos);
  return l;
}

std::string added_token(const random_checkpoint_shape& shape, std::int32_t id) {
  const special_layout l = layout_of(shape);
  if (id == l.eos) return end_of_utterance;
  if (id == l.global) return "<global-img>";
  if (id == l.fake) return "<fake_token_around_image>";
  if (id == l.image) return "<image>";
  if (id >= l.first_cell && id < l.fake) {
    const std::int32_t cell = id - l.first_cell;
    return "<row_" + std::to_string(cell / shape.tile_grid + 1) + "_col_" + std::to_string(cell % shape.tile_grid + 1) + ">";
  }
  return "<|reserved_special_token_" + std::to_string(id) + "|>";
}

// The double that prints as the f32 does: 1e-05, not 9.999999747378752e-06.
double shortest(float x) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), x);
  double value = 0.0;
  std::from_chars(text.data(), written.ptr, value);
  return value;
}

json config_json(const random_checkpoint_shape& shape, dtype type) {
  const idefics3_config& c = shape.config;
  const bool smolvlm = c.kind == idefics3_config::family::smolvlm;
  const std::int32_t eos = c.eos_token_ids.front();
  return {{"architectures", {smolvlm ? "SmolVLMForConditionalGeneration" : "Idefics3ForConditionalGeneration"}},
          {"model_type", smolvlm ? "smolvlm" : "idefics3"},
          {"torch_dtype", type == dtype::f32 ? "float32" : "bfloat16"},
          {"image_token_id", c.image_token_id},
          {"bos_token_id", 1},
          {"eos_token_id", eos},
          {"pad_token_id", 2},
          {"scale_factor", c.scale_factor},
          {"tie_word_embeddings", c.text.tie_word_embeddings},
          {"use_cache", true},
          {"vocab_size", c.text.vocab_size},
          {"text_config",
           {{"model_type", "llama"},
            {"attention_bias", false},
            {"bos_token_id", 1},
            {"eos_token_id", eos},
            {"pad_token_id", 2},
            {"head_dim", c.text.head_dim},
            {"hidden_act", c.text.hidden_act},
            {"hidden_size", c.text.hidden_size},
            {"intermediate_size", c.text.intermediate_size},
            {"max_position_embeddings", c.text.max_position_embeddings},
            {"mlp_bias", false},
            {"num_attention_heads", c.text.num_attention_heads},
            {"num_hidden_layers", c.text.num_hidden_layers},
            {"num_key_value_heads", c.text.num_key_value_heads},
            {"rms_norm_eps", shortest(c.text.rms_norm_eps)},
            {"rope_scaling", nullptr},
            {"rope_theta", shortest(c.text.rope_theta)},
            {"tie_word_embeddings", c.text.tie_word_embeddings},
            {"vocab_size", c.text.vocab_size}}},
          {"vision_config",
           {{"model_type", smolvlm ? "smolvlm_vision" : "idefics3_vision"},
            {"hidden_act", c.vision.hidden_act},
            {"hidden_size", c.vision.hidden_size},
            {"image_size", c.vision.image_size},
            {"intermediate_size", c.vision.intermediate_size},
            {"layer_norm_eps", shortest(c.vision.layer_norm_eps)},
            {"num_attention_heads", c.vision.num_attention_heads},
            {"num_channels", 3},
            {"num_hidden_layers", c.vision.num_hidden_layers},
            {"patch_size", c.vision.patch_size}}}};
}

json preprocessor_json(const idefics3_preprocessing& p) {
  return {{"do_convert_rgb", p.do_convert_rgb},
          {"do_image_splitting", p.do_image_splitting},
          {"do_normalize", p.do_normalize},
          {"do_pad", true},
          {"do_rescale", p.do_rescale},
          {"do_resize", p.do_resize},
          {"image_mean", p.image_mean},
          {"image_std", p.image_std},
          {"image_processor_type", "Idefics3ImageProcessor"},
          {"max_image_size", {{"longest_edge", p.max_image_size_longest_edge}}},
          {"processor_class", "Idefics3Processor"},
          {"resample", p.resample},
          {"rescale_factor", p.rescale_factor},
          {"size", {{"longest_edge", p.size_longest_edge}}}};
}

json token_names() {
  return {{"additional_special_tokens", {"<fake_token_around_image>", "<image>", end_of_utterance}},
          {"bos_token", "<|im_start|>"},
          {"eos_token", end_of_utterance},
          {"pad_token", "<|im_end|>"},
          {"unk_token", "<|endoftext|>"}};
}

// Bytes are tokens, nothing merges, and the ids that a trained tokenizer would give to merged tokens are words that say which id they are:
// a random model's answers are readable, and no text becomes one of them.
json tokenizer_json(const random_checkpoint_shape& shape) {
  const special_layout l = layout_of(shape);
  json vocab = json::object();
  json added = json::array();
  const auto add_special = [&](std::int32_t id, const std::string& text) {
    added.push_back({{"id", id},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  };
  constexpr std::array<const char*, first_byte_token> control{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (std::int32_t id = 0; id < first_byte_token; ++id) {
    vocab[control[static_cast<std::size_t>(id)]] = id;
    add_special(id, control[static_cast<std::size_t>(id)]);
  }
  std::int32_t id = first_byte_token;
  for (const std::string& letter : byte_alphabet()) vocab[letter] = id++;
  for (; id < l.first_added; ++id) vocab["\u0120w" + std::to_string(id)] = id;  // U+0120 stands for the space
  for (; id < shape.config.text.vocab_size; ++id) add_special(id, added_token(shape, id));
  const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level}}}},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

void write_text(const fs::path& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed) throw file_error(path.string() + ": cannot be written");
}

}  // namespace

void check_vocabulary(const random_checkpoint_shape& shape) {
  const special_layout l = layout_of(shape);
  const std::int32_t vocab = shape.config.text.vocab_size;
  const auto refuse = [](const std::string& what, std::int64_t found, const std::string& expected) {
    throw invalid_argument("random checkpoint: " + what + " is " + std::to_string(found) + ", expected " + expected);
  };
  if (shape.tile_grid < 0 || shape.tile_grid > 100) refuse("tile_grid", shape.tile_grid, "0 to 100");
  if (shape.config.eos_token_ids.size() != 1)
    refuse("the number of eos_token_ids", static_cast<std::int64_t>(shape.config.eos_token_ids.size()), "1");
  if (l.image >= vocab) refuse("image_token_id", l.image, "less than vocab_size " + std::to_string(vocab));
  if (l.global < first_byte_token + num_byte_tokens) {
    refuse("image_token_id", l.image,
           "at least " + std::to_string(first_byte_token + num_byte_tokens + l.image - l.global) +
               " to leave room for control, byte and grid tokens");
  }
  if (l.eos >= vocab || l.eos < first_byte_token + num_byte_tokens || (l.eos >= l.global && l.eos <= l.image)) {
    refuse("the id in eos_token_ids", l.eos,
           "one from " + std::to_string(first_byte_token + num_byte_tokens) + " to " + std::to_string(vocab - 1) +
               " outside the picture tokens " + std::to_string(l.global) + " to " + std::to_string(l.image));
  }
}

void write_json(const fs::path& path, const json& value) { write_text(path, value.dump(2) + "\n"); }

void write_checkpoint_files(const random_checkpoint_shape& shape, dtype type, const fs::path& folder) {
  const idefics3_config& c = shape.config;
  write_json(folder / "config.json", config_json(shape, type));
  write_json(folder / "generation_config.json", {{"bos_token_id", 1}, {"eos_token_id", c.eos_token_ids.front()}, {"pad_token_id", 2}});
  write_json(folder / "preprocessor_config.json", preprocessor_json(c.preprocessing));
  write_json(folder / "processor_config.json", {{"image_seq_len", c.tokens_per_tile()}, {"processor_class", "Idefics3Processor"}});
  write_text(folder / "tokenizer.json", tokenizer_json(shape).dump() + "\n");
  json tokenizer_config = token_names();
  tokenizer_config.update({{"clean_up_tokenization_spaces", false},
                           {"model_input_names", {"input_ids", "attention_mask"}},
                           {"model_max_length", c.text.max_position_embeddings},
                           {"processor_class", "Idefics3Processor"},
                           {"tokenizer_class", "PreTrainedTokenizerFast"}});
  write_json(folder / "tokenizer_config.json", tokenizer_config);
  write_json(folder / "special_tokens_map.json", token_names());
  write_text(folder / "chat_template.jinja", chat_template);
}

}  // namespace vlbatch::inline v0
