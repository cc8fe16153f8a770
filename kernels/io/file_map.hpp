// SPDX-License-Identifier: Apache-2.0
// A read-only memory-mapped file, and whole small files as text.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {

/// Owns the mapping. Pages are read when they are touched.
class file_map {
 public:
  explicit file_map(std::string path) : path_(std::move(path)) {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw file_error(path_ + ": cannot be opened: " + std::strerror(errno));
    struct stat info {};
    if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd);
      throw file_error(path_ + ": is not a regular file");
    }
    size_ = static_cast<std::size_t>(info.st_size);
    if (size_ > 0) {
      data_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      const int why = errno;
      ::close(fd);
      if (data_ == MAP_FAILED) throw file_error(path_ + ": cannot be mapped: " + std::strerror(why));
    } else {
      ::close(fd);
    }
  }
  file_map(file_map&& o) noexcept : path_(std::move(o.path_)), data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  file_map& operator=(file_map&&) = delete;
  file_map(const file_map&) = delete;
  file_map& operator=(const file_map&) = delete;
  ~file_map() {
    if (data_ != nullptr) ::munmap(data_, size_);
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), size_}; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole file. \throws file_error
[[nodiscard]] inline std::string read_file(const std::string& path) {
  const file_map map(path);  // for its error texts
  return {reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()};
}
/// True if there is something called \p path.
[[nodiscard]] inline bool file_exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace vlbatch::inline v0
