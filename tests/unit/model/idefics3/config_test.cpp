// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/config.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "support/files.hpp"
#include "vlbatch/core/error.hpp"

namespace {

using namespace vlbatch;
using nlohmann::json;
using vlbatch::testing::error_of;
using vlbatch::testing::golden_text;
using vlbatch::testing::read_json;
using vlbatch::testing::temporary_folder;

// Every key that matters, none at its default.
json whole() {
  return json::parse(R"({
    "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3", "torch_dtype": "bfloat16",
    "image_token_id": 490, "eos_token_id": 12, "scale_factor": 3, "tie_word_embeddings": true,
    "text_config": {"model_type": "llama", "hidden_size": 60, "intermediate_size": 100, "num_hidden_layers": 5, "num_attention_heads": 6,
      "num_key_value_heads": 2, "head_dim": 12, "vocab_size": 500, "max_position_embeddings": 777, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
      "rope_scaling": null, "tie_word_embeddings": false, "hidden_act": "silu", "attention_bias": false, "mlp_bias": false},
    "vision_config": {"model_type": "idefics3_vision", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
      "num_channels": 3, "image_size": 96, "patch_size": 8, "layer_norm_eps": 1e-4, "hidden_act": "gelu_pytorch_tanh"}
  })");
}

json preprocessor() {
  return json::parse(
      R"({"do_convert_rgb": false, "do_resize": false, "size": {"longest_edge": 384}, "resample": 3, "do_image_splitting": false,
    "max_image_size": {"longest_edge": 96}, "do_rescale": false, "rescale_factor": 0.5, "do_normalize": false, "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.4, 0.5, 0.6], "do_pad": true})");
}

TEST(config, reads_every_key) {
  const temporary_folder folder;
  folder.write("config.json", whole());
  folder.write("preprocessor_config.json", preprocessor());
  folder.write("processor_config.json", R"({"image_seq_len": 16, "processor_class": "Idefics3Processor"})");
  idefics3_config expected;
  expected.source = folder.path();
  expected.vision = {64, 96, 3, 4, 96, 8, 1e-4F, "gelu_pytorch_tanh"};
  expected.text = {60, 100, 5, 6, 2, 12, 500, 777, 1e-5F, 100000.0F, false, "silu"};
  expected.preprocessing = {false, false, 384, 3, false, 96, false, 0.5, false, {0.1, 0.2, 0.3}, {0.4, 0.5, 0.6}};
  expected.scale_factor = 3;
  expected.image_token_id = 490;
  expected.eos_token_ids = {12};
  expected.torch_dtype = dtype::bf16;
  const idefics3_config c = idefics3_config::load(folder.path());
  EXPECT_EQ(c, expected);
  EXPECT_EQ(c.tokens_per_tile(), 16);  // 96 / 8 / 3 squared
  EXPECT_EQ(c.vision.num_patches(), 144);
  EXPECT_EQ(c.vision.head_dim(), 16);
}

TEST(config, reads_what_transformers_reads) {
  const json goldens = read_json(golden_text("configs.json"));
  for (const json& g : goldens["cases"]) {
    const temporary_folder folder;
    folder.write("config.json", g["config"]);
    if (!g["generation_config"].is_null()) folder.write("generation_config.json", g["generation_config"]);
    const idefics3_config c = idefics3_config::load(folder.path());
    SCOPED_TRACE(g["config"].dump());
    const json& t = g["text"];
    const json& v = g["vision"];
    EXPECT_EQ(c.kind, g["config"]["model_type"] == "smolvlm" ? idefics3_config::family::smolvlm : idefics3_config::family::idefics3);
    EXPECT_EQ(c.text, (idefics3_text_config{t["hidden_size"], t["intermediate_size"], t["num_hidden_layers"], t["num_attention_heads"],
                                            t["num_key_value_heads"], t["head_dim"], t["vocab_size"], t["max_position_embeddings"],
                                            t["rms_norm_eps"], t["rope_theta"], t["tie_word_embeddings"], "silu"}));
    EXPECT_EQ(c.vision, (idefics3_vision_config{v["hidden_size"], v["intermediate_size"], v["num_hidden_layers"], v["num_attention_heads"],
                                                v["image_size"], v["patch_size"], v["layer_norm_eps"], "gelu_pytorch_tanh"}));
    EXPECT_EQ(c.scale_factor, g["scale_factor"].get<int>());
    EXPECT_EQ(c.image_token_id, g["image_token_id"].get<int>());
    EXPECT_EQ(c.eos_token_ids, g["eos"].get<std::vector<std::int32_t>>());
    EXPECT_EQ(c.torch_dtype, g["dtype"] == "bfloat16" ? dtype::bf16 : dtype::f32);
    // Nothing says how pictures are cut: tiles of the vision tower's size.
    idefics3_preprocessing p;
    p.max_image_size_longest_edge = c.vision.image_size;
    p.size_longest_edge = 4 * c.vision.image_size;
    EXPECT_EQ(c.preprocessing, p);
  }
}

