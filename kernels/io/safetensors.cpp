// SPDX-License-Identifier: Apache-2.0
// The format: 8 bytes little-endian length of the header, the header (JSON, may be padded with spaces), the data. Rules as in the reference
// reader (huggingface/safetensors): the header is at most 100 MB, and the tensors fill the data exactly, without overlap or hole. Stricter
// than it: keys that occur twice, more than 16 dimensions, sizes beyond 63 bits, a tensor's description as a list.
#include "vlbatch/io/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "io/float16.hpp"
#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

namespace fs = std::filesystem;
using io_detail::json_blame;
using io_detail::json_node;
using io_detail::shortened;

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and elements are read in place");

constexpr std::int64_t max_header_bytes = 100'000'000;
constexpr std::int64_t max_index_bytes = 100'000'000;
constexpr std::size_t max_rank = 16;

struct stored_dtype {
  const char* name;
  std::int64_t bits;
  std::optional<dtype> readable;  // unset: the tensor is listed, but nothing here reads its numbers
};

constexpr stored_dtype stored_dtypes[] = {
    {"F32", 32, dtype::f32},      {"F16", 16, dtype::f16},          {"BF16", 16, dtype::bf16},        {"I8", 8, dtype::i8},
    {"BOOL", 8, std::nullopt},    {"U8", 8, std::nullopt},          {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},
    {"I32", 32, std::nullopt},    {"U32", 32, std::nullopt},        {"I64", 64, std::nullopt},        {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},    {"C64", 64, std::nullopt},        {"F8_E5M2", 8, std::nullopt},     {"F8_E4M3", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt}};

const stored_dtype* find_dtype(std::string_view name) {
  for (const stored_dtype& d : stored_dtypes) {
    if (name == d.name) return &d;
  }
  return nullptr;
}

