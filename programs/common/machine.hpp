// SPDX-License-Identifier: Apache-2.0
// What a figure has to say about where it was measured.
#pragma once

#include <string>

namespace vlbatch::programs {

/// Processor, number of logical processors, memory: "AMD EPYC, 2 processors, 23.5 GiB".
[[nodiscard]] std::string machine_description();
/// Commit that the program was configured from, "-dirty" if there were changes; "unknown" outside a checkout.
[[nodiscard]] std::string git_description();

}  // namespace vlbatch::programs
