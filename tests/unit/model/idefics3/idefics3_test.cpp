// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/idefics3.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "conformance/model_driver.hpp"
#include "support/files.hpp"
#include "vlbatch/backend/cpu.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/io/tokenizer.hpp"
#include "vlbatch/model/idefics3/detail/weights.hpp"
#include "vlbatch/model/idefics3/random_checkpoint.hpp"

namespace vlbatch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::model_driver;
using model = idefics3<cpu>;

// Folders that live as long as the program, one for each way of writing.
class folders {
 public:
  std::string tiny(dtype type) {
    const fs::path folder = root_.path(std::string(name_of(type)));
    if (!fs::exists(folder)) write_random_checkpoint(named_checkpoint_shape("tiny"), folder.string(), {.seed = 4, .type = type});
    return folder.string();
  }

 private:
  testing::temporary_folder root_;
};
folders& made() {
  static folders f;
  return f;
}
const model& tiny() {
  static const model m = model::load(made().tiny(dtype::bf16));
  return m;
}

std::shared_ptr<pixel_tiles> pixels(std::int32_t tiles, std::int32_t seed, float scale = 1.0F) {
  auto p = std::make_shared<pixel_tiles>();
  p->num_tiles = tiles;
  p->height = p->width = 96;
  p->values.resize(static_cast<std::size_t>(tiles) * 96 * 96 * 3);
  for (std::size_t i = 0; i < p->values.size(); ++i)
    p->values[i] = static_cast<std::uint8_t>((i * 7 + i / 288 * 3 + static_cast<std::size_t>(seed) * 41) % 256);
  for (auto& channel : p->normalised) {
    for (std::size_t v = 0; v < 256; ++v) channel[v] = scale * (static_cast<float>(v) / 127.5F - 1.0F);
  }
  return p;
}

std::vector<std::vector<float>> encoded(const model& m, const std::vector<std::pair<const pixel_tiles*, std::int32_t>>& which) {
  auto w = m.make_workspace(1);
  std::vector<std::vector<float>> out(which.size(), std::vector<float>(36 * 256));
  std::vector<tile_input> tiles;
  for (std::size_t i = 0; i < which.size(); ++i) tiles.push_back({which[i].first, which[i].second, out[i].data()});
  m.encode(w, tiles);
  return out;
}

prepared_request some_prompt(std::int32_t length) {
  prepared_request p;
  for (std::int32_t i = 0; i < length; ++i) p.tokens.push_back((i * 37 + 11) % 460);
  return p;
}

TEST(idefics3, more_tiles_than_one_pass_takes) {
  const auto many = pixels(19, 1);
  std::vector<std::pair<const pixel_tiles*, std::int32_t>> all;
  for (std::int32_t t = 0; t < 19; ++t) all.emplace_back(many.get(), t);
  const auto together = encoded(tiny(), all);
  for (const std::size_t t : {0U, 7U, 8U, 18U}) EXPECT_EQ(together[t], encoded(tiny(), {all[t]})[0]) << t;
  EXPECT_NE(together[0], together[1]);
}

TEST(idefics3, tiles_of_pictures_with_different_tables_in_one_call) {
  const auto a = pixels(1, 2);
  const auto b = pixels(1, 2, 0.5F);  // same bytes, other numbers
  const auto both = encoded(tiny(), {{a.get(), 0}, {b.get(), 0}, {a.get(), 0}});
  EXPECT_EQ(both[0], encoded(tiny(), {{a.get(), 0}})[0]);
  EXPECT_EQ(both[1], encoded(tiny(), {{b.get(), 0}})[0]);
  EXPECT_EQ(both[2], both[0]);
  EXPECT_NE(both[1], both[0]);
}

TEST(idefics3, no_tile_at_all) { EXPECT_TRUE(encoded(tiny(), {}).empty()); }

TEST(idefics3, tiles_that_do_not_fit_are_refused_with_both_numbers) {
  const auto refused = [](auto edit, std::int32_t tile = 0) -> std::string {
    const auto p = pixels(2, 3);
    edit(*p);
    try {
      static_cast<void>(encoded(tiny(), {{p.get(), tile}}));
    } catch (const invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused([](pixel_tiles&) {}), "accepted");
  EXPECT_THAT(refused([](pixel_tiles& p) { p.height = 95; }), AllOf(HasSubstr("height is 95"), HasSubstr("96")));
  EXPECT_THAT(refused([](pixel_tiles& p) { p.width = 192; }), AllOf(HasSubstr("width is 192"), HasSubstr("96")));
  EXPECT_THAT(refused([](pixel_tiles& p) { p.values.pop_back(); }), AllOf(HasSubstr("55295"), HasSubstr("55296")));
  EXPECT_THAT(refused([](pixel_tiles&) {}, 2), AllOf(HasSubstr("index is 2"), HasSubstr("1")));
  EXPECT_THAT(refused([](pixel_tiles&) {}, -1), HasSubstr("index is -1"));
}

TEST(idefics3, weights_rounded_at_loading_or_in_the_file_are_the_same) {
  const model stored = model::load(made().tiny(dtype::bf16));
  const model rounded = model::load(made().tiny(dtype::f32), {.format = weight_format::bf16});
  const model exact = model::load(made().tiny(dtype::f32));
  const auto logits = [](const model& m) {
    model_driver<model> d(m);
    return d.run(d.add(some_prompt(20)));
  };
  EXPECT_EQ(logits(stored), logits(rounded));
  EXPECT_NE(logits(stored), logits(exact));
  EXPECT_EQ(exact.decoder_bytes(), 2 * stored.decoder_bytes());
}

// Kept as f32, bf16 weights give what they give as bf16, up to the order of sums: the products are exact either way.
TEST(idefics3, number_type_of_the_weights_in_memory) {
  const model wide = model::load(made().tiny(dtype::bf16), {.format = weight_format::f32});
  model_driver<model> a(tiny());
  model_driver<model> b(wide);
  const auto x = a.run(a.add(some_prompt(20)));
  const auto y = b.run(b.add(some_prompt(20)));
  for (std::size_t r = 0; r < x.size(); ++r) {
    for (std::size_t c = 0; c < x[r].size(); ++c) ASSERT_NEAR(x[r][c], y[r][c], cpu().level() >= cpu_level::avx512_bf16 ? 0.1F : 1e-3F);
  }
}

TEST(idefics3, workspace_moves) {
  auto first = tiny().make_workspace(1);
  auto second = std::move(first);
  first = std::move(second);
  const auto p = pixels(1, 5);
  std::vector<float> out(36 * 256);
  const tile_input tile{p.get(), 0, out.data()};
  tiny().encode(first, {&tile, 1});
  EXPECT_EQ(out, encoded(tiny(), {{p.get(), 0}})[0]);
}

TEST(idefics3, text_of_tokens) {
  std::string out;
  tiny().append_text(*tiny().text().find("H"), out);
  tiny().append_text(*tiny().text().find("<image>"), out);
  tiny().append_text(*tiny().text().find("\u0120w300"), out);
  tiny().append_text(1 << 20, out);
  EXPECT_EQ(out, "H w300");
}

TEST(patch_buckets, follow_the_rule_asked_for) {
  using idefics3_detail::patch_buckets;
  EXPECT_EQ(patch_buckets(4, true), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(patch_buckets(4, false), (std::vector<std::int32_t>{0, 0, 1, 2}));  // torch 2.15, transformers 4.57.6, f32
  EXPECT_EQ(patch_buckets(1, false), (std::vector<std::int32_t>{0}));
}

}  // namespace
}  // namespace vlbatch
