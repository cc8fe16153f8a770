// SPDX-License-Identifier: Apache-2.0
// Does with a `tokenizer.json` what the `tokenizers` package (huggingface/tokenizers) does: added tokens are cut out first, then the
// pre-tokenisers cut the text between them, then byte pairs are merged within each piece.
#include "vlbatch/io/tokenizer.hpp"

#include <limits>
#include <utility>

#include "io/tokenizer_tables.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/core/utf8.hpp"

namespace vlbatch::inline v0 {

using namespace tokenizer_detail;

struct tokenizer::impl : tokenizer_tables {
  // Memory of one call.
  struct scratch {
    explicit scratch(const tokenizer_tables& t) : ranges(t.steps.size()) {
      for (const split_step& step : t.steps) matches.push_back(step.regex ? step.regex->make_scratch() : nullptr);
    }
    std::vector<std::unique_ptr<pattern::scratch, pattern::scratch_deleter>> matches;  // one a step
    std::vector<std::vector<text_range>> ranges;                                       // one a step
    std::vector<added_match> raw;
    std::vector<added_match> normalised;
    bpe_model::scratch merges;
  };

  // Runs the steps from \p step on over one piece, depth first, and encodes what comes out.
  void encode_piece(std::string_view piece, std::size_t step, bool plain, scratch& s, std::vector<std::int32_t>& out) const {
    if (piece.empty()) return;
    if (step == steps.size()) return model.encode(piece, plain, s.merges, out);
    const split_step& how = steps[step];
    std::string prefixed;
    if (how.add_prefix_space && piece.front() != ' ') {
      prefixed.append(" ").append(piece);
      piece = prefixed;
    }
    if (!how.regex) return encode_piece(piece, step + 1, plain, s, out);
    std::vector<text_range>& ranges = s.ranges[step];
    how.regex->find_all(piece, *s.matches[step], ranges);
    apply_behaviour(how.behaviour, how.invert, ranges);
    for (const text_range& r : ranges) {
      if (!r.match) encode_piece(piece.substr(r.begin, r.end - r.begin), step + 1, plain, s, out);
    }
  }
};

tokenizer::tokenizer(std::unique_ptr<impl> p) noexcept : impl_(std::move(p)) {}
tokenizer::tokenizer(tokenizer&&) noexcept = default;
tokenizer& tokenizer::operator=(tokenizer&&) noexcept = default;
tokenizer::~tokenizer() = default;

tokenizer tokenizer::load(const std::string& path) {
  auto p = std::make_unique<impl>();
  p->read(path);
  return tokenizer(std::move(p));
}

void tokenizer::encode(std::string_view text, special_tokens mode, std::vector<std::int32_t>& out) const {
  // Positions within a piece are 32-bit.
  constexpr std::size_t longest = std::numeric_limits<std::int32_t>::max() / 4;
  if (text.size() > longest) {
    throw invalid_argument("a text of " + std::to_string(text.size()) + " bytes to tokenise, expected at most " + std::to_string(longest));
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    append_utf8_lossy(repaired, text);
    text = repaired;
  }
  const bool plain = mode == special_tokens::as_text;
  impl::scratch s(*impl_);
  impl_->raw_added.split(text, plain, s.raw);
  for (const added_match& r : s.raw) {
    if (r.id >= 0) {
      out.push_back(r.id);
      continue;
    }
    const std::string_view between = text.substr(r.begin, r.end - r.begin);
    impl_->normalised_added.split(between, plain, s.normalised);
    for (const added_match& n : s.normalised) {
      if (n.id >= 0) {
        out.push_back(n.id);
      } else {
        impl_->encode_piece(between.substr(n.begin, n.end - n.begin), 0, plain, s, out);
      }
    }
  }
}

std::vector<std::int32_t> tokenizer::encode(std::string_view text, special_tokens mode) const {
  std::vector<std::int32_t> out;
  encode(text, mode, out);
  return out;
}

std::string_view tokenizer::bytes_of(std::int32_t id) const noexcept {
  if (id < 0 || id >= impl_->size) return {};
  return impl_->bytes[static_cast<std::size_t>(id)];
}

bool tokenizer::is_special(std::int32_t id) const noexcept {
  return id >= 0 && id < impl_->size && impl_->model.special[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> tokenizer::find(std::string_view token) const {
  const auto it = impl_->ids.find(token);
  if (it == impl_->ids.end()) return std::nullopt;
  return it->second;
}

std::string tokenizer::decode(const std::vector<std::int32_t>& ids, bool keep_special) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (keep_special || !is_special(id)) bytes += bytes_of(id);
  }
  std::string out;
  append_utf8_lossy(out, bytes);
  return out;
}

std::int32_t tokenizer::vocab_size() const noexcept { return impl_->size; }

}  // namespace vlbatch::inline v0
