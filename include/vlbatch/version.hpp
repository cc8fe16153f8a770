// SPDX-License-Identifier: Apache-2.0
/// \file
/// The version, in its single place: the build reads it from here.
#pragma once

#define VLBATCH_VERSION_MAJOR 0  ///< incompatible changes (below 1.0: minor)
#define VLBATCH_VERSION_MINOR 1  ///< new features
#define VLBATCH_VERSION_PATCH 0  ///< faults mended
/// MAJOR * 10000 + MINOR * 100 + PATCH.
#define VLBATCH_VERSION (VLBATCH_VERSION_MAJOR * 10000 + VLBATCH_VERSION_MINOR * 100 + VLBATCH_VERSION_PATCH)
