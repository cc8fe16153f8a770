// SPDX-License-Identifier: Apache-2.0
// Separable resampling as Pillow does it (its src/libImaging/Resample.c and Geometry.c are the source of the algorithm): weights are
// computed in double precision, rounded to 22 fractional bits, and every pass rounds to bytes, so that results agree byte for byte.
#include "io/image_resample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "vlbatch/core/error.hpp"
#include "vlbatch/io/image.hpp"

namespace vlbatch::inline v0 {
namespace {

double box(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double triangle(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double hamming(double x) {
  x = std::abs(x);
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  x *= std::numbers::pi;
  // The window's two constants are of single precision there.
  return std::sin(x) / x * (static_cast<double>(0.54F) + static_cast<double>(0.46F) * std::cos(x));
}

// Keys' cubic with a = -1/2.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos3(double x) { return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0; }

struct kernel {
  double (*value)(double);
  double support;  // half its width, source pixels when nothing shrinks
};

kernel kernel_of(resample_filter filter) {
  switch (filter) {
    case resample_filter::lanczos:
      return {lanczos3, 3.0};
    case resample_filter::bilinear:
      return {triangle, 1.0};
    case resample_filter::bicubic:
      return {cubic, 2.0};
    case resample_filter::box:
      return {box, 0.5};
    case resample_filter::hamming:
      return {hamming, 1.0};
    case resample_filter::nearest:
      break;
  }
  throw invalid_argument("resample filter " + std::to_string(static_cast<std::int32_t>(filter)) + " is unknown, expected 0 to 5");
}

// Where each output sample of one axis comes from.
struct axis_weights {
  struct window {
    std::int32_t first = 0;  // first source sample
    std::int32_t count = 0;  // source samples
    std::int64_t at = 0;     // its first weight
  };
  std::vector<window> windows;        // [output size]
  std::vector<std::int32_t> weights;  // fixed point
};

axis_weights make_weights(std::int32_t from, std::int32_t to, const kernel& k) {
  const double scale = static_cast<double>(from) / to;
  const double stretch = std::max(scale, 1.0);
  const double support = k.support * stretch;
  const double inverse_stretch = 1.0 / stretch;
  axis_weights out;
  out.windows.resize(static_cast<std::size_t>(to));
  std::vector<double> exact;
  for (std::int32_t i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const std::int32_t first = std::max(static_cast<std::int32_t>(centre - support + 0.5), 0);
    const std::int32_t last = std::min(static_cast<std::int32_t>(centre + support + 0.5), from);
    exact.clear();
    double sum = 0.0;
    for (std::int32_t x = first; x < last; ++x) {
      exact.push_back(k.value((x - centre + 0.5) * inverse_stretch));
      sum += exact.back();
    }
    out.windows[static_cast<std::size_t>(i)] = {first, last - first, static_cast<std::int64_t>(out.weights.size())};
    for (double w : exact) {
      if (sum != 0.0) w /= sum;
      w *= 1 << io_detail::weight_bits;
      out.weights.push_back(static_cast<std::int32_t>(w < 0 ? w - 0.5 : w + 0.5));
    }
  }
  return out;
}

image_buffer make_buffer(std::int32_t width, std::int32_t height) {
  image_buffer out{width, height, {}};
  out.pixels.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * 3);
  return out;
}

// Rows lie one behind the other, so that a weighted sum of rows runs along memory.
image_buffer resample_vertically(const image_buffer& source, std::int32_t height, const axis_weights& w) {
  image_buffer out = make_buffer(source.width, height);
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(source.width) * 3;
  for (std::int32_t y = 0; y < height; ++y) {
    const auto& window = w.windows[static_cast<std::size_t>(y)];
    io_detail::weighted_rows(source.pixels.data() + window.first * stride, stride, w.weights.data() + window.at, window.count,
                             static_cast<std::size_t>(stride), out.pixels.data() + y * stride);
  }
  return out;
}

constexpr std::ptrdiff_t strip_rows = 32;

// `to[i * strip_rows + r] = from[r * stride + i]` for r < rows, i < n: a strip of rows on its side.
void lay_down(const std::uint8_t* from, std::ptrdiff_t stride, std::ptrdiff_t rows, std::ptrdiff_t n, std::uint8_t* to) {
  for (std::ptrdiff_t i = 0; i < n; ++i, to += strip_rows) {
    for (std::ptrdiff_t r = 0; r < rows; ++r) to[r] = from[r * stride + i];
  }
}

void stand_up(const std::uint8_t* from, std::ptrdiff_t rows, std::ptrdiff_t n, std::uint8_t* to, std::ptrdiff_t stride) {
  constexpr std::ptrdiff_t block = 64;  // columns whose bytes stay in the nearest cache
  for (std::ptrdiff_t begin = 0; begin < n; begin += block) {
    const std::ptrdiff_t end = std::min(begin + block, n);
    for (std::ptrdiff_t r = 0; r < rows; ++r) {
      for (std::ptrdiff_t i = begin; i < end; ++i) to[r * stride + i] = from[i * strip_rows + r];
    }
  }
}

// Laid on its side, a strip of rows has the same sums as the vertical pass.
image_buffer resample_horizontally(const image_buffer& source, std::int32_t width, const axis_weights& w, std::int32_t first_row,
                                   std::int32_t num_rows) {
  image_buffer out = make_buffer(width, num_rows);
  const std::ptrdiff_t from_stride = static_cast<std::ptrdiff_t>(source.width) * 3, to_stride = static_cast<std::ptrdiff_t>(width) * 3;
  constexpr std::ptrdiff_t pixel = strip_rows * 3;
  std::vector<std::uint8_t> from(static_cast<std::size_t>(source.width * pixel)), to(static_cast<std::size_t>(width * pixel));
  for (std::ptrdiff_t y = 0; y < num_rows; y += strip_rows) {
    const std::ptrdiff_t rows = std::min(strip_rows, num_rows - y);
    lay_down(source.pixels.data() + (first_row + y) * from_stride, from_stride, rows, from_stride, from.data());
    for (std::int32_t x = 0; x < width; ++x) {
      const auto& window = w.windows[static_cast<std::size_t>(x)];
      io_detail::weighted_rows(from.data() + window.first * pixel, pixel, w.weights.data() + window.at, window.count,
                               static_cast<std::size_t>(pixel), to.data() + x * pixel);
    }
    stand_up(to.data(), rows, to_stride, out.pixels.data() + y * to_stride, to_stride);
  }
  return out;
}

// Source index of each output index, -1 outside. The position is summed up step by step, whose rounding decides between neighbours.
std::vector<std::int32_t> nearest_indices(std::int32_t from, std::int32_t to) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(to));
  const double step = static_cast<double>(from) / to;
  double at = step * 0.5;
  for (std::int32_t& i : out) {
    i = static_cast<std::int32_t>(at);
    if (i >= from) i = -1;
    at += step;
  }
  return out;
}

image_buffer resample_nearest(const image_buffer& source, std::int32_t width, std::int32_t height) {
  image_buffer out = make_buffer(width, height);  // black
  const std::vector<std::int32_t> columns = nearest_indices(source.width, width), rows = nearest_indices(source.height, height);
  std::uint8_t* to = out.pixels.data();
  for (const std::int32_t y : rows) {
    const std::uint8_t* from = source.pixels.data() + static_cast<std::ptrdiff_t>(y) * source.width * 3;
    for (const std::int32_t x : columns) {
      if (x >= 0 && y >= 0) std::memcpy(to, from + static_cast<std::ptrdiff_t>(x) * 3, 3);
      to += 3;
    }
  }
  return out;
}

}  // namespace

