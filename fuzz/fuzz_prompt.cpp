// SPDX-License-Identifier: Apache-2.0
// Conversations: whatever the texts spell, the control tokens of the prompt are those of the format and no more, and every image has its
// placeholders.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>

#include "fuzz_support.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

using namespace vlbatch;

// Control tokens in the prompt.
static std::int64_t controls(const idefics3_processor& p, const std::vector<std::int32_t>& tokens) {
  return std::count_if(tokens.begin(), tokens.end(), [&](std::int32_t t) { return p.text().is_special(t); });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const idefics3_processor processor = idefics3_processor::load(VLBATCH_SOURCE_DIR "/tests/golden/models/smolvlm-bf16-tied-sharded");
  static const auto picture = [] {
    auto p = std::make_shared<image_buffer>();
    p->width = 3, p->height = 2, p->pixels.assign(18, 7);
    return p;
  }();
  FuzzedDataProvider from(data, size);
  request asked;
  request plain;  // the same conversation with harmless texts
  std::size_t images = 0;
  while (from.remaining_bytes() > 0 && asked.messages.size() < 6) {
    const char* roles[] = {"user", "assistant", "system", "nobody"};
    message m{.role = roles[from.ConsumeIntegralInRange(0, 15) % 13 % 4], .parts = {}};
    message n = m;
    for (int parts = from.ConsumeIntegralInRange(0, 4); parts > 0; --parts) {
      if (from.ConsumeIntegralInRange(0, 3) == 0 && images < 3) {
        m.parts.emplace_back(image_part{std::shared_ptr<const image_buffer>(picture)});
        n.parts.push_back(m.parts.back());
        ++images;
      } else {
        m.parts.emplace_back(text_part{from.ConsumeRandomLengthString(80)});
        n.parts.emplace_back(text_part{"x"});
      }
    }
    asked.messages.push_back(m);
    plain.messages.push_back(n);
  }
  fuzz::expect_value_or_error([&] {
    const prepared_request p = processor.prepare(asked);
    const prepared_request q = processor.prepare(plain);
    FUZZ_REQUIRE(p.images.size() == images);
    FUZZ_REQUIRE(controls(processor, p.tokens) == controls(processor, q.tokens));
    for (const std::int32_t t : p.tokens) FUZZ_REQUIRE(t >= 0 && t < processor.text().vocab_size());
    for (const prepared_image& i : p.images) {
      for (const std::int32_t at : i.tile_positions) {
        for (std::int32_t k = 0; k < i.tokens_per_tile; ++k)
          FUZZ_REQUIRE(p.tokens[static_cast<std::size_t>(at + k)] == processor.config().image_token_id);
      }
    }
  });
  return 0;
}
