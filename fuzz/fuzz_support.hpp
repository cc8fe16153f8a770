// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share: promises that end the run, files that live in memory, and texts cut out of the input.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "vlbatch/core/error.hpp"
#include "vlbatch/core/utf8.hpp"

namespace vlbatch::fuzz {

/// Ends the run with a finding.
[[noreturn]] inline void finding(std::string_view what) {
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

/// A promise of the library that must hold whatever the input is.
inline void require(bool holds, std::string_view what) {
  if (!holds) finding(what);
}

/// Runs \p f. Errors of the library with one line of text are what bad input deserves; everything else escapes and is a finding.
/// \return whether there was none
template <class F>
bool tolerate(F&& f) {
  try {
    f();
    return true;
  } catch (const error& e) {
    const std::string_view text = e.what();
    require(!text.empty() && text.find('\n') == std::string_view::npos && is_valid_utf8(text), "an error's text is one line of UTF-8");
    return false;
  }
}

/// Writes all of \p content to an open file that was empty.
inline void write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(file, content.data(), content.size());
    if (n <= 0) finding("the harness cannot write its file");
    content.remove_prefix(static_cast<std::size_t>(n));
  }
}

/// A file in memory with a path.
class memory_file {
 public:
  explicit memory_file(std::string_view content) : file_(::memfd_create("vlbatch-fuzz", MFD_CLOEXEC)) {
    require(file_ >= 0, "the harness cannot make a file in memory");
    write_all(file_, content);
  }
  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;
  ~memory_file() { ::close(file_); }
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

/// A folder of the process, in memory where there is a file system for it; files are written anew for every input.
class folder {
 public:
  folder() {
    const std::filesystem::path base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    path_ = base / ("vlbatch-fuzz-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path_);
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }
  void write(const char* name, std::string_view content) const {
    // A file that a mapping may still refer to is replaced, not cut.
    remove(name);
    const int file = ::open((path_ / name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    require(file >= 0, "the harness cannot make a file");
    write_all(file, content);
    ::close(file);
  }
  void remove(const char* name) const { ::unlink((path_ / name).c_str()); }

 private:
  std::filesystem::path path_;
};

/// \p input cut at every byte 0, which no text format has inside; the last of \p most parts keeps what is left.
inline std::vector<std::string_view> cut(std::string_view input, std::size_t most) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < most) {
    const std::size_t end = input.find('\0');
    if (end == std::string_view::npos) break;
    parts.push_back(input.substr(0, end));
    input.remove_prefix(end + 1);
  }
  parts.push_back(input);
  return parts;
}

/// The bytes of an input.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

}  // namespace vlbatch::fuzz