const char* file_spelling(dtype t) {
  for (const stored_dtype& d : stored_dtypes) {
    if (d.readable == t) return d.name;
  }
  return "?";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

std::string in_quotes(std::string_view name) { return '"' + shortened(name, 120) + '"'; }

template <class T>
T read_unaligned(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// Strings for people: nothing here depends on them, but a file that other readers refuse is not taken for a good one.
void check_metadata(const json_node& node) {
  if (node.raw().is_null()) return;
  for (const auto& [key, value] : node.object().raw().get_ref<const nlohmann::json::object_t&>()) {
    static_cast<void>(json_node(value, node.file(), json_blame::file, node.path() + " " + in_quotes(key)).string());
  }
}

// A read-only mapping of a whole file. Pages come in when they are touched.
class mapped_file {
 public:
  explicit mapped_file(const std::string& path) : path_(path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a named pipe in the way must not block
    if (fd < 0) {
      const int why = errno;
      throw file_error(path_ + (why == ENOENT ? ": no such file" : ": cannot be opened: " + std::generic_category().message(why)));
    }
    struct stat st {};
    const bool known = ::fstat(fd, &st) == 0;
    const bool regular = known && S_ISREG(st.st_mode);
    void* p = MAP_FAILED;
    if (regular && st.st_size > 0) p = ::mmap(nullptr, static_cast<std::size_t>(st.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    const int why = errno;
    ::close(fd);
    if (known && !regular) throw file_error(path_ + ": not a regular file");
    if (known && st.st_size == 0) throw file_error(path_ + ": 0 bytes, expected a header length of 8 bytes");
    if (p == MAP_FAILED) throw file_error(path_ + ": cannot be mapped: " + std::generic_category().message(why));
    data_ = static_cast<const std::byte*>(p);
    size_ = st.st_size;
  }
  mapped_file(mapped_file&& o) noexcept
      : path_(std::move(o.path_)), data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  mapped_file(const mapped_file&) = delete;
  mapped_file& operator=(const mapped_file&) = delete;
  mapped_file& operator=(mapped_file&&) = delete;
  ~mapped_file() {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<std::size_t>(size_));
  }

  const std::string& path() const { return path_; }
  const std::byte* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace

// Owns what the views point to. Names, shapes and paths are in their final place before the first view is made.
struct checkpoint::impl {
  struct entry {
    std::string name;
    const stored_dtype* type;
    std::vector<std::int64_t> shape;
    const std::byte* data;
    std::int64_t elements;
    std::size_t file;
  };

  std::string source;
  std::vector<mapped_file> files;
  std::vector<entry> entries;
  std::vector<tensor_view> views;        // sorted by name
  std::vector<foreign_tensor> foreigns;  // sorted by name

  void add_file(const std::string& path);
  void finish();
};

void checkpoint::impl::add_file(const std::string& path) {
  const mapped_file& file = files.emplace_back(path);
  const std::size_t file_index = files.size() - 1;
  if (file.size() < 8) {
    throw file_error(path + ": " + std::to_string(file.size()) + " bytes, expected a header length of 8 bytes");
  }
  const auto header_length = read_unaligned<std::uint64_t>(file.data());
  const std::int64_t after_length = file.size() - 8;
  const std::int64_t header_room = std::min(after_length, max_header_bytes);
  if (header_length > static_cast<std::uint64_t>(header_room)) {
    throw file_error(path + ": header of " + std::to_string(header_length) + " bytes, expected at most " + std::to_string(header_room) +
                     " in a file of " + std::to_string(file.size()));
  }
  const auto header_bytes = static_cast<std::int64_t>(header_length);
  const std::string_view header(reinterpret_cast<const char*>(file.data()) + 8, static_cast<std::size_t>(header_bytes));
  const nlohmann::json parsed = io_detail::parse_json(header, path);
  const json_node root(parsed, path, json_blame::file);
  const std::byte* data = file.data() + 8 + header_bytes;
  const std::int64_t data_bytes = after_length - header_bytes;

  struct range {
    std::int64_t begin, end;
    const std::string* name;
  };
  std::vector<range> ranges;
  for (const auto& [name, value] : root.object().raw().get_ref<const nlohmann::json::object_t&>()) {
    if (name == "__metadata__") {
      check_metadata(json_node(value, path, json_blame::file, name));
      continue;
    }
    const json_node node(value, path, json_blame::file, "tensor " + in_quotes(name));
    const std::string& type_name = node.object().at("dtype").string();
    const stored_dtype* type = find_dtype(type_name);
    if (type == nullptr) node.at("dtype").fail_expected("a dtype of the format such as F32, F16 or BF16");

    const json_node shape_node = node.at("shape");
    if (shape_node.array_size() > max_rank) shape_node.fail_expected("at most " + std::to_string(max_rank) + " dimensions");
    std::vector<std::int64_t> shape;
    for (std::size_t i = 0; i < shape_node.array_size(); ++i) {
      shape.push_back(shape_node.at(i).integer(0, std::numeric_limits<std::int64_t>::max()));
    }
    std::int64_t elements = 1;
    bool overflow = false;
    for (const std::int64_t n : shape) overflow = __builtin_mul_overflow(elements, n, &elements) || overflow;
    std::int64_t bits = 0;
    overflow = __builtin_mul_overflow(elements, type->bits, &bits) || overflow;
    if (overflow) node.fail("shape " + shape_text(shape) + " of " + type_name + " has more elements than a 64-bit size can count");

    const json_node offsets = node.at("data_offsets");
    if (offsets.array_size() != 2) offsets.fail_expected("two offsets");
    const std::int64_t begin = offsets.at(std::size_t{0}).integer(0, data_bytes);
    const std::int64_t end = offsets.at(std::size_t{1}).integer(begin, data_bytes);
    if (bits % 8 != 0 || end - begin != bits / 8) {
      node.fail("shape " + shape_text(shape) + " of " + type_name + " takes " + std::to_string(bits / 8) +
                (bits % 8 != 0 ? " bytes and a part" : " bytes") + ", but data_offsets [" + std::to_string(begin) + ", " +
                std::to_string(end) + "] hold " + std::to_string(end - begin));
    }
    entries.push_back({name, type, std::move(shape), data + begin, elements, file_index});
    ranges.push_back({begin, end, &name});
  }

  std::sort(ranges.begin(), ranges.end(),
            [](const range& a, const range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::int64_t reached = 0;
  const std::string* before = nullptr;
  for (const range& r : ranges) {
    if (r.begin != reached) {
      const std::string whose = before == nullptr ? "the data begins" : "tensor " + in_quotes(*before) + " before it ends";
      throw file_error(path + ": tensor " + in_quotes(*r.name) + " begins at byte " + std::to_string(r.begin) + " of the data, but " +
                       whose + " at " + std::to_string(reached) + (r.begin < reached ? " (overlap)" : " (hole)"));
    }
    reached = r.end;
    before = r.name;
  }
  if (reached != data_bytes) {
    throw file_error(path + ": the tensors take " + std::to_string(reached) + " bytes, but the file has " + std::to_string(data_bytes) +
                     " bytes of data");
  }
}

void checkpoint::impl::finish() {
  std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.name < b.name; });
  for (const entry& e : entries) {
    if (e.type->readable) {
      views.push_back({e.name, files[e.file].path(), *e.type->readable, e.shape, e.data, e.elements});
    } else {
      foreigns.push_back({e.name, files[e.file].path(), e.type->name});
    }
  }
}

float tensor_view::at(std::int64_t i) const {
  const std::byte* p = data + i * size_of(type);
  switch (type) {
    case dtype::f32:
      return read_unaligned<float>(p);
    case dtype::f16:
      return f16_to_f32(read_unaligned<std::uint16_t>(p));
    case dtype::bf16:
      return bf16_to_f32(read_unaligned<std::uint16_t>(p));
    case dtype::i8:
      return static_cast<float>(read_unaligned<std::int8_t>(p));
  }
  return 0;
}

void tensor_view::copy_to(std::span<float> out) const {
  if (out.size() != static_cast<std::size_t>(elements)) {
    throw invalid_argument("tensor " + in_quotes(name) + " has " + std::to_string(elements) + " elements, the destination " +
                           std::to_string(out.size()));
  }
  if (out.empty()) return;
  if (type == dtype::f32) {
    std::memcpy(out.data(), data, out.size_bytes());
    return;
  }
  // One loop a type: the choice must not be made for each element.
  const auto each = [&](auto convert, auto zero) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = convert(read_unaligned<decltype(zero)>(data + i * sizeof zero));
    }
  };
  if (type == dtype::f16) each(f16_to_f32, std::uint16_t{0});
  if (type == dtype::bf16) each(bf16_to_f32, std::uint16_t{0});
  if (type == dtype::i8) each([](std::int8_t v) { return static_cast<float>(v); }, std::int8_t{0});
}

checkpoint::checkpoint(std::unique_ptr<impl> p) noexcept : impl_(std::move(p)) {}
checkpoint::checkpoint(checkpoint&&) noexcept = default;
checkpoint& checkpoint::operator=(checkpoint&&) noexcept = default;
checkpoint::~checkpoint() = default;

checkpoint checkpoint::open_file(const std::string& path) {
  auto p = std::make_unique<impl>();
  p->source = path;
  p->add_file(path);
  p->finish();
  return checkpoint(std::move(p));
}

namespace {

// The shards that an index names, each with the tensors it is said to hold.
struct shard_index {
  std::string path;
  std::map<std::string, std::map<std::string, bool>> shards;  // file -> tensor -> seen
};

// A shard's name comes from the file: it may only name a file of the same folder. A link that leads out of the folder is followed only if
// the index is a link as well, which is how the Hugging Face cache lays out a whole snapshot.
void check_shard_name(const fs::path& folder, const fs::path& index, const std::string& shard, const json_node& node) {
  const fs::path name(shard);
  // The system ends a name at a byte 0; the others would break the line of every text that names the file.
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (shard.empty() || shard == "." || shard == ".." || name.has_parent_path() || name.is_absolute() ||
      shard.find('\\') != std::string::npos || std::any_of(shard.begin(), shard.end(), is_control)) {
    node.fail_expected("the name of a file in the same folder");
  }
  std::error_code ec;
  if (!fs::is_symlink(folder / name, ec) || fs::is_symlink(index, ec)) return;
  const fs::path target = fs::weakly_canonical(folder / name, ec);
  if (ec || target.parent_path() != fs::weakly_canonical(folder, ec)) {
    node.fail("shard " + in_quotes(shard) + " is a link that leads out of the folder");
  }
}

shard_index read_index(const fs::path& folder, const fs::path& path) {
  const auto file = io_detail::json_file::load(path, max_index_bytes);
  const json_node map = file.root(json_blame::file).object().at("weight_map");
  shard_index index{file.name, {}};
  for (const auto& [tensor, shard] : map.object().raw().get_ref<const nlohmann::json::object_t&>()) {
    const json_node node(shard, file.name, json_blame::file, "weight_map of tensor " + in_quotes(tensor));
    const auto [it, fresh] = index.shards.try_emplace(node.string());
    if (fresh) check_shard_name(folder, path, it->first, node);
    it->second.emplace(tensor, false);
  }
  if (index.shards.empty()) map.fail("names no tensor");
  return index;
}

}  // namespace

checkpoint checkpoint::open(const std::string& folder) {
  const fs::path dir(folder);
  std::error_code ec;
  if (!fs::is_directory(dir, ec)) throw file_error(folder + ": no such folder");
  const fs::path single = dir / "model.safetensors";
  const fs::path index_path = dir / "model.safetensors.index.json";
  if (fs::exists(single, ec)) return open_file(single.string());
  if (!fs::exists(index_path, ec)) throw file_error(folder + ": holds neither model.safetensors nor model.safetensors.index.json");

  shard_index index = read_index(dir, index_path);
  auto p = std::make_unique<impl>();
  p->source = folder;
  for (auto& [shard, tensors] : index.shards) {
    const std::string path = (dir / shard).string();
    if (!fs::exists(dir / shard, ec)) throw file_error(path + ": no such file, but " + index.path + " names it as a shard");
    const std::size_t first = p->entries.size();
    p->add_file(path);
    for (std::size_t i = first; i < p->entries.size(); ++i) {
      const std::string& name = p->entries[i].name;
      if (const auto it = tensors.find(name); it != tensors.end()) {
        it->second = true;
        continue;
      }
      std::string elsewhere = "does not name it";
      for (const auto& [other, names] : index.shards) {
        if (names.contains(name)) elsewhere = "places it in " + other;
      }
      throw file_error(path + ": holds tensor " + in_quotes(name) + ", but " + index.path + " " + elsewhere);
    }
    for (const auto& [name, seen] : tensors) {
      if (!seen) throw file_error(path + ": lacks tensor " + in_quotes(name) + ", which " + index.path + " places there");
    }
  }
  p->finish();
  return checkpoint(std::move(p));
}

const tensor_view* checkpoint::find(std::string_view name) const noexcept {
  const auto it =
      std::lower_bound(impl_->views.begin(), impl_->views.end(), name, [](const tensor_view& t, std::string_view n) { return t.name < n; });
  return it != impl_->views.end() && it->name == name ? &*it : nullptr;
}

const tensor_view& checkpoint::get(std::string_view name, std::span<const std::int64_t> shape) const {
  const auto wrong_dtype = [&](std::string_view file, std::string_view type) {
    return model_error(std::string(file) + ": tensor " + in_quotes(name) + " has dtype " + std::string(type) +
                       ", expected F32, F16 or BF16");
  };
  const tensor_view* t = find(name);
  if (t == nullptr) {
    for (const foreign_tensor& f : impl_->foreigns) {
      if (f.name == name) throw wrong_dtype(f.file, f.type);
    }
    throw model_error(impl_->source + ": tensor " + in_quotes(name) + " of shape " + shape_text(shape) + " is missing");
  }
  if (t->type == dtype::i8) throw wrong_dtype(t->file, file_spelling(t->type));
  if (!std::equal(t->shape.begin(), t->shape.end(), shape.begin(), shape.end())) {
    throw model_error(std::string(t->file) + ": tensor " + in_quotes(name) + " has shape " + shape_text(t->shape) + ", expected " +
                      shape_text(shape));
  }
  return *t;
}

std::span<const tensor_view> checkpoint::tensors() const noexcept { return impl_->views; }
std::span<const foreign_tensor> checkpoint::foreign_tensors() const noexcept { return impl_->foreigns; }
const std::string& checkpoint::source() const noexcept { return impl_->source; }

void write_safetensors(const std::string& path, std::span<const tensor_to_write> tensors) {
  // Widest elements first: each tensor then begins at a multiple of its element size.
  std::vector<const tensor_to_write*> order;
  for (const tensor_to_write& t : tensors) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) { return size_of(a->type) > size_of(b->type); });

  nlohmann::json header = nlohmann::json::object();
  header["__metadata__"] = {{"format", "pt"}};  // transformers refuses files that name no format
  std::int64_t offset = 0;
  for (const tensor_to_write* t : order) {
    if (header.contains(t->name))
      throw invalid_argument(path + ": tensor " + in_quotes(t->name) + " is given twice or has a reserved name");
    std::int64_t bytes = size_of(t->type);
    for (const std::int64_t n : t->shape) {
      if (n < 0 || __builtin_mul_overflow(bytes, n, &bytes)) {
        throw invalid_argument(path + ": tensor " + in_quotes(t->name) + " has shape " + shape_text(t->shape));
      }
    }
    if (static_cast<std::uint64_t>(bytes) != t->bytes.size()) {
      throw invalid_argument(path + ": tensor " + in_quotes(t->name) + " of shape " + shape_text(t->shape) + " and dtype " +
                             file_spelling(t->type) + " takes " + std::to_string(bytes) + " bytes, given " +
                             std::to_string(t->bytes.size()));
    }
    header[t->name] = {{"dtype", file_spelling(t->type)}, {"shape", t->shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw invalid_argument(path + ": a tensor's name is not valid UTF-8");
  }
  text.resize(ceil_div(text.size(), std::size_t{8}) * 8, ' ');

  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw file_error(path + ": cannot be created: " + std::generic_category().message(errno));
  const auto put = [&](const void* p, std::size_t n) { return n == 0 || std::fwrite(p, 1, n, file) == n; };
  const std::uint64_t length = text.size();
  bool good = put(&length, sizeof length) && put(text.data(), text.size());
  for (const tensor_to_write* t : order) good = good && put(t->bytes.data(), t->bytes.size());
  const int write_errno = errno;
  if (std::fclose(file) != 0 || !good) {
    throw file_error(path + ": cannot be written: " + std::generic_category().message(good ? errno : write_errno));
  }
}

}  // namespace vlbatch::inline v0