TEST(config, preprocessing_defaults_are_those_of_transformers) {
  const json d = read_json(golden_text("configs.json"))["preprocessing_defaults"];
  const idefics3_preprocessing p;
  EXPECT_EQ(p, (idefics3_preprocessing{d["do_convert_rgb"], d["do_resize"], d["size"]["longest_edge"], d["resample"],
                                       d["do_image_splitting"], d["max_image_size"]["longest_edge"], d["do_rescale"], d["rescale_factor"],
                                       d["do_normalize"], d["image_mean"], d["image_std"]}));
  // An empty file has them, too, so that only a tower of 364 pixels fits.
  const temporary_folder folder;
  json c = whole();
  c["scale_factor"] = 2;
  c["vision_config"]["image_size"] = 364;
  c["vision_config"]["patch_size"] = 14;
  folder.write("config.json", c);
  folder.write("preprocessor_config.json", "{}");
  EXPECT_EQ(idefics3_config::load(folder.path()).preprocessing, p);
}

TEST(config, mean_and_std_may_be_one_number) {
  const temporary_folder folder;
  folder.write("config.json", whole());
  json p = preprocessor();
  p["image_mean"] = 0.25;
  p["image_std"] = 2;
  folder.write("preprocessor_config.json", p);
  const auto c = idefics3_config::load(folder.path());
  EXPECT_EQ(c.preprocessing.image_mean, (std::array{0.25, 0.25, 0.25}));
  EXPECT_EQ(c.preprocessing.image_std, (std::array{2.0, 2.0, 2.0}));
}

