// SPDX-License-Identifier: Apache-2.0
// From a level to its table.
#pragma once

#include "cpu/kernels.hpp"

namespace vlbatch::inline v0 {

/// Table of \p level. \throws invalid_argument if this machine cannot run it, naming it and the best that it can
[[nodiscard]] const cpu_kernels& kernels_for(cpu_level level);

}  // namespace vlbatch::inline v0
