// SPDX-License-Identifier: Apache-2.0
/// \file
/// What a user asks and what comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "vlbatch/core/image_buffer.hpp"
#include "vlbatch/core/prepared_request.hpp"
#include "vlbatch/core/types.hpp"

namespace vlbatch::inline v0 {

/// Text of a message. It is always plain text: characters that spell a placeholder or control token do not become one.
struct text_part {
  std::string text;  ///< UTF-8
};

/// Image of a message: a file to read, the bytes of an encoded picture, or decoded pixels. Shared, so that 200 requests may hold one
/// picture.
struct image_part {
  std::variant<std::string, std::shared_ptr<const std::vector<std::byte>>, std::shared_ptr<const image_buffer>>
      source;  ///< path, bytes or pixels
};

/// Part of a message, in the order it is read.
using message_part = std::variant<text_part, image_part>;

/// One turn of a conversation.
struct message {
  std::string role = "user";        ///< "user", "assistant" or "system"
  std::vector<message_part> parts;  ///< text and images in order
};

/// What is added to the logit of a token before anything else looks at it.
struct token_bias {
  std::int32_t token;  ///< id
  float bias;          ///< finite, or -infinity: the token is never chosen
  friend bool operator==(const token_bias&, const token_bias&) = default;
};

/// How the next token is chosen: the logits are changed by bias and penalties in the order in which they stand here, then divided by the
/// temperature, then the likeliest tokens are kept.
struct sampling_params {
  std::vector<token_bias> logit_bias{};  ///< those of one token add up
  float repetition_penalty = 1.0F;       ///< > 0: logits of tokens in prompt or answer are divided by it if positive, else multiplied
                                         ///< (Keskar et al., CTRL, 2019)
  float frequency_penalty = 0.0F;        ///< subtracted once for each time that a token stands in the answer
  float presence_penalty = 0.0F;         ///< subtracted from tokens that stand in the answer
  float temperature = 0.0F;              ///< 0: greedy
  std::int32_t top_k = 0;                ///< keep the k likeliest tokens; 0: all
  float top_p = 1.0F;             ///< keep the smallest set of likeliest tokens whose probabilities sum to at least this, after top_k
  float min_p = 0.0F;             ///< keep tokens that are at least this times as likely as the likeliest, after top_p
  std::uint64_t seed = 0;         ///< key of the counter-based random numbers: draws depend on (seed, position) alone
  bool logprobs = false;          ///< record the log-probability of each chosen token under the model's own distribution
  std::int32_t top_logprobs = 0;  ///< record this many of the likeliest tokens at each position, under the same distribution
  friend bool operator==(const sampling_params&, const sampling_params&) = default;
};

/// Service level objective of a request; unset parts are no constraint.
struct slo {
  std::optional<duration> ttft;      ///< longest time to the first token, from arrival
  std::optional<duration> tpot;      ///< longest mean time between further tokens
  std::optional<duration> deadline;  ///< longest time to the last token, from arrival
  friend bool operator==(const slo&, const slo&) = default;
};

/// A token as it is produced.
struct token_event {
  seq_id id;              ///< whose
  std::int32_t token;     ///< its id
  std::int32_t index;     ///< 0 for the first generated token
  std::string_view text;  ///< text that became certain with it (may be empty, may hold several tokens' text); valid during the call
  time_point when;        ///< when it existed
};

struct result;

/// One call: a conversation with images, or ready token ids and pixels, and how to go on from it.
struct request {
  std::vector<message> messages;                     ///< conversation; exclusive with `prepared`
  std::shared_ptr<const prepared_request> prepared;  ///< ready tokens and pixels instead of messages
  sampling_params sampling;                          ///< how tokens are chosen
  std::int32_t max_new_tokens = 128;                 ///< upper bound of the answer's length; 0 gives an empty answer
  bool ignore_eos = false;                           ///< go on to max_new_tokens (benchmarks)
  std::vector<std::string> stop;                     ///< the answer ends before the first of these
  std::optional<time_point> arrival;                 ///< when it arrives on the engine's clock; unset: at submit
  int priority = 0;                                  ///< larger is more urgent, for policies that look at it
  client_id client{};                                ///< for fair policies
  session_id session{};                              ///< for policies that look at it
  slo target;                                        ///< for policies that look at it
  std::function<void(const token_event&)> on_token;  ///< called on the thread that steps the engine; a throw fails this request alone
  std::function<void(const result&)> on_finish;      ///< called once, on the thread that steps the engine, whatever the outcome
};

/// How a request ended.
enum class status : std::uint8_t {
  finished,   ///< an answer
  cancelled,  ///< by cancel()
  failed,     ///< something threw; `reason` says what
  refused,    ///< cannot ever run here; `reason` names both numbers
  dropped     ///< by the policy; `reason` says why
};

/// Why a finished answer ends.
enum class finish_reason : std::uint8_t {
  none,    ///< it did not finish
  eos,     ///< the model ended it
  length,  ///< max_new_tokens
  stop     ///< a stop string
};

/// When things happened to a request, on the engine's clock. `never` where it did not.
struct timings {
  time_point arrival = never;          ///< scheduled arrival
  time_point prepare_start = never;    ///< a preparation thread took it up
  time_point prepared = never;         ///< tokens and pixels ready
  time_point encode_start = never;     ///< first tile given to a lane
  time_point encoded = never;          ///< last tile ready
  time_point first_scheduled = never;  ///< first step that computed a token of it
  time_point first_token = never;      ///< TTFT = first_token - arrival
  time_point last_token = never;       ///< last token existed
  time_point finished = never;         ///< result complete
};

/// A token and its log-probability.
struct token_logprob {
  std::int32_t token;  ///< id
  float logprob;       ///< natural logarithm; -infinity for a token that the model rules out
  friend bool operator==(const token_logprob&, const token_logprob&) = default;
};

/// What came of a request.
struct result {
  seq_id id{};                                 ///< as returned by submit
  status outcome = status::failed;             ///< how it ended
  std::string reason;                          ///< one line, empty when finished
  std::vector<std::int32_t> tokens;            ///< generated ids, the end token left out
  std::string text;                            ///< the answer
  finish_reason finish = finish_reason::none;  ///< why it ends
  std::vector<float> logprobs;                 ///< one a token, natural logarithm, if asked
  std::vector<token_logprob> top_logprobs;     ///< `top_logprobs` a token, likeliest first and of equal ones the lower id
  std::int32_t prompt_tokens = 0;              ///< image placeholders included
  std::int32_t preemptions = 0;                ///< how often it was evicted
  timings when;                                ///< when things happened
};

/// Spelling for tables and JSON.
[[nodiscard]] constexpr const char* name_of(status s) noexcept {
  switch (s) {
    case status::finished:
      return "finished";
    case status::cancelled:
      return "cancelled";
    case status::failed:
      return "failed";
    case status::refused:
      return "refused";
    case status::dropped:
      return "dropped";
  }
  return "?";
}

/// Spelling for tables and JSON.
[[nodiscard]] constexpr const char* name_of(finish_reason r) noexcept {
  switch (r) {
    case finish_reason::none:
      return "none";
    case finish_reason::eos:
      return "eos";
    case finish_reason::length:
      return "length";
    case finish_reason::stop:
      return "stop";
  }
  return "?";
}

}  // namespace vlbatch::inline v0
