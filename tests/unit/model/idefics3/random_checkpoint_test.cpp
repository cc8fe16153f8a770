// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/random_checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/files.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/safetensors.hpp"

namespace vlbatch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class random_checkpoint : public ::testing::Test {
 protected:
  [[nodiscard]] std::string folder(const std::string& name) const { return (root_ / name).string(); }
  // Bytes of all tensors by name.
  static std::map<std::string, std::vector<std::byte>> content(const std::string& folder) {
    std::map<std::string, std::vector<std::byte>> all;
    const checkpoint c = checkpoint::open(folder);
    for (const tensor_view& t : c.tensors()) all[std::string(t.name)] = {t.data, t.data + t.elements * size_of(t.type)};
    return all;
  }
  template <class Call>
  static std::string text_of_error(Call&& call) {
    try {
      call();
    } catch (const error& e) {
      return e.what();
    }
    return "no error";
  }

  testing::temporary_folder temporary_;
  fs::path root_ = temporary_.path("root");
};

TEST_F(random_checkpoint, same_seed_same_numbers_in_any_number_of_files) {
  const auto shape = named_checkpoint_shape("tiny");
  const auto one = write_random_checkpoint(shape, folder("one"), {.seed = 5});
  const auto four = write_random_checkpoint(shape, folder("four"), {.seed = 5, .shards = 4});
  write_random_checkpoint(shape, folder("other"), {.seed = 6});
  EXPECT_EQ(one.files, 1);
  EXPECT_EQ(four.files, 4);
  EXPECT_EQ(one.parameters, four.parameters);
  EXPECT_EQ(one.weight_bytes, 2 * one.parameters);
  EXPECT_TRUE(fs::exists(folder("four") + "/model-00003-of-00004.safetensors"));
  const auto a = content(folder("one"));
  EXPECT_EQ(a, content(folder("four")));
  const auto b = content(folder("other"));
  EXPECT_NE(a.at("lm_head.weight"), b.at("lm_head.weight"));
}

// The first numbers of a tensor worked out by an independent program (Python integers): a change of the generator changes every benchmark.
TEST_F(random_checkpoint, numbers_are_those_that_the_seed_stands_for) {
  write_random_checkpoint(named_checkpoint_shape("tiny"), folder("m"), {.seed = 7, .type = dtype::f32});
  const checkpoint c = checkpoint::open(folder("m"));
  const tensor_view& t = *c.find("model.text_model.embed_tokens.weight");
  EXPECT_FLOAT_EQ(t.at(0), -0.6497833F);
  EXPECT_FLOAT_EQ(t.at(1), 0.6818417F);
  EXPECT_FLOAT_EQ(t.at(488 * 256 - 1), 1.1894635F);
}

TEST_F(random_checkpoint, deviations_are_those_promised) {
  write_random_checkpoint(named_checkpoint_shape("tiny"), folder("m"), {.type = dtype::f32});
  const checkpoint c = checkpoint::open(folder("m"));
  const auto deviation = [&](const char* name) {
    const tensor_view& t = *c.find(name);
    double sum = 0.0;
    double squares = 0.0;
    for (std::int64_t i = 0; i < t.elements; ++i) {
      sum += static_cast<double>(t.at(i));
      squares += static_cast<double>(t.at(i)) * static_cast<double>(t.at(i));
    }
    const double mean = sum / static_cast<double>(t.elements);
    EXPECT_LT(std::abs(mean), 5 * std::sqrt(squares) / static_cast<double>(t.elements)) << name;
    return std::sqrt(squares / static_cast<double>(t.elements) - mean * mean);
  };
  EXPECT_NEAR(deviation("model.text_model.embed_tokens.weight"), 1.0, 0.01);
  EXPECT_NEAR(deviation("lm_head.weight"), 3.0 / 16.0, 0.002);
  EXPECT_NEAR(deviation("model.text_model.layers.0.mlp.gate_proj.weight"), 1.0 / 16.0, 0.001);
  EXPECT_NEAR(deviation("model.text_model.layers.4.mlp.down_proj.weight"), 1.0 / std::sqrt(640.0 * 10.0), 0.0002);
  EXPECT_EQ(c.find("model.text_model.norm.weight")->at(17), 1.0F);
}

