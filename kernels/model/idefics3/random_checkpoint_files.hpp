// SPDX-License-Identifier: Apache-2.0
// The small files of a random checkpoint: configuration, processor, tokenizer.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "vlbatch/model/idefics3/random_checkpoint.hpp"

namespace vlbatch::inline v0 {

/// \throws invalid_argument the vocabulary cannot hold the tokens that the format needs
void check_vocabulary(const random_checkpoint_shape& shape);
/// Writes everything but the weights. \throws file_error
void write_checkpoint_files(const random_checkpoint_shape& shape, dtype type, const std::filesystem::path& folder);
/// Writes \p value as UTF-8. \throws file_error
void write_json(const std::filesystem::path& path, const nlohmann::json& value);

}  // namespace vlbatch::inline v0
