// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>

#include "cpu/reference/reference.hpp"

namespace vlbatch::inline v0::reference {

void embed(context& /*s*/, indices ids, const cpu::weight::impl& table, output y) {
  for (std::int32_t r = 0; r < y.rows; ++r) {
    for (std::int32_t c = 0; c < y.cols; ++c) y.row(r)[c] = table.at(ids[static_cast<std::size_t>(r)], c);
  }
}

void inject(context& /*s*/, std::span<const injected_rows> images, output y) {
  for (const injected_rows& image : images) {
    const input from{image.embeddings, image.num_rows, y.cols};
    for (std::int32_t r = 0; r < image.num_rows; ++r) std::copy_n(from.row(r), y.cols, y.row(image.first_row + r));
  }
}

void add_rows(context& /*s*/, input table, output y) {
  for (std::int32_t r = 0; r < y.rows; ++r) {
    for (std::int32_t c = 0; c < y.cols; ++c) y.row(r)[c] += table.row(r % table.rows)[c];
  }
}

void gather_rows(context& /*s*/, input x, indices rows, output y) {
  for (std::int32_t r = 0; r < y.rows; ++r) std::copy_n(x.row(rows[static_cast<std::size_t>(r)]), x.cols, y.row(r));
}

}  // namespace vlbatch::inline v0::reference
