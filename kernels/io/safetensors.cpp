// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/io/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "io/float16.hpp"
#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

constexpr std::uint64_t max_header_bytes = 100'000'000;  // the format's own limit

struct stored {
  std::string name;
  std::string dtype_name;
  std::vector<std::int64_t> shape;
  std::size_t file = 0;
  const std::byte* data = nullptr;
  std::int64_t elements = 0;
};

// Bits of an element of every dtype that the format knows.
std::optional<int> bits_of(std::string_view dtype_name) {
  static constexpr std::pair<std::string_view, int> known[] = {{"F64", 64}, {"F32", 32}, {"F16", 16}, {"BF16", 16},   {"I64", 64},
                                                               {"I32", 32}, {"I16", 16}, {"I8", 8},   {"U64", 64},    {"U32", 32},
                                                               {"U16", 16}, {"U8", 8},   {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}};
  for (const auto& [name, bits] : known) {
    if (name == dtype_name) return bits;
  }
  return std::nullopt;
}
std::optional<dtype> floating(std::string_view dtype_name) {
  if (dtype_name == "F32") return dtype::f32;
  if (dtype_name == "F16") return dtype::f16;
  if (dtype_name == "BF16") return dtype::bf16;
  return std::nullopt;
}

std::uint64_t read_u64_le(const std::byte* p) {
  std::uint64_t v = 0;
  for (int i = 7; i >= 0; --i) v = v << 8U | static_cast<std::uint64_t>(p[i]);
  return v;
}

// Every entry of one file's header, checked.
void read_header(const file_map& file, std::size_t index, std::vector<stored>& out) {
  const auto bytes = file.bytes();
  const std::string& path = file.path();
  if (bytes.size() < 8) throw file_error(fmt::format("{}: {} bytes, a safetensors file has at least 8", path, bytes.size()));
  const std::uint64_t length = read_u64_le(bytes.data());
  if (length > max_header_bytes || length > bytes.size() - 8) {
    throw file_error(fmt::format("{}: header length {} does not fit in the file ({} bytes after it)", path, length, bytes.size() - 8));
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  const nlohmann::json header = parse_json(text, path + " (header)");
  if (!header.is_object()) throw file_error(path + ": the header is not a JSON object");
  const std::uint64_t room = bytes.size() - 8 - length;

  struct range {
    std::uint64_t begin, end;
    std::string name;
  };
  std::vector<range> ranges;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto fail = [&](const std::string& why) { throw file_error(fmt::format("{}: tensor \"{}\": {}", path, name, why)); };
    if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets"))
      fail("needs dtype, shape and data_offsets");
    if (!entry["dtype"].is_string()) fail("dtype is not a string");
    stored t{.name = name, .dtype_name = entry["dtype"].get<std::string>(), .shape = {}, .file = index, .elements = 1};
    const std::optional<int> bits = bits_of(t.dtype_name);
    if (!bits) fail(fmt::format("unknown dtype \"{}\"", t.dtype_name));
    if (!entry["shape"].is_array()) fail("shape is not an array");
    for (const auto& d : entry["shape"]) {
      if (!d.is_number_unsigned() || d.get<std::uint64_t>() > (1ULL << 40U))
        fail("shape has " + d.dump() + ", expected integers in 0..2^40");
      t.shape.push_back(static_cast<std::int64_t>(d.get<std::uint64_t>()));
      if (__builtin_mul_overflow(t.elements, t.shape.back(), &t.elements) || t.elements > (1LL << 50U)) fail("shape has too many elements");
    }
    const auto& offsets = entry["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
      fail("data_offsets is " + offsets.dump().substr(0, 60) + ", expected two integers >= 0");
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > room) fail(fmt::format("data_offsets [{}, {}] do not lie in the {} bytes of data", begin, end, room));
    const auto wanted = static_cast<std::uint64_t>(t.elements) * static_cast<std::uint64_t>(*bits) / 8;
    if (end - begin != wanted)
      fail(fmt::format("{} bytes of data, shape [{}] of {} needs {}", end - begin, fmt::join(t.shape, ", "), t.dtype_name, wanted));
    t.data = bytes.data() + 8 + length + begin;
    ranges.push_back({begin, end, name});
    out.push_back(std::move(t));
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const range& a, const range& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t at = 0;
  for (const range& r : ranges) {
    if (r.begin < at)
      throw file_error(fmt::format("{}: tensor \"{}\" at byte {} overlaps the one before it, which ends at {}", path, r.name, r.begin, at));
    if (r.begin > at) throw file_error(fmt::format("{}: {} bytes that belong to no tensor before \"{}\"", path, r.begin - at, r.name));
    at = r.end;
  }
  if (at != room) throw file_error(fmt::format("{}: the tensors end at byte {}, the file's data at {}", path, at, room));
}

}  // namespace

