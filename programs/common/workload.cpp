// SPDX-License-Identifier: Apache-2.0
#include "common/workload.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "vlbatch/core/error.hpp"

namespace vlbatch::programs {
namespace {

// A pipe or device would hang or never end.
std::string read_file(const std::filesystem::path& path) {
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (!std::filesystem::exists(status)) throw file_error(path.string() + ": no such file");
  if (!std::filesystem::is_regular_file(status)) throw file_error(path.string() + ": not a regular file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw file_error(path.string() + ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A key of a row, with the row in the message.
class row_reader {
 public:
  row_reader(const std::string& manifest, std::size_t index, const nlohmann::json& row)
      : where_(fmt::format("{}: row {}", manifest, index)), row_(row) {
    if (!row.is_object()) throw file_error(fmt::format("{} is of type {}, expected an object", where_, row.type_name()));
  }
  [[nodiscard]] std::string text(const char* key) const {
    if (!row_.contains(key)) throw file_error(fmt::format("{}: {} is missing", where_, key));
    return text(key, {});
  }
  [[nodiscard]] std::string text(const char* key, const std::string& otherwise) const {
    if (!row_.contains(key)) return otherwise;
    if (!row_[key].is_string())
      throw file_error(fmt::format("{}: {} is of type {}, expected a string", where_, key, row_[key].type_name()));
    return row_[key].get<std::string>();
  }
  [[nodiscard]] std::int32_t count(const char* key, std::int32_t otherwise) const {
    if (!row_.contains(key)) return otherwise;
    const nlohmann::json& v = row_[key];
    constexpr std::int64_t most = 1 << 20;
    const bool whole =
        v.is_number_unsigned() ? v.get<std::uint64_t>() <= std::uint64_t{most} : v.is_number_integer() && v.get<std::int64_t>() >= 0;
    if (!whole) throw file_error(fmt::format("{}: {} is {}, expected a whole number from 0 to {}", where_, key, v.dump(), most));
    return v.get<std::int32_t>();
  }

 private:
  std::string where_;
  const nlohmann::json& row_;
};

}  // namespace

workload load_workload(const std::string& manifest, std::int32_t count, pairs which) {
  if (count < 1) throw invalid_argument(fmt::format("number of requests is {}, expected >= 1", count));
  workload w{
      .name = fmt::format("{} x {}", count, which == pairs::same ? "the same pair" : "distinct pairs"), .requests = {}, .answers = {}};
  const std::filesystem::path folder = std::filesystem::path(manifest).parent_path();
  std::map<std::string, std::shared_ptr<const std::vector<std::byte>>> pictures;
  nlohmann::json all;
  try {
    all = nlohmann::json::parse(read_file(manifest));
  } catch (const nlohmann::json::exception& e) {
    throw file_error(fmt::format("{}: not JSON: {}", manifest, e.what()));
  }
  if (!all.is_object() || !all.contains("rows") || !all["rows"].is_array() || all["rows"].empty())
    throw file_error(manifest + ": not a workload manifest: expected an object with a list \"rows\" of at least one row");
  const nlohmann::json& rows = all["rows"];
  for (std::int32_t i = 0; i < count; ++i) {
    const std::size_t index = which == pairs::same ? 0 : static_cast<std::size_t>(i) % rows.size();
    const row_reader row(manifest, index, rows[index]);
    const std::string file = row.text("image");
    auto& bytes = pictures[file];
    if (!bytes) {
      const std::string text = read_file(folder / file);
      const auto* first = reinterpret_cast<const std::byte*>(text.data());
      bytes = std::make_shared<const std::vector<std::byte>>(first, first + text.size());
    }
    request r;
    r.messages = {{.role = "user", .parts = {image_part{bytes}, text_part{row.text("prompt")}}}};
    r.max_new_tokens = row.count("max_new_tokens", 128);
    w.requests.push_back(std::move(r));
    w.answers.push_back(row.text("answer", {}));
  }
  return w;
}

}  // namespace vlbatch::programs
