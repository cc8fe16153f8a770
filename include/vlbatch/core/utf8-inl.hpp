// SPDX-License-Identifier: Apache-2.0
// Definitions of utf8.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/linkage.hpp"
#include "vlbatch/core/utf8.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE void append_utf8_lossy(std::string& out, std::string_view bytes) {
  std::size_t run = 0;  // valid bytes not yet copied
  while (run < bytes.size()) {
    const detail::utf8_step step = detail::utf8_next(bytes.substr(run));
    if (step.valid) {
      run += step.length;
      continue;
    }
    out.append(bytes.substr(0, run)).append("\xEF\xBF\xBD");
    bytes.remove_prefix(run + step.length);
    run = 0;
  }
  out.append(bytes);
}

}  // namespace vlbatch::inline v0