float tensor_view::at(std::int64_t i) const {
  const std::byte* p = data + i * size_of(type);
  if (type == dtype::f32) {
    float v = 0.0F;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, p, sizeof half);
  return type == dtype::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
}

void tensor_view::copy_to(std::span<float> out) const {
  for (std::int64_t i = 0; i < elements; ++i) out[static_cast<std::size_t>(i)] = at(i);
}

struct checkpoint::impl {
  std::string source;
  std::vector<file_map> files;
  std::vector<stored> entries;     // by name
  std::vector<tensor_view> views;  // of floating dtype, by name

  void open(std::string path) { files.emplace_back(std::move(path)); }
  void finish() {
    for (std::size_t i = 0; i < files.size(); ++i) read_header(files[i], i, entries);
    std::sort(entries.begin(), entries.end(), [](const stored& a, const stored& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < entries.size(); ++i) {
      if (entries[i].name != entries[i - 1].name) continue;
      throw file_error(fmt::format("{}: tensor \"{}\" is in {} and in {}", source, entries[i].name, files[entries[i - 1].file].path(),
                                   files[entries[i].file].path()));
    }
    for (const stored& t : entries) {
      const std::optional<dtype> type = floating(t.dtype_name);
      if (type)
        views.push_back(
            {.name = t.name, .file = files[t.file].path(), .type = *type, .shape = t.shape, .data = t.data, .elements = t.elements});
    }
  }
  const stored* entry(std::string_view name) const {
    const auto it = std::lower_bound(entries.begin(), entries.end(), name, [](const stored& t, std::string_view n) { return t.name < n; });
    return it != entries.end() && it->name == name ? &*it : nullptr;
  }
};

checkpoint::checkpoint(std::unique_ptr<impl> p) noexcept : impl_(std::move(p)) {}
checkpoint::checkpoint(checkpoint&&) noexcept = default;
checkpoint& checkpoint::operator=(checkpoint&&) noexcept = default;
checkpoint::~checkpoint() = default;

checkpoint checkpoint::open_file(const std::string& path) {
  auto p = std::make_unique<impl>();
  p->source = path;
  p->open(path);
  p->finish();
  return checkpoint(std::move(p));
}

checkpoint checkpoint::open(const std::string& folder) {
  const std::string index_path = folder + "/model.safetensors.index.json";
  if (!file_exists(index_path)) {
    if (!file_exists(folder + "/model.safetensors")) {
      throw file_error(folder + ": has neither model.safetensors nor model.safetensors.index.json");
    }
    return open_file(folder + "/model.safetensors");
  }
  auto p = std::make_unique<impl>();
  p->source = index_path;
  const nlohmann::json index = load_json(index_path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw file_error(index_path + ": has no weight_map");
  std::map<std::string, std::string> map;
  std::set<std::string> shards;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string()) throw file_error(index_path + ": weight_map of \"" + name + "\" is not a file name");
    const auto shard = file.get<std::string>();
    if (shard.empty() || shard.find('/') != std::string::npos)
      throw file_error(index_path + ": weight_map of \"" + name + "\" is \"" + shard + "\", expected a file name without folders");
    map.emplace(name, shard);
    shards.insert(shard);
  }
  for (const std::string& shard : shards) {
    if (!file_exists(folder + "/" + shard)) throw file_error(index_path + ": shard " + shard + " is missing");
    p->open(folder + "/" + shard);
  }
  p->finish();
  for (const stored& t : p->entries) {
    const auto it = map.find(t.name);
    if (it == map.end())
      throw file_error(fmt::format("{}: tensor \"{}\" of {} is not in the index", index_path, t.name, p->files[t.file].path()));
    if (folder + "/" + it->second != p->files[t.file].path()) {
      throw file_error(fmt::format("{}: tensor \"{}\" should be in {}, is in {}", index_path, t.name, it->second, p->files[t.file].path()));
    }
  }
  for (const auto& [name, shard] : map) {
    if (p->entry(name) == nullptr) throw file_error(fmt::format("{}: tensor \"{}\" is not in {}", index_path, name, shard));
  }
  return checkpoint(std::move(p));
}

