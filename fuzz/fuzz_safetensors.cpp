// SPDX-License-Identifier: Apache-2.0
// A safetensors file, or an index with two shards after it, cut at NUL NUL NUL: every element of what is accepted is read.
#include "fuzz_support.hpp"
#include "vlbatch/io/safetensors.hpp"

using namespace vlbatch;

static void read_all(const checkpoint& c) {
  double sum = 0.0;
  for (const tensor_view& t : c.tensors()) {
    FUZZ_REQUIRE(c.find(t.name) == &t);
    for (std::int64_t i = 0; i < t.elements; ++i) sum += static_cast<double>(t.at(i));
  }
  for (const foreign_tensor& t : c.foreign_tensors()) FUZZ_REQUIRE(c.find(t.name) == nullptr);
  static volatile double kept;
  kept = sum;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz::text_of(data, size);
  if (!rest.starts_with("{\"")) {
    const std::string path = fuzz::write("one.safetensors", rest);
    fuzz::expect_value_or_error([&] { read_all(checkpoint::open_file(path)); });
    return 0;
  }
  const std::string_view cut("\0\0\0", 3);
  const auto next = [&] {
    const std::size_t end = rest.find(cut);
    const std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + cut.size());
    return part;
  };
  fuzz::write("model.safetensors.index.json", next());
  fuzz::write("a.safetensors", next());
  fuzz::write("b.safetensors", rest);
  fuzz::expect_value_or_error([] { read_all(checkpoint::open(fuzz::folder().string())); });
  return 0;
}
