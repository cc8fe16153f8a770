// SPDX-License-Identifier: Apache-2.0
/// \file
/// Writes matrices for numpy. Defined in the compiled library.
#pragma once

#include <string>

#include "vlbatch/core/matrix_view.hpp"

namespace vlbatch::inline v0 {

/// Writes `[rows, cols]` float32 in numpy's .npy format, version 1.0. \throws file_error
void write_npy(const std::string& path, matrix_view<const float> m);

}  // namespace vlbatch::inline v0
