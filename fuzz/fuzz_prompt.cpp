// SPDX-License-Identifier: Apache-2.0
// Conversations through the processor, without weights: the prompt has the control tokens of its structure and no others, whatever the
// texts spell, and the texts between them come back byte for byte.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <optional>

#include "fuzz_support.hpp"
#include "vlbatch/core/utf8.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

namespace {

using namespace vlbatch;
using namespace vlbatch::fuzz;

constexpr std::array spelled = {"<image>",
                                "<fake_token_around_image>",
                                "<global-img>",
                                "<row_1_col_1>",
                                "<end_of_utterance>",
                                "<|im_start|>",
                                "<|im_end|>",
                                "<|endoftext|>",
                                "\nAssistant:",
                                "User:"};

// A text of the input, with what control tokens look like strewn in.
std::string draw_text(FuzzedDataProvider& from) {
  std::string out;
  for (int pieces = from.ConsumeIntegralInRange(0, 4); pieces > 0; --pieces) {
    if (from.ConsumeBool()) {
      out += spelled[from.ConsumeIntegralInRange<std::size_t>(0, spelled.size() - 1)];
    } else {
      out += from.ConsumeRandomLengthString(40);
    }
  }
  return out;
}

// A prompt as control tokens and the texts between them: one text more than tokens.
struct prompt_structure {
  std::vector<std::int32_t> controls;
  std::vector<std::string> texts{""};

  void control(std::int32_t id, std::int32_t times = 1) {
    controls.insert(controls.end(), static_cast<std::size_t>(times), id);
    texts.resize(controls.size() + 1);
  }
};

// What SmolVLM's template and transformers' processor write.
prompt_structure expected_structure(const idefics3_processor& p, const std::vector<message>& messages, image_grid grid) {
  const auto id = [&](const std::string& token) { return p.text().find(token).value(); };
  const std::int32_t per_tile = p.config().tokens_per_tile();
  prompt_structure out;
  const auto tile = [&](const std::string& tag) {
    out.control(id("<fake_token_around_image>"));
    out.control(id(tag));
    out.control(id("<image>"), per_tile);
  };
  out.control(id("<|im_start|>"));
  for (const message& m : messages) {
    out.texts.back() += static_cast<char>(m.role.front() - 'a' + 'A') + m.role.substr(1);
    out.texts.back() += std::holds_alternative<image_part>(m.parts.front()) ? ":" : ": ";
    for (const message_part& part : m.parts) {
      if (const auto* text = std::get_if<text_part>(&part)) {
        out.texts.back() += text->text;
        continue;
      }
      for (std::int32_t r = 1; r <= grid.rows; ++r) {
        for (std::int32_t c = 1; c <= grid.cols; ++c) tile("<row_" + std::to_string(r) + "_col_" + std::to_string(c) + ">");
        out.texts.back() += "\n";
      }
      if (grid.rows > 0) out.texts.back() += "\n";
      tile("<global-img>");
      out.control(id("<fake_token_around_image>"));
    }
    out.control(id("<end_of_utterance>"));
    out.texts.back() += "\n";
  }
  out.texts.back() += "Assistant:";
  return out;
}

void check(const idefics3_processor& p, const prepared_request& got, const prompt_structure& expected) {
  prompt_structure found;
  std::vector<std::int32_t> between;
  const auto end_text = [&] {
    found.texts.back() = p.text().decode(between);
    between.clear();
  };
  for (const std::int32_t t : got.tokens) {
    require(t >= 0 && t < p.text().vocab_size(), "ids are those of the vocabulary");
    if (!p.text().is_special(t)) {
      between.push_back(t);
      continue;
    }
    end_text();
    found.control(t);
  }
  end_text();
  require(found.controls == expected.controls, "control tokens are those of the structure");
  for (std::size_t i = 0; i < expected.texts.size(); ++i) {
    std::string repaired;
    append_utf8_lossy(repaired, expected.texts[i]);
    require(found.texts[i] == repaired, "texts come back");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const idefics3_processor processor = idefics3_processor::load(VLBATCH_SOURCE_DIR "/tests/golden/models/idefics3-f32-splitting");
  FuzzedDataProvider from(data, size);
  auto picture = std::make_shared<image_buffer>();
  picture->width = from.ConsumeIntegralInRange(1, 40);
  picture->height = from.ConsumeIntegralInRange(1, 40);
  picture->pixels.assign(static_cast<std::size_t>(picture->width * picture->height) * 3, 7);
  const image_grid grid = idefics3_tiling_of(processor.config().preprocessing, picture->width, picture->height).grid;

  request asked;
  std::size_t images = 0;
  bool legal = true;
  while (from.remaining_bytes() > 0 && asked.messages.size() < 5) {
    static constexpr const char* roles[] = {"user", "assistant", "system"};
    message m{.role = roles[from.ConsumeIntegralInRange<std::size_t>(0, 2)], .parts = {}};
    if (from.ConsumeIntegralInRange(0, 31) == 31) m.role = from.ConsumeRandomLengthString(8), legal = false;
    for (int parts = from.ConsumeIntegralInRange(0, 4); parts > 0; --parts) {
      if (images < 3 && from.ConsumeIntegralInRange(0, 3) == 0) {
        m.parts.emplace_back(image_part{std::shared_ptr<const image_buffer>(picture)});
        ++images;
      } else {
        m.parts.emplace_back(text_part{draw_text(from)});
      }
    }
    legal = legal && !m.parts.empty();
    asked.messages.push_back(std::move(m));
  }
  if (asked.messages.empty()) return 0;
  std::optional<prepared_request> got;
  const bool accepted = tolerate([&] { got = processor.prepare(asked); });
  require(accepted || !legal, "a conversation with known roles and without empty messages has a prompt");
  if (!accepted || !legal) return 0;
  check(processor, *got, expected_structure(processor, asked.messages, grid));
  require(got->images.size() == images, "every picture is there");
  // A prepared request is checked by another function: both have one meaning of a right one.
  request again;
  again.prepared = std::make_shared<const prepared_request>(*got);
  require(tolerate([&] { static_cast<void>(processor.prepare(again)); }), "what was prepared can be handed in");
  return 0;
}
