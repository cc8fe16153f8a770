// SPDX-License-Identifier: Apache-2.0
#include "io/json_file.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <system_error>

#include "vlbatch/core/utf8.hpp"

namespace vlbatch::inline v0::io_detail {
namespace {

using nlohmann::json;

constexpr std::size_t max_depth = 64;

// Builds the value like the parser of the library does, but refuses what that one lets pass: a key that occurs twice (the last one would
// win, so that two readers may see two models) and nesting without bound (recursion elsewhere).
class strict_builder : public nlohmann::json_sax<json> {
 public:
  explicit strict_builder(const std::string& file) : file_(file) {}

  json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t& spelled) override {
    if (!std::isfinite(v)) throw file_error(file_ + ": number " + shortened(spelled) + " is out of range");
    return put(v);
  }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool key(string_t& v) override {
    auto [it, fresh] = stack_.back()->get_ref<json::object_t&>().try_emplace(v);
    if (!fresh) throw file_error(file_ + ": key \"" + shortened(v) + "\" occurs twice in one object");
    slot_ = &it->second;
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // The library's text starts with "[json.exception...] parse error at line 1, column 2: "; only what follows says something new.
    std::string_view what = e.what();
    if (const auto colon = what.find(": "); colon != std::string_view::npos) what.remove_prefix(colon + 2);
    throw file_error(file_ + ": not valid JSON at byte " + std::to_string(position) + ": " + shortened(what, 200));
  }

