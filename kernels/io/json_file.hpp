// SPDX-License-Identifier: Apache-2.0
// JSON from untrusted files: strict parsing, and typed access whose errors name the file, the key and both values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0::io_detail {

/// What a value that does not fit means: a malformed file, or a model that this build cannot run.
enum class json_blame : std::uint8_t { file, model };

/// Throws file_error or model_error.
[[noreturn]] void throw_blamed(json_blame blame, const std::string& text);

/// Whole content of a regular file of at most \p max_bytes. \throws file_error
[[nodiscard]] std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes);

/// Parses \p text, refusing duplicate keys, nesting deeper than 64, a byte order mark, and anything after the value.
/// \throws file_error naming \p file
[[nodiscard]] nlohmann::json parse_json(std::string_view text, const std::string& file);

/// A value inside a parsed file together with the way to it ("text_config.hidden_size"). Refers to the file's json and name, which must
/// outlive it.
class json_node {
 public:
  json_node(const nlohmann::json& value, const std::string& file, json_blame blame, std::string path = {})
      : value_(&value), file_(&file), blame_(blame), path_(std::move(path)) {}

  [[nodiscard]] const nlohmann::json& raw() const noexcept { return *value_; }
  [[nodiscard]] const std::string& file() const noexcept { return *file_; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] bool is_array() const noexcept { return value_->is_array(); }
  [[nodiscard]] bool is_string() const noexcept { return value_->is_string(); }
  [[nodiscard]] bool is_number() const noexcept { return value_->is_number(); }

  /// True if this object has a member \p key that is not null.
  [[nodiscard]] bool has(const char* key) const;
  /// Member \p key; a missing one is an error.
  [[nodiscard]] json_node at(const char* key) const;
  /// Element \p i of this array.
  [[nodiscard]] json_node at(std::size_t i) const;
  /// Elements of this array; anything else is an error.
  [[nodiscard]] std::size_t array_size() const;
  /// This, which must be an object.
  [[nodiscard]] const json_node& object() const;

  [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number(double low, double high) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] const std::string& string() const;

  /// Member \p key as above, or \p otherwise when it is absent or null.
  [[nodiscard]] std::int64_t integer_or(const char* key, std::int64_t otherwise, std::int64_t low, std::int64_t high) const;
  [[nodiscard]] double number_or(const char* key, double otherwise, double low, double high) const;
  [[nodiscard]] bool boolean_or(const char* key, bool otherwise) const;
  [[nodiscard]] std::string string_or(const char* key, const std::string& otherwise) const;

  /// The value shortened to one line, for error texts.
  [[nodiscard]] std::string shown() const;
  /// Throws: "FILE: PATH: \p text".
  [[noreturn]] void fail(const std::string& text) const;
  /// Throws: "FILE: PATH is VALUE, expected \p expected".
  [[noreturn]] void fail_expected(const std::string& expected) const;

 private:
  [[nodiscard]] std::string child(std::string_view key) const;

  const nlohmann::json* value_;
  const std::string* file_;
  json_blame blame_;
  std::string path_;
};

/// A parsed file and its name.
struct json_file {
  std::string name;
  nlohmann::json value;

  /// \throws file_error missing, too large or malformed
  [[nodiscard]] static json_file load(const std::filesystem::path& path, std::int64_t max_bytes);
  [[nodiscard]] json_node root(json_blame blame) const { return {value, name, blame}; }
};

/// \p text on one line and at most \p limit bytes long, cut between characters, control characters replaced: for error texts.
[[nodiscard]] std::string shortened(std::string_view text, std::size_t limit = 60);

}  // namespace vlbatch::inline v0::io_detail
