// SPDX-License-Identifier: Apache-2.0
// Folders that are wrong in one way each: the error is one line, and says which
// file, which item, and both values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/files.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/safetensors.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"
#include "vlbatch/model/idefics3/random_checkpoint.hpp"

namespace vlbatch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

random_checkpoint_shape small_shape() {
  random_checkpoint_shape s;
  s.tile_grid = 2;
  s.config.vision = {
      .hidden_size = 16, .intermediate_size = 24, .num_hidden_layers = 1, .num_attention_heads = 2, .image_size = 16, .patch_size = 4};
  s.config.text = {.hidden_size = 24,
                   .intermediate_size = 32,
                   .num_hidden_layers = 2,
                   .num_attention_heads = 3,
                   .num_key_value_heads = 1,
                   .head_dim = 8,
                   .vocab_size = 272,
                   .max_position_embeddings = 128,
                   .rms_norm_eps = 1e-5F};
  s.config.preprocessing.size_longest_edge = s.config.preprocessing.max_image_size_longest_edge = 16;
  s.config.scale_factor = 2;
  s.config.image_token_id = 270;
  s.config.eos_token_ids = {271};
  return s;
}

/// A good folder, written anew for each test.
class load_errors : public ::testing::Test {
 protected:
  void SetUp() override { write(); }

  void write(const random_checkpoint_shape& shape = small_shape(), std::int32_t shards = 1) {
    write_random_checkpoint(shape, folder_.string(), {.seed = 3, .type = dtype::bf16, .shards = shards, .overwrite = true});
  }
  [[nodiscard]] std::string path(const std::string& file) const { return (folder_ / file).string(); }

  void edit_json(const std::string& file, const std::function<void(json&)>& edit) const {
    json j;
    std::ifstream(path(file)) >> j;
    edit(j);
    std::ofstream(path(file)) << j;
  }
  // All tensors of the single file through \p edit and back.
  void edit_tensors(const std::function<void(std::vector<tensor_to_write>&)>& edit) const {
    std::vector<tensor_to_write> all;
    {
      const checkpoint stored = checkpoint::open_file(path("model.safetensors"));
      for (const tensor_view& t : stored.tensors()) {
        all.push_back({std::string(t.name), t.type, {t.shape.begin(), t.shape.end()}, {t.data, t.data + t.elements * size_of(t.type)}});
      }
    }
    edit(all);
    write_safetensors(path("model.safetensors"), all);
  }
  static tensor_to_write& named(std::vector<tensor_to_write>& all, const std::string& name) {
    return *std::find_if(all.begin(), all.end(), [&](const tensor_to_write& t) { return t.name == name; });
  }
  // The JSON header of the single file through \p edit and back, data as it is.
  void edit_header(const std::function<void(json&)>& edit) const {
    std::ifstream in(path("model.safetensors"), std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::uint64_t length = 0;
    std::memcpy(&length, whole.data(), sizeof length);
    json header = json::parse(whole.substr(8, length));
    edit(header);
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t written = text.size();
    std::ofstream out(path("model.safetensors"), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&written), sizeof written);
    out << text << whole.substr(8 + length);
  }

  // The error of loading the folder: one line, a vlbatch::error, naming \p
  // parts.
  void expect_refused(const std::vector<std::string>& parts) const {
    try {
      const auto m = idefics3<cpu>::load(folder_.string());
      ADD_FAILURE() << "loaded";
    } catch (const error& e) {
      const std::string text = e.what();
      EXPECT_THAT(text, Not(HasSubstr("\n")));
      for (const std::string& part : parts) EXPECT_THAT(text, HasSubstr(part));
      RecordProperty("text", text);
    }
  }

  testing::temporary_folder temporary_;
  fs::path folder_ = temporary_.path("a_model");
};

