// SPDX-License-Identifier: Apache-2.0
// Files for tests: a folder of its own that goes away, goldens, shared samples.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace vlbatch::testing {

/// An empty folder that is removed with everything in it.
class temporary_folder {
 public:
  temporary_folder() {
    static std::atomic<int> count{0};
    path_ = std::filesystem::temp_directory_path() / ("vlbatch-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }

  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  /// Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view content) const {
    std::ofstream out(path_ / name, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + path(name));
    return path(name);
  }
  std::string write(const std::string& name, const nlohmann::json& value) const { return write(name, std::string_view(value.dump())); }
  std::string write(const std::string& name, const char* content) const { return write(name, std::string_view(content)); }
  std::string write(const std::string& name, const std::string& content) const { return write(name, std::string_view(content)); }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

/// A file of tests/golden/text.
inline std::string golden_text(const std::string& name) { return std::string(VLBATCH_SOURCE_DIR) + "/tests/golden/text/" + name; }

/// The text of the error that \p f throws, which must be of exactly the type \p Error and one line.
template <class Error, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_TRUE(typeid(e) == typeid(Error)) << e.what();
    EXPECT_EQ(std::string_view(e.what()).find('\n'), std::string_view::npos) << e.what();
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "another type of error: " << e.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace vlbatch::testing

/// Path of a file in ../shared/samples; skips the test where the folder is absent.
#define VLBATCH_SAMPLE_OR_SKIP(variable, name)                                         \
  const std::string variable = std::string(VLBATCH_SHARED_DIR) + "/samples/" + (name); \
  if (!std::filesystem::exists(variable)) GTEST_SKIP() << "no sample " << variable << " on this machine"
