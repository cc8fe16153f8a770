// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json, a 0 byte, and a text that it encodes and decodes.
#include "vlbatch/io/tokenizer.hpp"

#include <algorithm>

#include "fuzz_support.hpp"
#include "vlbatch/core/utf8.hpp"

namespace {

using namespace vlbatch;
using namespace vlbatch::fuzz;

void check_ids(const tokenizer& t, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids) require(id >= 0 && id < t.vocab_size(), "ids are those of the vocabulary");
  const std::string decoded = t.decode(ids, true);
  require(is_valid_utf8(decoded), "decoded text is UTF-8");
  require(t.decode(ids).size() <= decoded.size() + 3 * ids.size(), "leaving tokens out makes no text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string_view> parts = cut(text_of(data, size), 2);
  const memory_file file(parts[0]);
  tolerate([&] {
    const tokenizer t = tokenizer::load(file.path());
    require(t.vocab_size() >= 1, "a vocabulary has tokens");
    const std::string_view text = parts.size() > 1 ? parts[1] : "A text, 12 signs.";
    tolerate([&] {
      const std::vector<std::int32_t> plain = t.encode(text);
      check_ids(t, plain);
      require(std::none_of(plain.begin(), plain.end(), [&](std::int32_t id) { return t.is_special(id); }),
              "text never becomes a special token");
      std::vector<std::int32_t> appended = {0};
      t.encode(text, tokenizer::special_tokens::as_text, appended);
      require(std::equal(plain.begin(), plain.end(), appended.begin() + 1, appended.end()), "encoding has no memory");
    });
    tolerate([&] { check_ids(t, t.encode(text, tokenizer::special_tokens::parse)); });
    for (std::int32_t id = -1; id <= std::min(t.vocab_size(), 300); ++id) {
      static_cast<void>(t.is_special(id));
      if (const std::string_view b = t.bytes_of(id); !b.empty()) require(id >= 0 && id < t.vocab_size(), "bytes belong to a token");
    }
  });
  return 0;
}
