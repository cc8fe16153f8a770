// SPDX-License-Identifier: Apache-2.0
// What a figure has to say about where it was measured.
#pragma once

#include <string>

#include "vlbatch/backend/cpu.hpp"

namespace vlbatch::programs {

/// Processor, number of logical processors, memory: "AMD EPYC, 2 processors, 23.5 GiB".
[[nodiscard]] std::string machine_description();
/// Commit that the program was configured from, "-dirty" if there were changes; "unknown" outside a checkout.
[[nodiscard]] std::string git_description();
/// The CPU backend at the level that `--level` names. \throws invalid_argument naming what this machine has instead
[[nodiscard]] cpu device_at(const std::string& level);
/// Exit code of a program whose output is complete: \p rc, or 2 with a message if standard output could not be written.
[[nodiscard]] int finish(const char* program, int rc);
/// What is wrong with \p text as a number of 64 bits without sign, for option checks; empty if nothing is.
[[nodiscard]] std::string whole_number(const std::string& text);
/// Help of `--level`.
inline constexpr const char* level_help = "instruction set: best, reference, scalar, avx2, avx512, avx512_bf16, amx";
/// Help of `--f32`.
inline constexpr const char* f32_help = "keep weights and inputs of products in f32, whatever the checkpoint's number type";

}  // namespace vlbatch::programs
