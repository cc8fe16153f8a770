// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share: files that hold the fuzzer's bytes, and a check that stays in optimised builds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "vlbatch/core/error.hpp"

/// Aborts, so that the fuzzer keeps the input, if \p condition does not hold.
#define FUZZ_REQUIRE(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

namespace vlbatch::fuzz {

/// A folder of this process, in memory where there is such a place.
inline const std::filesystem::path& folder() {
  static const std::filesystem::path made = [] {
    const std::filesystem::path shm = "/dev/shm";
    const auto base = std::filesystem::is_directory(shm) ? shm : std::filesystem::temp_directory_path();
    std::string name = (base / "vlbatch-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    std::atexit([] { std::filesystem::remove_all(folder()); });
    return std::filesystem::path(name);
  }();
  return made;
}

/// Writes a file of that folder. \return its path
inline std::string write(const std::string& name, std::string_view bytes) {
  const auto path = folder() / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path.string();
}

/// The fuzzer's bytes as text.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// Runs \p read; refusals of the library are what bad input should get, provided that they say something.
template <class F>
void expect_value_or_error(F&& read) {
  try {
    read();
  } catch (const vlbatch::error& e) {
    FUZZ_REQUIRE(std::string_view(e.what()).size() > 8);
  }
}

}  // namespace vlbatch::fuzz
