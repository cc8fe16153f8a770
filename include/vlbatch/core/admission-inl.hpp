// SPDX-License-Identifier: Apache-2.0
// Definitions of admission.hpp: inline in a header-only build, compiled once in vlbatch::cpu.
#pragma once

#include "vlbatch/core/admission.hpp"
#include "vlbatch/core/linkage.hpp"

namespace vlbatch::inline v0 {

VLBATCH_INLINE void check_request(const request& r) {
  const auto refuse = [](const char* field, const std::string& value, const char* expected) {
    throw invalid_argument(std::string("request: ") + field + " is " + value + ", expected " + expected);
  };
  const sampling_params& s = r.sampling;
  if (r.messages.empty() == (r.prepared == nullptr)) refuse("messages/prepared", r.prepared ? "both" : "neither", "exactly one of them");
  if (r.max_new_tokens < 0) refuse("max_new_tokens", std::to_string(r.max_new_tokens), ">= 0");
  for (const token_bias& b : s.logit_bias) {
    if (!(b.bias < std::numeric_limits<float>::infinity())) refuse("logit_bias", std::to_string(b.bias), "finite or -infinity");
  }
  if (!(s.repetition_penalty > 0.0F) || std::isinf(s.repetition_penalty))
    refuse("repetition_penalty", std::to_string(s.repetition_penalty), "a finite number > 0");
  if (!std::isfinite(s.frequency_penalty)) refuse("frequency_penalty", std::to_string(s.frequency_penalty), "a finite number");
  if (!std::isfinite(s.presence_penalty)) refuse("presence_penalty", std::to_string(s.presence_penalty), "a finite number");
  if (!(s.temperature >= 0.0F) || std::isinf(s.temperature)) refuse("temperature", std::to_string(s.temperature), "a finite number >= 0");
  if (s.top_k < 0) refuse("top_k", std::to_string(s.top_k), ">= 0 (0: all)");
  if (!(s.top_p >= 0.0F && s.top_p <= 1.0F)) refuse("top_p", std::to_string(s.top_p), "in 0..1");
  if (!(s.min_p >= 0.0F && s.min_p <= 1.0F)) refuse("min_p", std::to_string(s.min_p), "in 0..1");
  if (s.top_logprobs < 0) refuse("top_logprobs", std::to_string(s.top_logprobs), ">= 0");
}

VLBATCH_INLINE std::string why_unusable(const sampling_params& s, std::int32_t vocab_size) {
  for (const token_bias& b : s.logit_bias) {
    if (b.token < 0 || b.token >= vocab_size)
      return "logit_bias names token " + std::to_string(b.token) + ", the vocabulary has " + std::to_string(vocab_size);
  }
  if (s.top_logprobs > vocab_size)
    return "top_logprobs is " + std::to_string(s.top_logprobs) + ", the vocabulary has " + std::to_string(vocab_size);
  return {};
}

VLBATCH_INLINE std::string why_impossible(const prepared_request& p, std::int32_t max_new_tokens, const model_info& model,
                                          const limits& lim, std::int64_t max_kv_tokens, std::int64_t encoder_bytes,
                                          std::int64_t bytes_per_embedding) {
  const auto say = [](const char* what, std::int64_t wanted, std::int64_t have) {
    return std::string(what) + " (wanted " + std::to_string(wanted) + ", have " + std::to_string(have) + ")";
  };
  const auto prompt = static_cast<std::int64_t>(p.tokens.size());
  if (prompt == 0) return "the prompt has no tokens";
  for (const std::int32_t t : p.tokens) {
    if (t < 0 || t >= model.vocab_size) return say("a prompt token is outside the vocabulary", t, model.vocab_size);
  }
  const std::int64_t total = prompt + max_new_tokens;
  if (total > model.max_positions) return say("prompt and answer need more positions than the model has", total, model.max_positions);
  const std::int64_t stored = max_new_tokens > 0 ? total - 1 : prompt;
  if (stored > max_kv_tokens) return say("prompt and answer need more KV cache tokens than there are", stored, max_kv_tokens);
  std::int64_t bytes = 0;
  std::int64_t last_end = 0;
  for (const prepared_image& image : p.images) {
    if (image.pixels == nullptr || image.pixels->num_tiles < 1 ||
        static_cast<std::size_t>(image.pixels->num_tiles) != image.tile_positions.size()) {
      return say("an image's tiles and placeholder ranges disagree", image.pixels ? image.pixels->num_tiles : 0,
                 static_cast<std::int64_t>(image.tile_positions.size()));
    }
    if (image.tokens_per_tile != model.tokens_per_tile)
      return say("an image's tokens per tile are not the model's", image.tokens_per_tile, model.tokens_per_tile);
    if (image.first_position < last_end) return say("images overlap or are out of order", image.first_position, last_end);
    last_end = std::int64_t{image.first_position} + image.num_tokens;
    if (last_end > prompt) return say("an image lies beyond the prompt", last_end, prompt);
    std::int64_t tile_end = image.first_position;
    for (const std::int32_t t : image.tile_positions) {
      if (t < tile_end || std::int64_t{t} + image.tokens_per_tile > last_end)
        return say("a tile lies outside its image or overlaps another", t, tile_end);
      tile_end = std::int64_t{t} + image.tokens_per_tile;
    }
    const std::int64_t smallest = image.atomic ? image.embedding_rows() : image.tokens_per_tile;
    if (smallest > lim.max_encoder_tokens) return say("an image needs more than max_encoder_tokens", smallest, lim.max_encoder_tokens);
    if (image.atomic && image.num_tokens > lim.max_num_batched_tokens)
      return say("an uncuttable image needs more than max_num_batched_tokens", image.num_tokens, lim.max_num_batched_tokens);
    bytes += image.embedding_rows() * bytes_per_embedding;
  }
  if (bytes > encoder_bytes) return say("the images need more encoder cache bytes than there are", bytes, encoder_bytes);
  return {};
}

}  // namespace vlbatch::inline v0