TEST_F(load_errors, the_folder_loads_as_it_is) {
  const auto m = idefics3<cpu>::load(folder_.string());
  EXPECT_EQ(m.info().name, folder_.filename().string());
  EXPECT_EQ(m.info().vocab_size, 272);
  EXPECT_EQ(m.info().hidden_size, 24);
  EXPECT_EQ(m.info().tokens_per_tile, 4);
  EXPECT_EQ(m.info().max_positions, 128);
  EXPECT_EQ(m.info().eos_tokens, std::vector<std::int32_t>{271});
  EXPECT_EQ(m.info().kv, (kv_shape{.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .type = dtype::f32}));
  EXPECT_GE(m.decoder_bytes(), 2LL * (272 * 24 + 2 * (24 * 40 + 24 * 24 + 3 * 24 * 32)));
}

TEST_F(load_errors, no_folder) {
  fs::remove_all(folder_);
  expect_refused({folder_.string()});
}
TEST_F(load_errors, no_config) {
  fs::remove(path("config.json"));
  expect_refused({path("config.json")});
}
TEST_F(load_errors, no_tokenizer) {
  fs::remove(path("tokenizer.json"));
  expect_refused({path("tokenizer.json")});
}
TEST_F(load_errors, no_weights) {
  fs::remove(path("model.safetensors"));
  expect_refused({folder_.string(), "model.safetensors"});
}
TEST_F(load_errors, no_shard) {
  write(small_shape(), 3);
  fs::remove(path("model-00002-of-00003.safetensors"));
  expect_refused({path("model-00002-of-00003.safetensors"), path("model.safetensors.index.json")});
}
TEST_F(load_errors, config_that_is_no_json) {
  std::ofstream(path("config.json")) << "{\"architectures\": [";
  expect_refused({path("config.json")});
}
TEST_F(load_errors, unknown_architecture) {
  edit_json("config.json", [](json& j) { j["architectures"] = {"LlavaForConditionalGeneration"}, j["model_type"] = "llava"; });
  expect_refused({path("config.json"), "LlavaForConditionalGeneration", "Idefics3ForConditionalGeneration"});
}
TEST_F(load_errors, missing_tensor) {
  edit_tensors([](auto& all) {
    std::erase_if(all, [](const tensor_to_write& t) { return t.name == "model.text_model.layers.1.mlp.up_proj.weight"; });
  });
  expect_refused({path("model.safetensors"), "model.text_model.layers.1.mlp.up_proj.weight", "[32, 24]"});
}
TEST_F(load_errors, extra_tensor) {
  edit_tensors([](auto& all) {
    tensor_to_write t = named(all, "model.text_model.layers.1.mlp.up_proj.weight");
    t.name = "model.text_model.layers.2.mlp.up_proj.weight";
    all.push_back(t);
  });
  expect_refused({path("model.safetensors"), "model.text_model.layers.2.mlp.up_proj.weight", "[32, 24]", "2 text layers"});
}
TEST_F(load_errors, extra_tensor_of_a_number_type_that_nothing_reads) {
  edit_tensors([](auto& all) { all.push_back({"steps", dtype::i8, {32}, std::vector<std::byte>(32)}); });
  edit_header([](json& header) { header["steps"]["dtype"] = "I64", header["steps"]["shape"] = {4}; });
  expect_refused({path("model.safetensors"), "steps", "I64", "2 text layers"});
}
TEST_F(load_errors, buffers_of_older_versions_are_no_error) {
  edit_tensors([](auto& all) {
    all.push_back({"model.text_model.layers.0.self_attn.rotary_emb.inv_freq", dtype::f32, {4}, std::vector<std::byte>(16)});
    all.push_back({"model.vision_model.embeddings.position_ids", dtype::i8, {16}, std::vector<std::byte>(16)});
  });
  edit_header([](json& header) {
    auto& t = header["model.vision_model.embeddings.position_ids"];
    t["dtype"] = "I64", t["shape"] = {2};
  });
  EXPECT_NO_THROW(idefics3<cpu>::load(folder_.string()));
}
TEST_F(load_errors, wrong_shape) {
  edit_tensors([](auto& all) { named(all, "model.text_model.layers.0.self_attn.k_proj.weight").shape = {24, 8}; });
  expect_refused({path("model.safetensors"), "model.text_model.layers.0.self_attn.k_proj.weight", "[24, 8]", "[8, 24]"});
}
TEST_F(load_errors, config_with_another_width_than_the_weights) {
  edit_json("config.json", [](json& j) { j["text_config"]["intermediate_size"] = 36; });
  expect_refused({path("model.safetensors"), "model.text_model.layers.0.mlp.gate_proj.weight", "[32, 24]", "[36, 24]"});
}
TEST_F(load_errors, wrong_dtype) {
  edit_tensors([](auto& all) {
    tensor_to_write& t = named(all, "model.connector.modality_projection.proj.weight");
    t.type = dtype::i8;
    t.bytes.resize(t.bytes.size() / 2);
  });
  expect_refused({path("model.safetensors"), "model.connector.modality_projection.proj.weight", "I8", "F32", "BF16"});
}
TEST_F(load_errors, dtype_that_nothing_reads) {
  edit_header([](json& header) {
    auto& t = header["model.text_model.norm.weight"];
    t["dtype"] = "I64", t["shape"] = {6};
  });
  expect_refused({path("model.safetensors"), "model.text_model.norm.weight", "I64", "F32"});
}
TEST_F(load_errors, truncated_weights) {
  const auto size = static_cast<std::int64_t>(fs::file_size(path("model.safetensors")));
  std::uint64_t header = 0;
  std::ifstream(path("model.safetensors"), std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
  const auto data_begin = static_cast<std::int64_t>(8 + header);
  for (const std::int64_t left :
       {size - 1, (size + data_begin) / 2, data_begin, data_begin - 1, std::int64_t{8}, std::int64_t{7}, std::int64_t{0}}) {
    SCOPED_TRACE(left);
    write();
    fs::resize_file(path("model.safetensors"), static_cast<std::uintmax_t>(left));
    expect_refused({path("model.safetensors"), std::to_string(left >= data_begin ? left - data_begin : left)});
  }
}
TEST_F(load_errors, overlapping_tensors) {
  edit_header([](json& header) {
    header["model.text_model.layers.0.mlp.up_proj.weight"]["data_offsets"] =
        header["model.text_model.layers.0.mlp.gate_proj.weight"]["data_offsets"];
  });
  expect_refused({path("model.safetensors"), "model.text_model.layers.0.mlp."});
}
TEST_F(load_errors, tied_weight_that_was_stored_twice) {
  random_checkpoint_shape shape = small_shape();
  shape.config.text.tie_word_embeddings = true;
  write(shape);
  const auto add_copy = [](auto& all) {
    tensor_to_write t = named(all, "model.text_model.embed_tokens.weight");
    t.name = "lm_head.weight";
    all.push_back(t);
  };
  edit_tensors(add_copy);
  EXPECT_NO_THROW(idefics3<cpu>::load(folder_.string()));
  edit_tensors([](auto& all) { named(all, "lm_head.weight").bytes[6] ^= std::byte{0x40}; });
  expect_refused({path("model.safetensors"), "lm_head.weight", "model.text_model.embed_tokens.weight", "element 3"});
}
TEST_F(load_errors, names_that_are_made_to_confuse) {
  edit_tensors([](auto& all) {
    all.push_back({"evil\nname\x1b[31m" + std::string(1000, 'x'), dtype::f32, {1}, std::vector<std::byte>(4)});
  });
  expect_refused({path("model.safetensors"), "evil"});
}
// Every header field of every kind, flipped: an error or a model, never a crash
// (the sanitizers watch).
TEST_F(load_errors, a_byte_changed_anywhere_in_the_header) {
  std::ifstream in(path("model.safetensors"), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::uint32_t state = 1;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525U + 1013904223U;
    std::string changed = whole;
    changed[(state >> 8U) % 4000] = static_cast<char>(state >> 3U);
    std::ofstream(path("model.safetensors"), std::ios::binary) << changed;
    try {
      const auto m = idefics3<cpu>::load(folder_.string());
      EXPECT_EQ(m.info().vocab_size, 272);
    } catch (const error& e) {
      EXPECT_THAT(std::string(e.what()), AllOf(HasSubstr(path("model.safetensors")), Not(HasSubstr("\n"))));
    }
  }
}

}  // namespace
}  // namespace vlbatch
