// SPDX-License-Identifier: Apache-2.0
// A request in random company: what is drawn, how it is run, and what must not change.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "vlbatch/batching/continuous.hpp"
#include "vlbatch/batching/padded_static.hpp"
#include "vlbatch/batching/sequential.hpp"
#include "vlbatch/batching/static_batching.hpp"
#include "vlbatch/engine.hpp"
#include "vlbatch/kv/contiguous.hpp"
#include "vlbatch/kv/paged.hpp"
#include "vlbatch/vision/async_vision.hpp"

namespace vlbatch::testing {

/// One request of a drawn company.
struct member {
  int prompt = 0;        ///< index into the prompts
  int new_tokens = 0;    ///< at most
  int sampling = 0;      ///< index into the ways of choosing tokens
  int steps_after = 0;   ///< steps between its submission and the next one's
  int cancel_after = 0;  ///< tokens after which it is cancelled; 0: never. Nobody looks at its own answer then
  friend std::ostream& operator<<(std::ostream& out, const member& m) {
    return out << "{prompt " << m.prompt << ", " << m.new_tokens << " tokens, sampling " << m.sampling << ", " << m.steps_after
               << " steps after it" << (m.cancel_after > 0 ? ", cancelled at " + std::to_string(m.cancel_after) : "") << "}";
  }
};

/// An engine and what it is asked.
struct company {
  int policy = 0;  ///< sequential, static_batching, padded_static, continuous
  bool paged = false;
  bool async = false;
  int block_size = 16;
  int rows = 512;  ///< max_num_batched_tokens: the longest chunk
  int max_num_seqs = 1;
  int threads = 1;
  int preparation_threads = 0;
  int spare_blocks = 0;  ///< blocks (or contiguous sequences) beyond what the largest request needs
  int spare_tiles = 0;   ///< tiles of encoder cache beyond what the largest request needs
  bool reuse = true;     ///< of embeddings
  std::vector<member> members{};
  friend std::ostream& operator<<(std::ostream& out, const company& c) {
    constexpr const char* names[] = {"sequential", "static_batching", "padded_static", "continuous"};
    out << names[c.policy] << (c.paged ? ", paged, blocks of " + std::to_string(c.block_size) : ", contiguous")
        << (c.async ? ", async" : ", inline") << ", rows " << c.rows << ", sequences " << c.max_num_seqs << ", threads " << c.threads << "+"
        << c.preparation_threads << ", spare blocks " << c.spare_blocks << ", spare tiles " << c.spare_tiles
        << (c.reuse ? "" : ", no reuse");
    for (const member& m : c.members) out << "\n  " << m;
    return out;
  }
};

inline constexpr int ways_of_sampling = 12;
/// Way \p n of choosing tokens. \p vocab: ids are below it.
inline sampling_params way_of_sampling(int n, int prompt, std::int32_t vocab) {
  const auto seed = static_cast<std::uint64_t>(prompt * 1000 + n);
  switch (n) {
    case 1:
      return {.logprobs = true};
    case 2:
      return {.logprobs = true, .top_logprobs = 5};
    case 3:
      return {.temperature = 0.8F, .seed = seed};
    case 4:
      return {.temperature = 1.0F, .top_k = 20, .seed = seed, .logprobs = true};
    case 5:
      return {.temperature = 1.2F, .top_p = 0.9F, .seed = seed};
    case 6:
      return {.temperature = 1.0F, .min_p = 0.02F, .seed = seed, .top_logprobs = 3};
    case 7:
      return {.repetition_penalty = 1.3F, .logprobs = true};
    case 8:
      return {.frequency_penalty = 0.3F, .presence_penalty = 0.5F, .temperature = 0.7F, .seed = seed};
    case 9:
      return {.logit_bias = {{vocab - 1, 2.0F}, {1, -std::numeric_limits<float>::infinity()}}, .temperature = 0.5F, .seed = seed};
    default:
      return {};
  }
}

/// Draws a company that asks \p prompts prompts. Shrinks to few members, small numbers, the sequential policy and one thread.
inline rc::Gen<company> any_company(int prompts, int most_tokens, int most_members, std::vector<int> chunk_rows = {512, 64, 7, 1}) {
  using rc::gen::element;
  using rc::gen::inRange;
  using rc::gen::set;
  const auto one = rc::gen::build<member>(set(&member::prompt, inRange(0, prompts)),
                                          set(&member::new_tokens, rc::gen::oneOf(inRange(0, most_tokens + 1), rc::gen::just(most_tokens))),
                                          set(&member::sampling, inRange(0, ways_of_sampling)),
                                          set(&member::steps_after, rc::gen::weightedElement<int>({{6, 0}, {2, 1}, {1, 5}})),
                                          set(&member::cancel_after, rc::gen::weightedElement<int>({{12, 0}, {1, 1}, {1, 3}})));
  const auto many = rc::gen::mapcat(element(most_members, most_members, most_members / 2, most_members / 4, 3), [one](int n) {
    return rc::gen::resize(n, rc::gen::nonEmpty(rc::gen::container<std::vector<member>>(one)));
  });
  return rc::gen::build<company>(
      set(&company::policy, element(0, 1, 2, 3, 3, 3)), set(&company::paged), set(&company::async),
      set(&company::block_size, element(16, 16, 32, 256)), set(&company::rows, rc::gen::elementOf(std::move(chunk_rows))),
      set(&company::max_num_seqs, element(1, 2, 5, 16, 16, 64)), set(&company::threads, element(1, 2)),
      set(&company::preparation_threads, element(0, 1, 2)), set(&company::spare_blocks, element(0, 1, 2, 4, 64)),
      set(&company::spare_tiles, element(0, 1, 8)), set(&company::reuse, element(true, false)), set(&company::members, many));
}

/// Checks \p property \p times as often as RC_PARAMS says (max_success), and prints the seed.
template <class Property>
::testing::AssertionResult holds(const std::string& name, int times, Property&& property) {
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess *= times;
  const rc::detail::TestMetadata about{name, name};
  const auto r = rc::detail::checkTestable(std::forward<Property>(property), about, params);
  std::ostringstream text;
  rc::detail::printResultMessage(r, text);
  std::cout << "seed " << params.seed << ": " << text.str() << std::endl;
  if (r.template is<rc::detail::SuccessResult>()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << name << ", seed " << params.seed << ": " << text.str();
}

/// A model and prompts for it.
template <class Model>
class crowd {
 public:
  crowd(Model model, std::vector<std::shared_ptr<const prepared_request>> prompts)
      : model_(std::move(model)), prompts_(std::move(prompts)) {}

  [[nodiscard]] int prompts() const { return static_cast<int>(prompts_.size()); }

  /// Runs \p c and compares every answer with the one that its request gets alone.
  void check(const company& c) {
    switch (c.policy) {
      case 0:
        return check<sequential>(c);
      case 1:
        return check<static_batching>(c);
      case 2:
        return check<padded_static>(c);
      default:
        return check<continuous>(c);
    }
  }

 private:
  template <class Policy>
  void check(const company& c) {
    const needs n = needs_of(c);
    const auto sequences = 1 + std::min(c.spare_blocks, 16);
    const auto cached = [&](auto vision) {
      if (c.paged)
        check<Policy>(c, paged_kv{{.bytes = 0, .blocks = ceil_div(n.tokens, c.block_size) + c.spare_blocks, .block_size = c.block_size}}, n,
                      vision);
      else
        check<Policy>(c, contiguous_kv{{.bytes = 0, .sequences = sequences, .tokens_per_sequence = n.tokens}}, n, vision);
    };
    c.async ? cached(async_vision{.threads = 1}) : cached(inline_vision{});
  }

  struct needs {
    std::int32_t tokens = 1;  // of KV, of the largest request
    std::int32_t rows = 1;    // of the largest picture that must not be cut
    std::int32_t tiles = 1;
    std::int32_t rows_of_tiles = 1;
  };
  [[nodiscard]] needs needs_of(const company& c) const {
    needs n;
    n.rows_of_tiles = model_.info().tokens_per_tile;
    for (const member& m : c.members) {
      const prepared_request& p = *prompts_[static_cast<std::size_t>(m.prompt)];
      n.tokens = std::max(n.tokens, static_cast<std::int32_t>(p.tokens.size()) + std::max(m.new_tokens - 1, 0));
      std::int32_t tiles = 0;
      for (const prepared_image& i : p.images) {
        tiles += i.pixels->num_tiles;
        if (i.atomic) n.rows = std::max(n.rows, i.num_tokens);
        if (i.atomic) n.rows_of_tiles = std::max(n.rows_of_tiles, static_cast<std::int32_t>(i.embedding_rows()));
      }
      n.tiles = std::max(n.tiles, tiles);
    }
    return n;
  }

  [[nodiscard]] request request_of(const member& m) const {
    request r;
    r.prepared = prompts_[static_cast<std::size_t>(m.prompt)];
    r.max_new_tokens = m.new_tokens;
    r.sampling = way_of_sampling(m.sampling, m.prompt, model_.info().vocab_size);
    r.ignore_eos = m.sampling == 10;
    if (m.sampling == 11) r.stop = {"e", "~", "a "};
    return r;
  }

  // The answer in an engine of its own that never does anything else.
  const result& alone(const member& m) {
    const auto [it, fresh] = alone_.try_emplace(std::tuple(m.prompt, m.new_tokens, m.sampling));
    if (fresh) {
      engine e{model_, contiguous_kv{{.bytes = 0, .sequences = 1}},
               sequential{{.max_num_batched_tokens = 4096, .max_encoder_tokens = 4096}}, parts<>{},
               engine_options{.threads = 1, .preparation_threads = 0}};
      it->second = e.generate(std::vector{request_of(m)})[0];
    }
    return it->second;
  }

  template <class Policy, class Kv, class Vision>
  void check(const company& c, Kv kv, const needs& n, Vision vision) {
    const std::int64_t tile_bytes = std::int64_t{model_.info().tokens_per_tile} * model_.info().hidden_size * 4;
    const std::int64_t encoder_bytes = (n.tiles + c.spare_tiles) * tile_bytes;
    engine e{model_, std::move(kv),
             Policy{limits{.max_num_seqs = c.max_num_seqs,
                           .max_num_batched_tokens = std::max(c.rows, n.rows),
                           .max_encoder_tokens = std::max(n.rows_of_tiles, c.rows)}},
             parts<Vision>{vision},
             engine_options{.threads = c.async ? std::max(c.threads, 2) : c.threads,
                            .preparation_threads = c.preparation_threads,
                            .encoder_cache = {.bytes = encoder_bytes, .reuse = c.reuse}}};
    std::vector<seq_id> ids;
    for (const member& m : c.members) {
      request r = request_of(m);
      const auto self = std::make_shared<seq_id>();
      if (m.cancel_after > 0) {
        r.on_token = [&e, self, at = m.cancel_after - 1](const token_event& t) {
          if (t.index == at) e.cancel(*self);
        };
      }
      ids.push_back(*self = e.submit(std::move(r)));
      for (int i = 0; i < m.steps_after && !e.idle(); ++i) e.step();
    }
    e.run_until_idle();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::optional<result> got = e.take(ids[i]);
      RC_ASSERT(got.has_value());
      const result& expected = alone(c.members[i]);
      if (c.members[i].cancel_after > 0 && got->outcome == status::cancelled) {
        RC_ASSERT(got->tokens.size() <= expected.tokens.size());
        RC_ASSERT(std::equal(got->tokens.begin(), got->tokens.end(), expected.tokens.begin()));
        continue;
      }
      if (got->outcome != status::finished) RC_FAIL("request " + std::to_string(i) + ": " + got->reason);
      if (got->tokens != expected.tokens) RC_LOG() << "request " << i << " of" << std::endl << c << std::endl;
      RC_ASSERT(got->tokens == expected.tokens);
      RC_ASSERT(got->text == expected.text);
      RC_ASSERT(got->finish == expected.finish);
      RC_ASSERT(got->logprobs == expected.logprobs);
      RC_ASSERT(got->top_logprobs == expected.top_logprobs);
      RC_ASSERT(got->prompt_tokens == expected.prompt_tokens);
    }
    RC_ASSERT(e.kv().usage().blocks_used == 0);
    RC_ASSERT(e.kv().usage().sequences == 0);
    RC_ASSERT(e.state().table.size() == 0);
    RC_ASSERT(e.core().cache.peak_bytes() <= encoder_bytes);
    while (e.state().lanes[0].tiles_in_flight > 0) e.step();  // of pictures whose requests ended before them
    e.core().cache.clear_unused();
    RC_ASSERT(e.core().cache.used_bytes() == 0);
    RC_CLASSIFY(e.stats().preemptions > 0, "preemptions");
    RC_CLASSIFY(c.members.size() > 8, "more than 8 requests");
    RC_CLASSIFY(c.members.size() > 32, "more than 32 requests");
  }

  Model model_;
  std::vector<std::shared_ptr<const prepared_request>> prompts_;
  std::map<std::tuple<int, int, int>, result> alone_;
};

}  // namespace vlbatch::testing
