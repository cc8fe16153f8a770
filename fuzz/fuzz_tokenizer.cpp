// SPDX-License-Identifier: Apache-2.0
// tokenizer.json, and after NUL a text for it: what is accepted encodes and decodes the text in both modes.
#include "fuzz_support.hpp"
#include "vlbatch/io/tokenizer.hpp"

using namespace vlbatch;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all = fuzz::text_of(data, size);
  const std::size_t end = std::min(all.find('\0'), all.size());
  const std::string path = fuzz::write("tokenizer.json", all.substr(0, end));
  const std::string_view asked = all.substr(std::min(end + 1, all.size()));
  fuzz::expect_value_or_error([&] {
    const tokenizer t = tokenizer::load(path);
    for (const std::string_view text : {std::string_view("Hello, <image> don't 123\n\n  x"), asked}) {
      for (const auto mode : {tokenizer::special_tokens::as_text, tokenizer::special_tokens::parse}) {
        const auto ids = t.encode(text, mode);
        for (const std::int32_t id : ids) {
          FUZZ_REQUIRE(id >= 0 && id < t.vocab_size());
          FUZZ_REQUIRE(mode == tokenizer::special_tokens::parse || !t.is_special(id));
        }
        static_cast<void>(t.decode(ids, true));
        static_cast<void>(t.decode(ids));
      }
    }
    for (const std::int32_t id : {-1, 0, t.vocab_size() - 1, t.vocab_size(), 2147483647}) static_cast<void>(t.bytes_of(id));
  });
  return 0;
}
