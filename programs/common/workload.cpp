// SPDX-License-Identifier: Apache-2.0
#include "common/workload.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "vlbatch/core/error.hpp"

namespace vlbatch::programs {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw file_error(path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

workload load_workload(const std::string& manifest, std::int32_t count, pairs which) {
  if (count < 1) throw invalid_argument(fmt::format("number of requests is {}, expected >= 1", count));
  workload w{
      .name = fmt::format("{} x {}", count, which == pairs::same ? "the same pair" : "distinct pairs"), .requests = {}, .answers = {}};
  const std::string folder = manifest.substr(0, manifest.find_last_of('/') + 1);
  std::map<std::string, std::shared_ptr<const std::vector<std::byte>>> pictures;
  try {
    const nlohmann::json rows = nlohmann::json::parse(read_file(manifest)).at("rows");
    if (rows.empty()) throw file_error(manifest + ": has no rows");
    for (std::int32_t i = 0; i < count; ++i) {
      const nlohmann::json& row = rows.at(which == pairs::same ? 0 : static_cast<std::size_t>(i) % rows.size());
      const auto file = row.at("image").get<std::string>();
      auto& bytes = pictures[file];
      if (!bytes) {
        const std::string text = read_file(folder + file);
        const auto* first = reinterpret_cast<const std::byte*>(text.data());
        bytes = std::make_shared<const std::vector<std::byte>>(first, first + text.size());
      }
      request r;
      r.messages = {{.role = "user", .parts = {image_part{bytes}, text_part{row.at("prompt").get<std::string>()}}}};
      r.max_new_tokens = row.value("max_new_tokens", 128);
      w.requests.push_back(std::move(r));
      w.answers.push_back(row.value("answer", std::string()));
    }
  } catch (const nlohmann::json::exception& e) {
    throw file_error(fmt::format("{}: not a workload manifest: {}", manifest, e.what()));
  }
  return w;
}

}  // namespace vlbatch::programs
