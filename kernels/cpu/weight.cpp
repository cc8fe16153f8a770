// SPDX-License-Identifier: Apache-2.0
#include "cpu/weight.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/memory.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0 {
namespace {

[[nodiscard]] std::string describe(const tensor_view& t) {
  std::string text = std::string(t.file) + ": tensor '" + std::string(t.name) + "' [";
  for (std::size_t i = 0; i < t.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(t.shape[i]);
  return text + "] " + name_of(t.type);
}

struct extent {
  std::int32_t out = 0;
  std::int32_t in = 0;
};

[[nodiscard]] extent matrix_extent(const tensor_view& t) {
  if (t.shape.size() < 2) throw model_error(describe(t) + ": a weight needs at least 2 axes, found " + std::to_string(t.shape.size()));
  if (t.type == dtype::i8) throw model_error(describe(t) + ": a weight must be f32, f16 or bf16");
  constexpr std::int64_t limit = std::numeric_limits<std::int32_t>::max() - panel_width;  // sizes are rounded up
  std::int64_t in = 1;
  for (std::size_t i = 1; i < t.shape.size(); ++i) {
    if (t.shape[i] < 1 || in > limit / t.shape[i]) throw model_error(describe(t) + ": sizes must be in [1, " + std::to_string(limit) + "]");
    in *= t.shape[i];
  }
  const std::int64_t out = t.shape[0];
  if (out < 1 || out > limit) throw model_error(describe(t) + ": sizes must be in [1, " + std::to_string(limit) + "]");
  if (out * in != t.elements) {
    throw model_error(describe(t) + ": holds " + std::to_string(t.elements) + " elements, its shape says " + std::to_string(out * in));
  }
  return {static_cast<std::int32_t>(out), static_cast<std::int32_t>(in)};
}

// One element of a checkpoint, whose data may be unaligned.
template <class T>
[[nodiscard]] T raw(const tensor_view& t, std::int64_t i) noexcept {
  T value;
  std::memcpy(&value, t.data + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void convert_row(const tensor_view& t, std::int64_t first, std::span<float> out) {
  const auto n = static_cast<std::int64_t>(out.size());
  if (t.type == dtype::f32) {
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = raw<float>(t, first + k);
  } else if (t.type == dtype::bf16) {
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = bf16_to_f32(raw<std::uint16_t>(t, first + k));
  } else {
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = f16_to_f32(raw<std::uint16_t>(t, first + k));
  }
}

void convert_row(const tensor_view& t, std::int64_t first, std::span<std::uint16_t> out) {
  const auto n = static_cast<std::int64_t>(out.size());
  if (t.type == dtype::bf16) {
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = raw<std::uint16_t>(t, first + k);
  } else if (t.type == dtype::f32) {
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = f32_to_bf16(raw<float>(t, first + k));
  } else {
    for (std::int64_t k = 0; k < n; ++k) out[static_cast<std::size_t>(k)] = f32_to_bf16(f16_to_f32(raw<std::uint16_t>(t, first + k)));
  }
}

template <class T>
void fill(cpu::weight::impl& w, std::span<const tensor_view* const> ts, T* data) {
  std::vector<T> row(static_cast<std::size_t>(w.in));
  std::int32_t n = 0;
  for (const tensor_view* t : ts) {
    for (std::int32_t r = 0; r < static_cast<std::int32_t>(t->shape[0]); ++r, ++n) {
      convert_row(*t, static_cast<std::int64_t>(r) * w.in, row);
      for (std::int32_t k = 0; k < w.in; ++k) data[w.index(n, k)] = row[static_cast<std::size_t>(k)];
    }
  }
}

}  // namespace

std::shared_ptr<const cpu::weight::impl> pack_weight(std::span<const tensor_view* const> ts, weight_format format, weight_layout layout) {
  if (ts.empty()) throw model_error("cpu: a stacked weight needs at least 1 tensor, found 0");
  auto w = std::make_shared<cpu::weight::impl>();
  w->layout = layout;
  w->in = matrix_extent(*ts[0]).in;
  bool all_bf16 = true;
  std::int64_t out = 0;
  for (const tensor_view* t : ts) {
    const extent e = matrix_extent(*t);
    if (e.in != w->in) throw model_error(describe(*t) + " cannot be stacked below " + describe(*ts[0]) + ": the inputs differ");
    all_bf16 = all_bf16 && t->type == dtype::bf16;
    out += e.out;
  }
  if (out > std::numeric_limits<std::int32_t>::max() - panel_width) {
    throw model_error(describe(*ts[0]) + ": stacked weight has " + std::to_string(out) + " outputs, at most " +
                      std::to_string(std::numeric_limits<std::int32_t>::max() - panel_width) + " are possible");
  }
  w->out = static_cast<std::int32_t>(out);
  // A stack of mixed types is kept exact.
  w->type = format == weight_format::bf16 || (format == weight_format::as_stored && all_bf16) ? dtype::bf16 : dtype::f32;
  if (layout == weight_layout::tiles && w->type == dtype::f32) w->layout = weight_layout::panels;
  auto data = allocate_zeroed(w->stored() * size_of(w->type));
  if (w->type == dtype::bf16) {
    fill(*w, ts, static_cast<std::uint16_t*>(static_cast<void*>(data.get())));
  } else {
    fill(*w, ts, static_cast<float*>(static_cast<void*>(data.get())));
  }
  w->data = std::move(data);
  return w;
}

}  // namespace vlbatch::inline v0
