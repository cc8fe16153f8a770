// SPDX-License-Identifier: Apache-2.0
// safetensors files and sharded folders. The first byte of the input says how the rest is read:
//   R  a whole file as it is
//   H  a header; the length before it and bytes of data after it are added, so that mutations reach what comes after the length
//   S  an index, a header and a header, with a 0 byte between them: a folder of two shards
//   T  numbers of tensors whose places are right or nearly right, and so is the verdict that is expected
// The two bytes after H and S are the number of bytes of data of each file.
#include "vlbatch/io/safetensors.hpp"

#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "fuzz_support.hpp"
#include "vlbatch/core/types.hpp"

namespace {

using namespace vlbatch;
using namespace vlbatch::fuzz;

std::string file_of(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string out(sizeof length, '\0');
  std::memcpy(out.data(), &length, sizeof length);
  out.append(header);
  for (std::size_t i = 0; i < data_bytes; ++i) out += static_cast<char>(i * 37 + 1);
  return out;
}

// Everything a user can do with what was opened, and all that the header promises about it. \p bytes: of data in all its files.
void use(const checkpoint& c, std::size_t bytes) {
  struct range {
    const std::byte* begin;
    std::int64_t size;
  };
  std::vector<range> ranges;
  std::vector<float> values;
  std::string_view before;
  for (const tensor_view& t : c.tensors()) {
    require(ranges.empty() || before < t.name, "tensors are sorted by name and each name is there once");
    before = t.name;
    std::int64_t product = 1;
    for (const std::int64_t n : t.shape)
      require(n >= 0 && !__builtin_mul_overflow(product, n, &product), "a shape has a number of elements");
    require(product == t.elements, "elements are the product of the shape");
    require(t.elements <= static_cast<std::int64_t>(bytes), "a tensor has no more bytes than the data");
    ranges.push_back({t.data, t.elements * size_of(t.type)});
    values.assign(static_cast<std::size_t>(t.elements), 0.0F);
    t.copy_to(values);
    if (t.elements > 0) {
      const float last = t.at(t.elements - 1);
      require(last == values.back() || (std::isnan(last) && std::isnan(values.back())), "at and copy_to agree");
    }
    require(c.find(t.name) == &t, "a tensor is found by its name");
    if (t.type != dtype::i8) require(&c.get(t.name, t.shape) == &t, "a tensor is got with its shape");
    require(!t.file.empty(), "a tensor names its file");
  }
  for (const foreign_tensor& f : c.foreign_tensors()) require(c.find(f.name) == nullptr, "a name is there once");
  std::sort(ranges.begin(), ranges.end(),
            [](const range& a, const range& b) { return a.begin != b.begin ? std::less<>()(a.begin, b.begin) : a.size < b.size; });
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    sum += ranges[i].size;
    require(i == 0 || ranges[i - 1].size == 0 || ranges[i - 1].begin + ranges[i - 1].size <= ranges[i].begin, "tensors do not overlap");
  }
  require(sum <= static_cast<std::int64_t>(bytes), "tensors are no larger than the data");
}

// Tensors in a row, each perhaps some bytes beside its place, in any order in the header. Whether that is a file is computed here again.
void drawn_tensors(FuzzedDataProvider from) {
  struct kind {
    const char* name;
    std::int64_t bits;
  };
  static constexpr kind kinds[] = {{"F32", 32}, {"F16", 16}, {"BF16", 16}, {"I8", 8},     {"I64", 64},
                                   {"F64", 64}, {"U8", 8},   {"F4", 4},    {"F6_E2M3", 6}};
  struct place {
    std::int64_t begin, end;
    std::string entry;
  };
  const auto slip = [&] { return from.ConsumeIntegralInRange(0, 11) == 11 ? from.ConsumeIntegralInRange(-4, 4) : 0; };
  std::vector<place> places;
  std::int64_t reached = 0;
  bool legal = true;
  for (int n = from.ConsumeIntegralInRange(1, 5); n > 0; --n) {
    const kind& k = kinds[from.ConsumeIntegralInRange<std::size_t>(0, std::size(kinds) - 1)];
    std::string shape;
    std::int64_t bits = k.bits;
    for (int rank = from.ConsumeIntegralInRange(0, 3); rank > 0; --rank) {
      const int side = from.ConsumeIntegralInRange(0, 4);
      shape += (shape.empty() ? "" : ",") + std::to_string(side);
      bits *= side;
    }
    const std::int64_t begin = reached + slip(), end = begin + bits / 8 + slip();
    legal = legal && bits % 8 == 0 && end - begin == bits / 8;
    places.push_back({begin, end,
                      R"("t)" + std::to_string(n) + R"(":{"dtype":")" + k.name + R"(","shape":[)" + shape + R"(],"data_offsets":[)" +
                          std::to_string(begin) + "," + std::to_string(end) + "]}"});
    reached = end;
  }
  const std::int64_t data_bytes = std::max<std::int64_t>(reached + slip(), 0);
  std::string header;
  const std::size_t first = from.ConsumeIntegralInRange<std::size_t>(0, places.size() - 1);
  for (std::size_t i = 0; i < places.size(); ++i) header += (i == 0 ? "{" : ",") + places[(first + i) % places.size()].entry;
  std::sort(places.begin(), places.end(),
            [](const place& a, const place& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::int64_t filled = 0;
  for (const place& p : places) legal = legal && p.begin == filled, filled = p.end;
  legal = legal && filled == data_bytes;

  const memory_file file(file_of(header + "}", static_cast<std::size_t>(data_bytes)));
  const bool opened = tolerate([&] { use(checkpoint::open_file(file.path()), static_cast<std::size_t>(data_bytes)); });
  require(opened == legal, legal ? "tensors that fill the data are read" : "tensors that do not fill the data are refused");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view input = text_of(data + 1, size - 1);
  if (data[0] == 'R') {
    const memory_file file(input);
    tolerate([&] { use(checkpoint::open_file(file.path()), input.size() - 8); });
    return 0;
  }
  if (data[0] == 'T') {
    drawn_tensors(FuzzedDataProvider(data + 1, size - 1));
    return 0;
  }
  if (size < 3) return 0;
  const std::size_t first_bytes = data[1], second_bytes = data[2];
  input.remove_prefix(2);
  if (data[0] == 'H') {
    const std::string content = file_of(input, first_bytes);
    const memory_file file(content);
    tolerate([&] { use(checkpoint::open_file(file.path()), first_bytes); });
  } else if (data[0] == 'S') {
    static const folder where;
    const std::vector<std::string_view> parts = cut(input, 3);
    if (parts.size() < 3) return 0;
    const std::string a = file_of(parts[1], first_bytes), b = file_of(parts[2], second_bytes);
    where.write("model.safetensors.index.json", parts[0]);
    where.write("a.safetensors", a);
    where.write("b.safetensors", b);
    tolerate([&] { use(checkpoint::open(where.path()), first_bytes + second_bytes); });
  }
  return 0;
}
