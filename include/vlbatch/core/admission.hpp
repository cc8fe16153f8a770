// SPDX-License-Identifier: Apache-2.0
/// \file
/// Requests that could never run are refused at the door, with both numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "vlbatch/core/error.hpp"
#include "vlbatch/core/prepared_request.hpp"
#include "vlbatch/core/request.hpp"
#include "vlbatch/core/scheduler_state.hpp"
#include "vlbatch/model/model.hpp"

namespace vlbatch::inline v0 {

/// Checks what can be checked before preparation. \throws invalid_argument naming the field and its value
void check_request(const request& r);

/// Why no model with a vocabulary of \p vocab_size could be sampled like this, or an empty text.
[[nodiscard]] std::string why_unusable(const sampling_params& s, std::int32_t vocab_size);

/// Why an empty engine could not run \p p, or an empty text. \p max_kv_tokens: the most tokens of one sequence that an empty cache holds.
[[nodiscard]] std::string why_impossible(const prepared_request& p, std::int32_t max_new_tokens, const model_info& model, const limits& lim,
                                         std::int64_t max_kv_tokens, std::int64_t encoder_bytes, std::int64_t bytes_per_embedding);

}  // namespace vlbatch::inline v0

#ifndef VLBATCH_COMPILED_CORE
#include "vlbatch/core/admission-inl.hpp"
#endif
