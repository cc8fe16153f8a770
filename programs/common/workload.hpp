// SPDX-License-Identifier: Apache-2.0
// The requests of an experiment, from a manifest: {"rows": [{"image": file, "prompt": text, "answer": text, "max_new_tokens": n}, ...]}.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "vlbatch/core/request.hpp"

namespace vlbatch::programs {

/// Requests and what counts as the right answer to each (empty: nobody knows).
struct workload {
  std::string name;
  std::vector<request> requests;
  std::vector<std::string> answers;
};

/// Which pairs of prompt and image are asked.
enum class pairs { same, distinct };

/// \p count requests from the rows of \p manifest: all rows in turn (distinct), or the first one again and again (same). Picture files are
/// read once into memory, so that preparation decodes them and the disk is not measured. \throws file_error, invalid_argument
[[nodiscard]] workload load_workload(const std::string& manifest, std::int32_t count, pairs which);

}  // namespace vlbatch::programs