image_buffer resize_image(const image_buffer& source, std::int32_t width, std::int32_t height, resample_filter filter,
                          resample_order order) {
  check_image(source);
  if (width < 1 || height < 1) {
    throw invalid_argument("resize to " + std::to_string(width) + " x " + std::to_string(height) + " pixels, expected at least 1 x 1");
  }
  const bool horizontal = width != source.width, vertical = height != source.height;
  if (filter == resample_filter::nearest) return horizontal || vertical ? resample_nearest(source, width, height) : source;
  const kernel k = kernel_of(filter);
  if (!horizontal && !vertical) return source;
  if (!vertical) return resample_horizontally(source, width, make_weights(source.width, width, k), 0, source.height);
  axis_weights rows = make_weights(source.height, height, k);
  if (!horizontal) return resample_vertically(source, height, rows);
  const axis_weights columns = make_weights(source.width, width, k);

  const std::int64_t fewer_rows = static_cast<std::int64_t>(source.height) - height;
  const std::int64_t fewer_columns = static_cast<std::int64_t>(source.width) - width;
  if (order == resample_order::pillow_13 && fewer_rows > 0 && fewer_rows > 2 * fewer_columns) {
    return resample_horizontally(resample_vertically(source, height, rows), width, columns, 0, height);
  }
  const std::int32_t first = rows.windows.front().first, end = rows.windows.back().first + rows.windows.back().count;
  for (auto& window : rows.windows) window.first -= first;
  return resample_vertically(resample_horizontally(source, width, columns, first, end - first), height, rows);
}

}  // namespace vlbatch::inline v0
