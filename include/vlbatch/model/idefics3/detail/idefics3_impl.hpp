// SPDX-License-Identifier: Apache-2.0
/// \file
/// Definitions of idefics3<Backend>. Included only where the template is instantiated: kernels/instances, or once by a user's own backend.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "vlbatch/model/idefics3/detail/decoder.hpp"
#include "vlbatch/model/idefics3/detail/tensor_source.hpp"
#include "vlbatch/model/idefics3/detail/vision_tower.hpp"
#include "vlbatch/model/idefics3/detail/weights.hpp"
#include "vlbatch/model/idefics3/idefics3.hpp"
#include "vlbatch/model/idefics3/processor.hpp"

namespace vlbatch::inline v0 {

template <class Backend>
struct idefics3<Backend>::impl {
  Backend device;
  idefics3_processor processor;  // holds the configuration too
  model_info info;
  idefics3_detail::vision_weights<Backend> vision;
  idefics3_detail::text_weights<Backend> text;
};

template <class Backend>
struct idefics3<Backend>::workspace::impl {
  typename Backend::stream stream;
  idefics3_detail::vision_scratch vision;
  idefics3_detail::text_scratch text;
  matrix_view<const float> logits;
};

template <class Backend>
idefics3<Backend>::workspace::workspace(std::unique_ptr<impl> p) noexcept : impl_(std::move(p)) {}
template <class Backend>
idefics3<Backend>::workspace::workspace(workspace&&) noexcept = default;
template <class Backend>
typename idefics3<Backend>::workspace& idefics3<Backend>::workspace::operator=(workspace&&) noexcept = default;
template <class Backend>
idefics3<Backend>::workspace::~workspace() = default;

template <class Backend>
idefics3<Backend>::idefics3(std::shared_ptr<const impl> p) noexcept : impl_(std::move(p)) {}

template <class Backend>
idefics3<Backend> idefics3<Backend>::load(const std::string& folder, const options& opts) {
  // Small files first: a wrong folder is refused before gigabytes are read.
  idefics3_processor processor = idefics3_processor::load(folder);
  const idefics3_config& config = processor.config();
  const idefics3_text_config& t = config.text;
  model_info info{
      .name = std::filesystem::weakly_canonical(folder).filename().string(),
      .kv = {.num_layers = t.num_hidden_layers, .num_kv_heads = t.num_key_value_heads, .head_dim = t.head_dim, .type = dtype::f32},
      .hidden_size = t.hidden_size,
      .vocab_size = t.vocab_size,
      .max_positions = t.max_position_embeddings,
      .position_axes = 1,
      .tokens_per_tile = config.tokens_per_tile(),
      .eos_tokens = config.eos_token_ids};

  const checkpoint stored = checkpoint::open(folder);
  idefics3_detail::tensor_source source(stored, std::to_string(t.num_hidden_layers) + " text layers, " +
                                                    std::to_string(config.vision.num_hidden_layers) + " vision layers, " +
                                                    (t.tie_word_embeddings ? "tied" : "untied") + " lm_head");
  idefics3_detail::weight_loader<Backend> loader(opts.device, opts.format, config, source);
  auto vision = loader.vision(opts.patch_positions == patch_position_rule::grid);
  auto text = loader.text();
  source.expect_nothing_left();
  return idefics3(
      std::make_shared<const impl>(impl{opts.device, std::move(processor), std::move(info), std::move(vision), std::move(text)}));
}

template <class Backend>
const model_info& idefics3<Backend>::info() const noexcept {
  return impl_->info;
}
template <class Backend>
const idefics3_config& idefics3<Backend>::config() const noexcept {
  return impl_->processor.config();
}
template <class Backend>
const tokenizer& idefics3<Backend>::text() const noexcept {
  return impl_->processor.text();
}
template <class Backend>
std::int64_t idefics3<Backend>::decoder_bytes() const noexcept {
  return idefics3_detail::bytes_of_pass(impl_->text);
}

template <class Backend>
prepared_request idefics3<Backend>::prepare(const request& r) const {
  return impl_->processor.prepare(r);
}
template <class Backend>
typename idefics3<Backend>::workspace idefics3<Backend>::make_workspace(std::int32_t threads) const {
  using inner = typename workspace::impl;
  return workspace(std::unique_ptr<inner>(new inner{impl_->device.make_stream(threads), {}, {}, {}}));
}
template <class Backend>
std::shared_ptr<std::byte> idefics3<Backend>::allocate(std::int64_t bytes) const {
  return impl_->device.allocate(bytes);
}

template <class Backend>
void idefics3<Backend>::encode(workspace& w, std::span<const tile_input> tiles) const {
  idefics3_detail::vision_tower<Backend>(impl_->device, config(), impl_->vision).encode(w.impl_->stream, w.impl_->vision, tiles);
}
template <class Backend>
typename idefics3<Backend>::ticket idefics3<Backend>::forward(workspace& w, const forward_input& in, const paged_kv_view& kv) const {
  const idefics3_detail::decoder<Backend> decoder(impl_->device, config().text, impl_->text);
  w.impl_->logits = decoder.forward(w.impl_->stream, w.impl_->text, in, kv);
  return {};
}
template <class Backend>
void idefics3<Backend>::wait(workspace&, ticket) const {}
template <class Backend>
matrix_view<const float> idefics3<Backend>::logits(workspace& w) const {
  return w.impl_->logits;
}
template <class Backend>
void idefics3<Backend>::append_text(std::int32_t token, std::string& out) const {
  const tokenizer& t = text();
  if (!t.is_special(token)) out += t.bytes_of(token);
}

}  // namespace vlbatch::inline v0