TEST_F(random_checkpoint, a_folder_with_something_in_it_is_left_alone) {
  fs::create_directories(folder("m"));
  std::ofstream(folder("m") + "/thesis.txt") << "years of work";
  const auto shape = named_checkpoint_shape("tiny");
  EXPECT_THAT(text_of_error([&] { write_random_checkpoint(shape, folder("m")); }), AllOf(HasSubstr(folder("m")), HasSubstr("not empty")));
  EXPECT_FALSE(fs::exists(folder("m") + "/config.json"));

  // Asked to overwrite, it removes weights of an earlier checkpoint, which would contradict the new ones, and nothing else.
  write_random_checkpoint(shape, folder("m"), {.shards = 3, .overwrite = true});
  write_random_checkpoint(shape, folder("m"), {.overwrite = true});
  EXPECT_TRUE(fs::exists(folder("m") + "/thesis.txt"));
  EXPECT_TRUE(fs::exists(folder("m") + "/model.safetensors"));
  EXPECT_FALSE(fs::exists(folder("m") + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(folder("m") + "/model-00001-of-00003.safetensors"));
}

TEST_F(random_checkpoint, shapes_that_cannot_be_are_refused_with_both_numbers) {
  const auto refused = [&](auto edit) {
    random_checkpoint_shape shape = named_checkpoint_shape("tiny");
    random_checkpoint_options options;
    edit(shape, options);
    return text_of_error([&] { write_random_checkpoint(shape, folder("m"), options); });
  };
  EXPECT_THAT(refused([](auto& s, auto&) { s.config.text.num_key_value_heads = 3; }),
              AllOf(HasSubstr("num_attention_heads is 8"), HasSubstr("3")));
  EXPECT_THAT(refused([](auto& s, auto&) { s.config.vision.image_size = 100; }), AllOf(HasSubstr("image_size is 100"), HasSubstr("8")));
  EXPECT_THAT(refused([](auto& s, auto&) { s.config.scale_factor = 5; }), AllOf(HasSubstr("12"), HasSubstr("5")));
  EXPECT_THAT(refused([](auto& s, auto&) { s.config.image_token_id = 488; }), AllOf(HasSubstr("488"), HasSubstr("vocab_size")));
  EXPECT_THAT(refused([](auto& s, auto&) { s.config.eos_token_ids = {470}; }), AllOf(HasSubstr("470"), HasSubstr("468 to 486")));
  EXPECT_THAT(refused([](auto& s, auto&) { s.tile_grid = 16; }), AllOf(HasSubstr("image_token_id is 486"), HasSubstr("at least 517")));
  EXPECT_THAT(refused([](auto& s, auto&) { s.config.text.head_dim = 0; }), HasSubstr("head_dim is 0"));
  EXPECT_THAT(refused([](auto&, auto& o) { o.type = dtype::i8; }), HasSubstr("bf16"));
  EXPECT_THAT(refused([](auto&, auto& o) { o.shards = 0; }), HasSubstr("shards is 0"));
  EXPECT_FALSE(fs::exists(folder("m")));
  EXPECT_THAT(text_of_error([] { static_cast<void>(named_checkpoint_shape("smolvlm-2b")); }),
              AllOf(HasSubstr("smolvlm-2b"), HasSubstr("smolvlm-256m")));
}

// 256.5 M and 507.5 M parameters are what the public models have; summed here by hand from the published shapes.
TEST_F(random_checkpoint, named_shapes_have_the_sizes_of_their_models) {
  const auto parameters = [](const idefics3_config& c) {
    const std::int64_t h = c.text.hidden_size, i = c.text.intermediate_size, v = c.vision.hidden_size, m = c.vision.intermediate_size;
    const std::int64_t layer = 2 * h * 64 * (c.text.num_attention_heads + c.text.num_key_value_heads) + 3 * h * i + 2 * h;
    const std::int64_t tower =
        v * 3 * 256 + v + 1024 * v + c.vision.num_hidden_layers * (4 * (v * v + v) + 2 * v * m + m + v + 4 * v) + 2 * v;
    return tower + 16 * v * h + 2LL * c.text.vocab_size * h + c.text.num_hidden_layers * layer + h;
  };
  EXPECT_EQ(parameters(named_checkpoint_shape("smolvlm-256m").config), 256484928);
  EXPECT_NEAR(static_cast<double>(parameters(named_checkpoint_shape("smolvlm-500m").config)), 507.5e6, 0.1e6);
  EXPECT_EQ(write_random_checkpoint(named_checkpoint_shape("tiny"), folder("m")).parameters, 4363904);
}

}  // namespace
}  // namespace vlbatch