TEST(config, newer_folders) {
  const temporary_folder folder;
  json c = whole();
  c["dtype"] = "float16";
  c.erase("torch_dtype");
  c["text_config"].erase("rope_theta");
  c["text_config"]["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
  folder.write("config.json", c);
  folder.write("processor_config.json", json{{"image_seq_len", 16}, {"image_processor", preprocessor()}});
  folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  const auto got = idefics3_config::load(folder.path());
  EXPECT_EQ(got.torch_dtype, dtype::f16);
  EXPECT_EQ(got.text.rope_theta, 5000.0F);
  EXPECT_EQ(got.preprocessing.size_longest_edge, 384);
  EXPECT_EQ(got.eos_token_ids, (std::vector<std::int32_t>{3, 4}));
}

std::string refused(const std::function<void(json&)>& change) {
  const temporary_folder folder;
  json c = whole();
  change(c);
  folder.write("config.json", c);
  const std::string text = error_of<model_error>([&] { static_cast<void>(idefics3_config::load(folder.path())); });
  const std::string start = folder.path("config.json") + ": ";
  EXPECT_TRUE(text.starts_with(start)) << text;
  return text.substr(std::min(text.size(), start.size()));
}

TEST(config, names_key_and_both_values) {
  const auto set = [](const char* pointer, const json& value) { return refused([&](json& c) { c[json::json_pointer(pointer)] = value; }); };
  const auto drop = [](const char* object, const char* key) {
    return refused([&](json& c) { (*object == '\0' ? c : c[object]).erase(key); });
  };
  EXPECT_EQ(drop("", "text_config"), "missing key text_config");
  EXPECT_EQ(drop("", "vision_config"), "missing key vision_config");
  EXPECT_EQ(drop("text_config", "hidden_size"), "missing key text_config.hidden_size");
  EXPECT_EQ(refused([](json& c) {
              c.erase("architectures");
              c.erase("model_type");
            }),
            "missing key architectures");
  const std::string both = "Idefics3ForConditionalGeneration (idefics3) or SmolVLMForConditionalGeneration (smolvlm)";
  EXPECT_EQ(set("/architectures", {"LlavaForConditionalGeneration"}),
            "architectures[0] is \"LlavaForConditionalGeneration\", expected " + both);
  EXPECT_EQ(set("/architectures", json::array()), "architectures is an array of 0, expected " + both);
  EXPECT_EQ(set("/architectures", "x"), "architectures is \"x\", expected an array");
  EXPECT_EQ(set("/model_type", "llava"), "model_type is \"llava\", expected " + both);
  EXPECT_NE(set("/model_type", "smolvlm").find("expected the one that belongs to architectures"), std::string::npos);
  EXPECT_EQ(set("/text_config/model_type", "qwen2"), "text_config.model_type is \"qwen2\", expected \"llama\"");
  EXPECT_EQ(set("/text_config/hidden_size", "60"), "text_config.hidden_size is \"60\", expected an integer from 1 to 1048576");
  EXPECT_EQ(set("/text_config/hidden_size", 60.0), "text_config.hidden_size is 60.0, expected an integer from 1 to 1048576");
  EXPECT_EQ(set("/text_config/hidden_size", nullptr), "text_config.hidden_size is null, expected an integer from 1 to 1048576");
  EXPECT_EQ(set("/text_config/num_hidden_layers", 0), "text_config.num_hidden_layers is 0, expected an integer from 1 to 4096");
  EXPECT_EQ(set("/text_config/num_hidden_layers", -3), "text_config.num_hidden_layers is -3, expected an integer from 1 to 4096");
  EXPECT_EQ(set("/text_config/intermediate_size", 1e30), "text_config.intermediate_size is 1e+30, expected an integer from 1 to 1048576");
  EXPECT_EQ(set("/text_config/intermediate_size", 18446744073709551615U),
            "text_config.intermediate_size is 18446744073709551615, expected an integer from 1 to 1048576");
  EXPECT_EQ(set("/text_config/vocab_size", 1LL << 40U), "text_config.vocab_size is 1099511627776, expected an integer from 1 to 16777216");
  EXPECT_EQ(set("/text_config/num_key_value_heads", 4),
            "text_config: num_attention_heads is 6, expected a multiple of num_key_value_heads, which is 4");
  EXPECT_EQ(set("/text_config/head_dim", 7), "text_config: head_dim is 7, expected an even number");
  EXPECT_EQ(refused([](json& c) {
              c["text_config"].erase("head_dim");
              c["text_config"]["hidden_size"] = 62;
            }),
            "text_config: hidden_size is 62, expected a multiple of num_attention_heads, which is 6");
  EXPECT_EQ(set("/text_config/rms_norm_eps", 0), "text_config.rms_norm_eps is 0, expected a number from 1e-30 to 1");
  EXPECT_EQ(set("/text_config/rope_theta", -1), "text_config.rope_theta is -1, expected a number from 1 to 1e+12");
  EXPECT_EQ(set("/text_config/rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
            "text_config.rope_scaling.rope_type is \"llama3\", expected \"default\"");
  EXPECT_EQ(set("/text_config/rope_scaling", {{"type", "linear"}}), "text_config.rope_scaling.type is \"linear\", expected \"default\"");
  EXPECT_EQ(set("/text_config/rope_scaling", 3), "text_config.rope_scaling is 3, expected an object");
  EXPECT_EQ(set("/text_config/hidden_act", "gelu"), "text_config.hidden_act is \"gelu\", expected \"silu\"");
  EXPECT_EQ(set("/text_config/attention_bias", true), "text_config.attention_bias is true, expected false, other values are not supported");
  EXPECT_EQ(set("/text_config/mlp_bias", true), "text_config.mlp_bias is true, expected false, other values are not supported");
  EXPECT_EQ(set("/text_config/tie_word_embeddings", 1), "text_config.tie_word_embeddings is 1, expected true or false");
  EXPECT_EQ(set("/text_config", 1), "text_config is 1, expected an object");
  EXPECT_EQ(set("/vision_config/hidden_act", "quick_gelu"), "vision_config.hidden_act is \"quick_gelu\", expected \"gelu_pytorch_tanh\"");
  EXPECT_EQ(set("/vision_config/num_channels", 1), "vision_config.num_channels is 1, expected 3");
  EXPECT_EQ(set("/vision_config/hidden_size", 66),
            "vision_config: hidden_size is 66, expected a multiple of num_attention_heads, which is 4");
  EXPECT_EQ(set("/vision_config/image_size", 100), "vision_config: image_size is 100, expected a multiple of patch_size, which is 8");
  EXPECT_EQ(set("/vision_config/patch_size", 1 << 20U), "vision_config.patch_size is 1048576, expected an integer from 1 to 65536");
  EXPECT_EQ(set("/scale_factor", 5),
            "scale_factor is 5, expected a divisor of the patches along a side, vision_config.image_size / patch_size = 12");
  EXPECT_EQ(set("/image_token_id", 500), "image_token_id is 500, expected an id below text_config.vocab_size, which is 500");
  EXPECT_EQ(refused([](json& c) { c.erase("image_token_id"); }),
            "image_token_id is 128257, expected an id below text_config.vocab_size, which is 500");
  EXPECT_EQ(set("/eos_token_id", 500), "eos_token_id is 500, expected an integer from 0 to 499");
  EXPECT_EQ(set("/eos_token_id", {1, -1}), "eos_token_id[1] is -1, expected an integer from 0 to 499");
  EXPECT_EQ(set("/torch_dtype", "float64"), "torch_dtype is \"float64\", expected float32, float16 or bfloat16");
  EXPECT_NE(set("/quantization_config", {{"bits", 4}}).find("quantization_config"), std::string::npos);
}

TEST(config, names_what_is_wrong_in_the_other_files) {
  const auto with = [](const char* name, const std::string& content) {
    const temporary_folder folder;
    folder.write("config.json", whole());
    folder.write(name, content);
    const std::string text = error_of<model_error>([&] { static_cast<void>(idefics3_config::load(folder.path())); });
    EXPECT_TRUE(text.starts_with(folder.path(name) + ": ")) << text;
    return text.substr(std::min(text.size(), folder.path(name).size() + 2));
  };
  const auto preprocessing = [&](const char* pointer, const json& value) {
    json p = preprocessor();
    p[json::json_pointer(pointer)] = value;
    return with("preprocessor_config.json", p.dump());
  };
  EXPECT_EQ(preprocessing("/max_image_size/longest_edge", 364),
            "max_image_size.longest_edge is 364, expected vision_config.image_size of config.json, which is 96");
  EXPECT_EQ(preprocessing("/size", {{"height", 3}, {"width", 4}}), "missing key size.longest_edge");
  EXPECT_EQ(preprocessing("/resample", 9), "resample is 9, expected an integer from 0 to 5");
  EXPECT_EQ(preprocessing("/image_std", {0.5, 0.0, 0.5}), "image_std[1] is 0.0, expected a number from 1e-12 to 1000000");
  EXPECT_EQ(preprocessing("/image_mean", {0.5, 0.5}), "image_mean is an array of 2, expected 3 numbers");
  EXPECT_EQ(preprocessing("/do_resize", "yes"), "do_resize is \"yes\", expected true or false");
  EXPECT_EQ(with("processor_config.json", R"({"image_seq_len": 64})"),
            "image_seq_len is 64, expected 16, the embedding rows of a tile by config.json");
  EXPECT_EQ(with("generation_config.json", R"({"eos_token_id": 49279})"), "eos_token_id is 49279, expected an integer from 0 to 499");
}

TEST(config, broken_files_are_file_errors) {
  const temporary_folder folder;
  const auto broken = [&] { return error_of<file_error>([&] { static_cast<void>(idefics3_config::load(folder.path())); }); };
  EXPECT_EQ(broken(), folder.path("config.json") + ": no such file");
  folder.write("config.json", "");
  EXPECT_NE(broken().find("config.json: not valid JSON"), std::string::npos);
  folder.write("config.json", R"({"a": 1, "a": 2})");
  EXPECT_NE(broken().find("key \"a\" occurs twice"), std::string::npos);
  folder.write("config.json", R"({"a": 1e999})");
  EXPECT_NE(broken().find("config.json: "), std::string::npos);
  const std::string content = whole().dump();
  for (std::size_t n = 0; n < content.size(); ++n) {
    folder.write("config.json", content.substr(0, n));
    EXPECT_THROW(static_cast<void>(idefics3_config::load(folder.path())), file_error) << n;
  }
  // Changed bits: an error or a configuration whose numbers fit together.
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = content;
    for (unsigned k = 0; k <= random() % 3; ++k) {
      const std::size_t at = random() % changed.size();
      changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1U << random() % 8U));
    }
    folder.write("config.json", changed);
    try {
      const auto c = idefics3_config::load(folder.path());
      EXPECT_GE(c.tokens_per_tile(), 1);
      EXPECT_EQ(c.text.num_attention_heads % c.text.num_key_value_heads, 0);
      EXPECT_EQ(c.vision.hidden_size % c.vision.num_attention_heads, 0);
      EXPECT_LT(c.image_token_id, c.text.vocab_size);
    } catch (const error&) {
    }
  }
}

}  // namespace
