// SPDX-License-Identifier: Apache-2.0
#include "common/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>

#include "vlbatch/core/error.hpp"
#include "vlbatch_git.h"

namespace vlbatch::programs {

std::string machine_description() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, model = "unknown processor";
  while (std::getline(info, line)) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return fmt::format("{}, {} processors, {:.1f} GiB", model, std::thread::hardware_concurrency(), bytes / (1024.0 * 1024.0 * 1024.0));
}

std::string git_description() { return VLBATCH_GIT; }

int finish(const char* program, int rc) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return rc;
  fmt::print(stderr, "{}: standard output cannot be written\n", program);
  return 2;
}

std::string whole_number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return fmt::format("is '{}', expected a whole number from 0 to {}", text, std::numeric_limits<std::uint64_t>::max());
}

cpu device_at(const std::string& level) {
  if (level == name_of(cpu_level::best)) return cpu();
  std::string have;
  for (const cpu_level l : available_cpu_levels()) {
    if (name_of(l) == level) return cpu(l);
    have += (have.empty() ? "" : ", ") + std::string(name_of(l));
  }
  throw invalid_argument(fmt::format("--level is {}, this machine has best, {}", level, have));
}

}  // namespace vlbatch::programs