const tensor_view* checkpoint::find(std::string_view name) const noexcept {
  const auto& v = impl_->views;
  const auto it = std::lower_bound(v.begin(), v.end(), name, [](const tensor_view& t, std::string_view n) { return t.name < n; });
  return it != v.end() && it->name == name ? &*it : nullptr;
}

const tensor_view& checkpoint::get(std::string_view name, std::span<const std::int64_t> shape) const {
  const stored* e = impl_->entry(name);
  if (e == nullptr) throw model_error(fmt::format("{}: tensor \"{}\" is missing", impl_->source, name));
  const tensor_view* t = find(name);
  if (t == nullptr)
    throw model_error(
        fmt::format("{}: tensor \"{}\" has dtype {}, expected F32, F16 or BF16", impl_->files[e->file].path(), name, e->dtype_name));
  if (!std::equal(shape.begin(), shape.end(), t->shape.begin(), t->shape.end())) {
    throw model_error(
        fmt::format("{}: tensor \"{}\" has shape [{}], expected [{}]", t->file, name, fmt::join(t->shape, ", "), fmt::join(shape, ", ")));
  }
  return *t;
}

std::span<const tensor_view> checkpoint::tensors() const noexcept { return impl_->views; }
const std::string& checkpoint::source() const noexcept { return impl_->source; }

void write_safetensors(const std::string& path, std::span<const tensor_to_write> tensors) {
  nlohmann::json header = nlohmann::json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t at = 0;
  for (const tensor_to_write& t : tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t d : t.shape) elements *= d;
    if (static_cast<std::int64_t>(t.bytes.size()) != elements * size_of(t.type)) {
      throw invalid_argument(fmt::format("write_safetensors: tensor \"{}\" has {} bytes, shape [{}] of {} needs {}", t.name, t.bytes.size(),
                                         fmt::join(t.shape, ", "), name_of(t.type), elements * size_of(t.type)));
    }
    const char* type = t.type == dtype::f32 ? "F32" : t.type == dtype::f16 ? "F16" : t.type == dtype::bf16 ? "BF16" : "I8";
    header[t.name] = {{"dtype", type}, {"shape", t.shape}, {"data_offsets", {at, at + t.bytes.size()}}};
    at += t.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::ofstream out(path, std::ios::binary);
  for (unsigned shift = 0; shift < 64; shift += 8) out.put(static_cast<char>(static_cast<unsigned char>(text.size() >> shift)));
  out << text;
  for (const tensor_to_write& t : tensors)
    out.write(reinterpret_cast<const char*>(t.bytes.data()), static_cast<std::streamsize>(t.bytes.size()));
  out.flush();
  if (!out) throw file_error(path + ": cannot be written");
}

}  // namespace vlbatch::inline v0
