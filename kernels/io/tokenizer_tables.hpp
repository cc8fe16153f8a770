// SPDX-License-Identifier: Apache-2.0
// What a `tokenizer.json` says, ready for use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer_added.hpp"
#include "io/tokenizer_bpe.hpp"
#include "io/tokenizer_split.hpp"

namespace vlbatch::inline v0::tokenizer_detail {

/// Strings by index in one block of memory.
class string_table {
 public:
  void assign(const std::vector<std::string>& strings);
  [[nodiscard]] std::string_view operator[](std::size_t i) const {
    return std::string_view(text_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }

 private:
  std::string text_;
  std::vector<std::size_t> ends_{0};
};

/// Stays where it is: the maps refer to the strings.
struct tokenizer_tables {
  tokenizer_tables() = default;
  tokenizer_tables(const tokenizer_tables&) = delete;
  tokenizer_tables& operator=(const tokenizer_tables&) = delete;

  std::int32_t size = 0;                                   ///< highest id + 1
  string_table spelled;                                    ///< `[size]`, as the file spells them; empty where an id is not used
  string_table bytes;                                      ///< `[size]`, what they stand for
  std::unordered_map<std::string_view, std::int32_t> ids;  ///< by spelling
  bpe_model model;
  std::vector<split_step> steps;
  added_matcher raw_added;         ///< looked for first, in the text as it is
  added_matcher normalised_added;  ///< looked for in what is left, after normalisation

  /// Fills the empty tables. \throws file_error, model_error
  void read(const std::string& path);
};

}  // namespace vlbatch::inline v0::tokenizer_detail
