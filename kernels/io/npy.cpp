// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/io/npy.hpp"

#include <fmt/format.h>

#include <fstream>

#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {

void write_npy(const std::string& path, matrix_view<const float> m) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", m.rows, m.cols);
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';  // data aligned to 64 bytes, as the format asks
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  out.put(static_cast<char>(header.size() & 0xFFU)).put(static_cast<char>(header.size() >> 8U));
  out << header;
  for (std::int32_t r = 0; r < m.rows; ++r)
    out.write(reinterpret_cast<const char*>(m.row(r)), static_cast<std::streamsize>(sizeof(float)) * m.cols);
  out.flush();
  if (!out) throw file_error(path + ": cannot be written");
}

}  // namespace vlbatch::inline v0
