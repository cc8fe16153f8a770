// SPDX-License-Identifier: Apache-2.0
// JSON files with errors that name the file and the key.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_map.hpp"

namespace vlbatch::inline v0 {

/// Parses \p text. A key that occurs twice in one object is an error: which value counts would be a guess. \throws file_error naming \p
/// name
[[nodiscard]] inline nlohmann::json parse_json(std::string_view text, const std::string& name) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using kind = nlohmann::json::parse_event_t;
    if (depth > 64) throw file_error(name + ": nested deeper than 64 levels");
    if (event == kind::object_start) keys.emplace_back();
    if (event == kind::object_end && !keys.empty()) keys.pop_back();
    if (event == kind::key && !keys.back().insert(value.get<std::string>()).second) twice = value.get<std::string>();
    return true;
  };
  try {
    nlohmann::json j = nlohmann::json::parse(text.begin(), text.end(), watch);
    if (!twice.empty()) throw file_error(name + ": key \"" + twice + "\" occurs twice");
    return j;
  } catch (const nlohmann::json::exception& e) {
    std::string why = e.what();
    for (char& c : why) c = c == '\n' || c == '\r' ? ' ' : c;
    throw file_error(name + ": not valid JSON: " + why.substr(0, 200));
  }
}

/// Parses a file. \throws file_error
[[nodiscard]] inline nlohmann::json load_json(const std::string& path) { return parse_json(read_file(path), path); }

/// An object of a JSON file together with where it is, for error texts.
class json_object {
 public:
  json_object(const nlohmann::json& j, std::string file, std::string prefix = {})
      : json_(&j), file_(std::move(file)), prefix_(std::move(prefix)) {
    if (!j.is_object())
      throw file_error(file_ + ": " + (prefix_.empty() ? "the file" : prefix_) + " is " + j.type_name() + ", expected an object");
  }
  [[nodiscard]] bool has(const char* key) const { return json_->contains(key) && !(*json_)[key].is_null(); }
  [[nodiscard]] const nlohmann::json& raw(const char* key) const {
    if (!has(key)) throw model_error(file_ + ": missing key " + prefix_ + key);
    return (*json_)[key];
  }
  [[nodiscard]] json_object object(const char* key) const { return {raw(key), file_, prefix_ + key + "."}; }
  /// Integer in [low, high].
  [[nodiscard]] std::int32_t integer(const char* key, std::int64_t low, std::int64_t high) const {
    const nlohmann::json& v = raw(key);
    if (!v.is_number_integer()) fail(key, v, "an integer");
    const bool big =
        v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (big || v.get<std::int64_t>() < low || v.get<std::int64_t>() > high)
      fail(key, v, "in " + std::to_string(low) + ".." + std::to_string(high));
    return static_cast<std::int32_t>(v.get<std::int64_t>());
  }
  [[nodiscard]] std::int32_t integer_or(const char* key, std::int64_t low, std::int64_t high, std::int32_t otherwise) const {
    return has(key) ? integer(key, low, high) : otherwise;
  }
  /// Finite number in [low, high].
  [[nodiscard]] double number_or(const char* key, double low, double high, double otherwise) const {
    if (!has(key)) return otherwise;
    const nlohmann::json& v = raw(key);
    if (!v.is_number()) fail(key, v, "a number");
    const double d = v.get<double>();
    if (!(d >= low && d <= high)) fail(key, v, "in " + std::to_string(low) + ".." + std::to_string(high));
    return d;
  }
  [[nodiscard]] bool boolean_or(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    const nlohmann::json& v = raw(key);
    if (!v.is_boolean()) fail(key, v, "true or false");
    return v.get<bool>();
  }
  [[nodiscard]] std::string string(const char* key) const {
    const nlohmann::json& v = raw(key);
    if (!v.is_string()) fail(key, v, "a string");
    return v.get<std::string>();
  }
  [[nodiscard]] std::string string_or(const char* key, const char* otherwise) const {
    return has(key) ? string(key) : std::string(otherwise);
  }
  /// Name of a key with its place, and the file.
  [[nodiscard]] std::string where(const char* key) const { return file_ + ": " + prefix_ + key; }
  [[noreturn]] void fail(const char* key, const nlohmann::json& found, const std::string& expected) const {
    throw model_error(where(key) + " is " + found.dump().substr(0, 80) + ", expected " + expected);
  }

 private:
  const nlohmann::json* json_;
  std::string file_;
  std::string prefix_;
};

}  // namespace vlbatch::inline v0
