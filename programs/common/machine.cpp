// SPDX-License-Identifier: Apache-2.0
#include "common/machine.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "vlbatch/core/error.hpp"

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
