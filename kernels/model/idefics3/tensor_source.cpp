// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/model/idefics3/detail/tensor_source.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0::idefics3_detail {

namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string s = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) s += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

// Names are the file's, so they may be anything: shown on one line.
std::string quoted(std::string_view name) { return "'" + io_detail::shortened(name, 120) + "'"; }

bool is_unread_buffer(std::string_view name) {
  constexpr std::array<std::string_view, 3> suffixes{".rotary_emb.inv_freq", ".rotary_emb.original_inv_freq", ".position_ids"};
  return std::any_of(suffixes.begin(), suffixes.end(), [&](std::string_view s) { return name.ends_with(s); });
}

}  // namespace

tensor_source::tensor_source(const checkpoint& stored, std::string described)
    : stored_(&stored), described_(std::move(described)), taken_(stored.tensors().size(), false) {}

const tensor_view& tensor_source::take(std::string_view name, std::initializer_list<std::int64_t> shape) {
  const tensor_view& t = stored_->get(name, {shape.begin(), shape.size()});
  taken_[static_cast<std::size_t>(&t - stored_->tensors().data())] = true;
  return t;
}

std::vector<float> tensor_source::take_floats(std::string_view name, std::initializer_list<std::int64_t> shape) {
  const tensor_view& t = take(name, shape);
  std::vector<float> values(static_cast<std::size_t>(t.elements));
  t.copy_to(values);
  return values;
}

void tensor_source::allow_copy(std::string_view name, const tensor_view& original) {
  const tensor_view* copy = stored_->find(name);
  if (copy == nullptr) return;  // the usual case; a foreign dtype is refused as left over
  taken_[static_cast<std::size_t>(copy - stored_->tensors().data())] = true;
  const auto both = [&](const std::string& found, const std::string& expected) {
    throw model_error(std::string(copy->file) + ": tensor " + quoted(name) + " is tied to " + quoted(original.name) +
                      " by config.json but has " + found + ", expected " + expected);
  };
  if (!std::equal(copy->shape.begin(), copy->shape.end(), original.shape.begin(), original.shape.end())) {
    both("shape " + shape_text(copy->shape), shape_text(original.shape));
  }
  if (copy->type != original.type) both(std::string("dtype ") + name_of(copy->type), name_of(original.type));
  for (std::int64_t i = 0; i < copy->elements; ++i) {
    const std::size_t size = static_cast<std::size_t>(size_of(copy->type));
    const std::size_t at = static_cast<std::size_t>(i) * size;
    if (std::memcmp(copy->data + at, original.data + at, size) != 0) {
      both("the value " + std::to_string(copy->at(i)) + " at element " + std::to_string(i), std::to_string(original.at(i)));
    }
  }
}

void tensor_source::expect_nothing_left() const {
  const auto refuse = [&](std::string_view file, std::string_view name, const std::string& what) {
    throw model_error(std::string(file) + ": tensor " + quoted(name) + " of " + what +
                      " is no part of the model that config.json describes (" + described_ + ")");
  };
  for (std::size_t i = 0; i < taken_.size(); ++i) {
    const tensor_view& t = stored_->tensors()[i];
    if (!taken_[i] && !is_unread_buffer(t.name)) refuse(t.file, t.name, "shape " + shape_text(t.shape));
  }
  for (const foreign_tensor& f : stored_->foreign_tensors()) {
    if (!is_unread_buffer(f.name)) refuse(f.file, f.name, "dtype " + std::string(f.type));
  }
}

}  // namespace vlbatch::inline v0::idefics3_detail