 private:
  json* place(json&& v) {
    if (stack_.empty()) return &(root_ = std::move(v));
    if (stack_.back()->is_array()) return &stack_.back()->get_ref<json::array_t&>().emplace_back(std::move(v));
    return &(*slot_ = std::move(v));
  }
  template <class T>
  bool put(T&& v) {
    place(json(std::forward<T>(v)));
    return true;
  }
  bool open(json&& v) {
    if (stack_.size() >= max_depth) {
      throw file_error(file_ + ": nested deeper than " + std::to_string(max_depth) + " levels");
    }
    stack_.push_back(place(std::move(v)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& file_;
  json root_;
  // Addresses stay good: a container is only appended to while it is the innermost open one, and then none of its elements is on the stack.
  std::vector<json*> stack_;
  json* slot_ = nullptr;
};

std::string number_text(double v) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.10g", v);
  return buffer;
}

}  // namespace

void throw_blamed(json_blame blame, const std::string& text) {
  if (blame == json_blame::model) throw model_error(text);
  throw file_error(text);
}

std::string shortened(std::string_view text, std::size_t limit) {
  std::string out;
  const bool cut = text.size() > limit;
  if (cut) text = text.substr(0, complete_utf8_prefix(text.substr(0, limit)));
  append_utf8_lossy(out, text);
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  if (cut) out += "...";
  return out;
}

std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  const std::string name = path.string();
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (status.type() == std::filesystem::file_type::not_found) throw file_error(name + ": no such file");
  if (ec) throw file_error(name + ": " + ec.message());
  if (status.type() != std::filesystem::file_type::regular) throw file_error(name + ": not a regular file");
  const auto size = std::filesystem::file_size(path, ec);
  if (ec) throw file_error(name + ": " + ec.message());
  if (size > static_cast<std::uintmax_t>(max_bytes)) {
    throw file_error(name + ": " + std::to_string(size) + " bytes, more than the limit of " + std::to_string(max_bytes));
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw file_error(name + ": cannot be opened");
  std::string text(static_cast<std::size_t>(size), '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (static_cast<std::uintmax_t>(in.gcount()) != size) {
    throw file_error(name + ": read " + std::to_string(in.gcount()) + " bytes, expected " + std::to_string(size));
  }
  return text;
}

json parse_json(std::string_view text, const std::string& file) {
  // The library takes a byte 0 for the end of the text, so that anything could follow, and passes over a byte order mark. Other readers
  // refuse both.
  if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
    throw file_error(file + ": not valid JSON at byte " + std::to_string(zero + 1) + ": a byte of value 0");
  }
  if (text.starts_with("\xEF\xBB\xBF")) throw file_error(file + ": not valid JSON at byte 1: a byte order mark");
  strict_builder builder(file);
  json::sax_parse(text.begin(), text.end(), &builder, json::input_format_t::json, true);
  return builder.take();
}

json_file json_file::load(const std::filesystem::path& path, std::int64_t max_bytes) {
  json_file f;
  f.name = path.string();
  f.value = parse_json(read_text_file(path, max_bytes), f.name);
  return f;
}

std::string json_node::child(std::string_view key) const {
  std::string out = path_;
  if (!out.empty()) out += '.';
  return out += shortened(key);
}

void json_node::fail(const std::string& text) const { throw_blamed(blame_, *file_ + ": " + (path_.empty() ? "" : path_ + ": ") + text); }

void json_node::fail_expected(const std::string& expected) const {
  throw_blamed(blame_, *file_ + ": " + (path_.empty() ? "the file" : path_) + " is " + shown() + ", expected " + expected);
}

std::string json_node::shown() const {
  switch (value_->type()) {
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array of " + std::to_string(value_->size());
    case json::value_t::string:
      return '"' + shortened(value_->get_ref<const json::string_t&>()) + '"';
    default:
      return value_->dump();
  }
}

const json_node& json_node::object() const {
  if (!value_->is_object()) fail_expected("an object");
  return *this;
}

bool json_node::has(const char* key) const {
  const auto& members = object().value_->get_ref<const json::object_t&>();
  const auto it = members.find(key);
  return it != members.end() && !it->second.is_null();
}

json_node json_node::at(const char* key) const {
  const auto& members = object().value_->get_ref<const json::object_t&>();
  const auto it = members.find(key);
  if (it == members.end()) throw_blamed(blame_, *file_ + ": missing key " + child(key));
  return {it->second, *file_, blame_, child(key)};
}

json_node json_node::at(std::size_t i) const {
  return {value_->get_ref<const json::array_t&>()[i], *file_, blame_, path_ + "[" + std::to_string(i) + "]"};
}

std::size_t json_node::array_size() const {
  if (!value_->is_array()) fail_expected("an array");
  return value_->size();
}

std::int64_t json_node::integer(std::int64_t low, std::int64_t high) const {
  const auto expected = [&] { return "an integer from " + std::to_string(low) + " to " + std::to_string(high); };
  if (!value_->is_number_integer()) fail_expected(expected());
  if (value_->is_number_unsigned()) {
    const auto v = value_->get<std::uint64_t>();
    if (high < 0 || v > static_cast<std::uint64_t>(high) || (low > 0 && v < static_cast<std::uint64_t>(low))) fail_expected(expected());
    return static_cast<std::int64_t>(v);
  }
  const auto v = value_->get<std::int64_t>();
  if (v < low || v > high) fail_expected(expected());
  return v;
}

double json_node::number(double low, double high) const {
  const double v = value_->is_number() ? value_->get<double>() : std::numeric_limits<double>::quiet_NaN();
  if (!(v >= low && v <= high)) fail_expected("a number from " + number_text(low) + " to " + number_text(high));
  return v;
}

bool json_node::boolean() const {
  if (!value_->is_boolean()) fail_expected("true or false");
  return value_->get<bool>();
}

const std::string& json_node::string() const {
  if (!value_->is_string()) fail_expected("a string");
  return value_->get_ref<const json::string_t&>();
}

std::int64_t json_node::integer_or(const char* key, std::int64_t otherwise, std::int64_t low, std::int64_t high) const {
  return has(key) ? at(key).integer(low, high) : otherwise;
}
double json_node::number_or(const char* key, double otherwise, double low, double high) const {
  return has(key) ? at(key).number(low, high) : otherwise;
}
bool json_node::boolean_or(const char* key, bool otherwise) const { return has(key) ? at(key).boolean() : otherwise; }
std::string json_node::string_or(const char* key, const std::string& otherwise) const { return has(key) ? at(key).string() : otherwise; }

}  // namespace vlbatch::inline v0::io_detail
