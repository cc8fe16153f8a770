// SPDX-License-Identifier: Apache-2.0
#include "vlbatch/io/tokenizer.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"
#include "vlbatch/core/utf8.hpp"

namespace vlbatch::inline v0 {
namespace {

// The published split pattern of GPT-2's byte-level BPE (Radford et al., 2019): contractions, words, numbers, symbols, spaces.
constexpr const char* gpt2_pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Byte-level BPE writes every byte as a printable character: itself where it is one, else U+0100 onwards in order (Radford et al., 2019).
std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> map{};
  char32_t next = 256;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174);
    map[b] = printable ? b : next++;
  }
  return map;
}

class regex {
 public:
  explicit regex(const std::string& pattern, const std::string& file) {
    int code = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP, &code, &at, nullptr);
    if (code_ == nullptr) throw model_error(fmt::format("{}: pre_tokenizer: pattern \"{}\" is not a regular expression (at {})", file, pattern, at));
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);
  }
  regex(const regex&) = delete;
  regex& operator=(const regex&) = delete;
  ~regex() { pcre2_code_free(code_); }

  // Calls piece(text, is_match) for matches and what lies between them, in order, empty ones left out.
  template <class F>
  void split(std::string_view s, F&& piece) const {
    struct freed {
      pcre2_match_data* data;
      ~freed() { pcre2_match_data_free(data); }
    } const match{pcre2_match_data_create_from_pattern(code_, nullptr)};
    std::size_t at = 0;
    std::size_t done = 0;
    while (at < s.size()) {
      const int n = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(s.data()), s.size(), at, PCRE2_NO_UTF_CHECK, match.data, nullptr);
      if (n < 0) break;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.data);
      if (range[1] == range[0]) {  // an empty match separates nothing
        at = range[1] + decode_utf8(s.substr(range[1])).length;
        continue;
      }
      if (range[0] > done) piece(s.substr(done, range[0] - done), false);
      piece(s.substr(range[0], range[1] - range[0]), true);
      at = done = range[1];
    }
    if (done < s.size()) piece(s.substr(done), false);
  }

 private:
  pcre2_code* code_ = nullptr;
};

// One step of the pre-tokeniser: cuts a piece into pieces.
struct splitter {
  enum class behaviour : std::uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  std::shared_ptr<const regex> pattern;
  behaviour what = behaviour::isolated;
  bool invert = false;
};

struct added_token {
  std::string text;
  std::int32_t id = 0;
  bool special = false, lstrip = false, rstrip = false, single_word = false;
};

struct symbol {
  std::int32_t id;
  std::int32_t previous, next;  // -1: none
  bool alive = true;
};

struct merge_candidate {
  std::int32_t rank;
  std::int32_t left;
  std::int32_t right;
  std::int32_t left_id, right_id;
  bool operator>(const merge_candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
};

std::uint64_t pair_key(std::int32_t a, std::int32_t b) { return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U | static_cast<std::uint32_t>(b); }

bool is_space(char32_t c) { return c == ' ' || (c >= 9 && c <= 13) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000; }

}  // namespace

struct tokenizer::impl {
  std::string file;
  std::vector<std::string> bytes;              // by id: what it stands for
  std::vector<char> special;                   // by id
  std::unordered_map<std::string, std::int32_t> ids;  // spelling in the file -> id
  std::array<std::int32_t, 256> byte_ids{};    // token of a single byte
  struct merge {
    std::int32_t rank, id;
  };
  std::unordered_map<std::uint64_t, merge> merges;
  std::unordered_map<std::string, std::int32_t> whole;  // bytes -> id, for ignore_merges
  bool ignore_merges = false;
  bool prefix_space = false;
  std::vector<splitter> splitters;
  std::vector<added_token> added;                                // longest first
  std::array<std::vector<std::int32_t>, 256> added_by_first{};   // indices into added, longest first

  void read(const std::string& path);
  void read_pre_tokenizer(const nlohmann::json& j);
  void read_added(const nlohmann::json& list);
  void put(std::int32_t id, std::string text);
  void encode_text(std::string_view text, std::vector<std::int32_t>& out) const;
  void split(std::string_view piece, std::size_t step, std::vector<std::int32_t>& out) const;
  void bpe(std::string_view word, std::vector<std::int32_t>& out) const;
};

void tokenizer::impl::put(std::int32_t id, std::string text) {
  if (static_cast<std::size_t>(id) >= bytes.size()) {
    bytes.resize(static_cast<std::size_t>(id) + 1);
    special.resize(bytes.size(), 0);
  }
  bytes[static_cast<std::size_t>(id)] = std::move(text);
}

void tokenizer::impl::read_pre_tokenizer(const nlohmann::json& j) {
  if (j.is_null()) return;
  const json_object o(j, file, "pre_tokenizer.");
  const std::string kind = o.string("type");
  if (kind == "Sequence") {
    for (const auto& inner : o.raw("pretokenizers")) read_pre_tokenizer(inner);
  } else if (kind == "ByteLevel") {
    prefix_space = o.boolean_or("add_prefix_space", true);
    if (o.boolean_or("use_regex", true)) splitters.push_back({std::make_shared<regex>(gpt2_pattern, file)});
  } else if (kind == "Digits") {
    splitters.push_back({std::make_shared<regex>(o.boolean_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", file)});
  } else if (kind == "Split") {
    const nlohmann::json& pattern = o.raw("pattern");
    std::string text;
    if (pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string()) {
      text = pattern["Regex"].get<std::string>();
    } else if (pattern.is_object() && pattern.contains("String") && pattern["String"].is_string()) {
      text = "\\Q" + pattern["String"].get<std::string>() + "\\E";
    } else {
      o.fail("pattern", pattern, "{\"Regex\": ...} or {\"String\": ...}");
    }
    static const std::pair<const char*, splitter::behaviour> names[] = {{"Isolated", splitter::behaviour::isolated},
                                                                       {"Removed", splitter::behaviour::removed},
                                                                       {"MergedWithPrevious", splitter::behaviour::merged_with_previous},
                                                                       {"MergedWithNext", splitter::behaviour::merged_with_next},
                                                                       {"Contiguous", splitter::behaviour::contiguous}};
    const std::string behaviour = o.string("behavior");
    const auto* found = std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return behaviour == n.first; });
    if (found == std::end(names)) o.fail("behavior", behaviour, "a known behaviour");
    splitters.push_back({std::make_shared<regex>(text, file), found->second, o.boolean_or("invert", false)});
  } else {
    throw model_error(fmt::format("{}: pre_tokenizer kind \"{}\" is not supported", file, kind));
  }
}

void tokenizer::impl::read_added(const nlohmann::json& list) {
  for (const auto& entry : list) {
    const json_object o(entry, file, "added_tokens.");
    added_token t{.text = o.string("content"), .id = o.integer("id", 0, (1 << 24) - 1)};
    t.special = o.boolean_or("special", false);
    t.lstrip = o.boolean_or("lstrip", false);
    t.rstrip = o.boolean_or("rstrip", false);
    t.single_word = o.boolean_or("single_word", false);
    if (t.text.empty()) throw model_error(fmt::format("{}: added token {} has no content", file, t.id));
    const auto known = ids.find(t.text);
    if (known != ids.end() && known->second != t.id) throw model_error(fmt::format("{}: added token \"{}\" has id {}, the vocabulary says {}", file, t.text, t.id, known->second));
    put(t.id, t.text);
    special[static_cast<std::size_t>(t.id)] = t.special ? 1 : 0;
    ids[t.text] = t.id;
    added.push_back(std::move(t));
  }
  std::stable_sort(added.begin(), added.end(), [](const added_token& a, const added_token& b) { return a.text.size() > b.text.size(); });
  for (std::size_t i = 0; i < added.size(); ++i) added_by_first[static_cast<unsigned char>(added[i].text[0])].push_back(static_cast<std::int32_t>(i));
}

void tokenizer::impl::read(const std::string& path) {
  file = path;
  const nlohmann::json j = load_json(path);
  const json_object top(j, path);
  if (top.has("normalizer")) throw model_error(fmt::format("{}: normalizer kind \"{}\" is not supported", path, top.object("normalizer").string_or("type", "?")));
  const json_object model = top.object("model");
  const std::string kind = model.string_or("type", "BPE");
  if (kind != "BPE") throw model_error(fmt::format("{}: model kind \"{}\" is not supported, expected BPE", path, kind));
  if (model.boolean_or("byte_fallback", false)) throw model_error(path + ": model.byte_fallback is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.string_or(key, "").empty()) throw model_error(fmt::format("{}: model.{} is not supported", path, key));
  }
  const json_object decoder = top.object("decoder");
  if (decoder.string("type") != "ByteLevel") throw model_error(fmt::format("{}: decoder kind \"{}\" is not supported", path, decoder.string("type")));
  ignore_merges = model.boolean_or("ignore_merges", false);

  const std::array<char32_t, 256> characters = byte_characters();
  std::unordered_map<char32_t, char> byte_of;
  for (std::size_t b = 0; b < 256; ++b) byte_of[characters[b]] = static_cast<char>(static_cast<unsigned char>(b));
  const auto to_bytes = [&](std::string_view spelled) {
    std::string out;
    while (!spelled.empty()) {
      const utf8_step step = decode_utf8(spelled);
      const auto it = byte_of.find(step.code);
      if (it == byte_of.end()) return std::string(spelled);  // not a byte-level token (a special one): itself
      out.push_back(it->second);
      spelled.remove_prefix(step.length);
    }
    return out;
  };
  const nlohmann::json& vocab = model.raw("vocab");
  if (!vocab.is_object() || vocab.empty()) model.fail("vocab", vocab, "an object that is not empty");
  for (const auto& [spelled, id] : vocab.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= (1U << 24U)) throw model_error(fmt::format("{}: model.vocab: id of \"{}\" is {}, expected 0..2^24-1", path, spelled, id.dump()));
    const auto n = id.get<std::int32_t>();
    if (static_cast<std::size_t>(n) < bytes.size() && !bytes[static_cast<std::size_t>(n)].empty()) throw model_error(fmt::format("{}: model.vocab: id {} occurs twice", path, n));
    put(n, to_bytes(spelled));
    ids.emplace(spelled, n);
    if (ignore_merges) whole.emplace(bytes[static_cast<std::size_t>(n)], n);
  }
  for (std::size_t b = 0; b < 256; ++b) {
    std::string spelled;
    append_utf8(spelled, characters[b]);
    const auto it = ids.find(spelled);
    byte_ids[b] = it == ids.end() ? -1 : it->second;
  }
  std::int32_t rank = 0;
  const nlohmann::json& list = model.raw("merges");
  if (!list.is_array()) model.fail("merges", list, "an array");
  for (const auto& entry : list) {
    std::string left, right;
    if (entry.is_string()) {
      const auto text = entry.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space != std::string::npos) left = text.substr(0, space), right = text.substr(space + 1);
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
      left = entry[0].get<std::string>();
      right = entry[1].get<std::string>();
    }
    const auto l = ids.find(left), r = ids.find(right), m = ids.find(left + right);
    if (left.empty() || right.empty() || l == ids.end() || r == ids.end() || m == ids.end()) {
      throw model_error(fmt::format("{}: model.merges[{}] is {}: both parts and their union must be in the vocabulary", path, rank, entry.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 80)));
    }
    merges.try_emplace(pair_key(l->second, r->second), merge{rank, m->second});
    ++rank;
  }
  if (top.has("pre_tokenizer")) read_pre_tokenizer(top.raw("pre_tokenizer"));
  if (top.has("added_tokens")) read_added(top.raw("added_tokens"));
}

// Merges the pair of lowest rank, leftmost first, until none is left.
void tokenizer::impl::bpe(std::string_view word, std::vector<std::int32_t>& out) const {
  if (ignore_merges) {
    const auto it = whole.find(std::string(word));
    if (it != whole.end()) {
      out.push_back(it->second);
      return;
    }
  }
  std::vector<symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    const std::int32_t id = byte_ids[static_cast<unsigned char>(c)];
    if (id < 0) continue;  // a vocabulary without this byte cannot say it
    const auto at = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, at - 1, at + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  const auto sym = [&](std::int32_t i) -> symbol& { return symbols[static_cast<std::size_t>(i)]; };
  std::priority_queue<merge_candidate, std::vector<merge_candidate>, std::greater<>> queue;
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || sym(left).next < 0) return;
    const std::int32_t right = sym(left).next;
    const auto it = merges.find(pair_key(sym(left).id, sym(right).id));
    if (it != merges.end()) queue.push({it->second.rank, left, right, sym(left).id, sym(right).id});
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(symbols.size()); ++i) offer(i);
  while (!queue.empty()) {
    const merge_candidate c = queue.top();
    queue.pop();
    symbol& l = sym(c.left);
    symbol& r = sym(c.right);
    if (!l.alive || !r.alive || l.next != c.right || l.id != c.left_id || r.id != c.right_id) continue;  // overtaken
    l.id = merges.find(pair_key(c.left_id, c.right_id))->second.id;
    l.next = r.next;
    r.alive = false;
    if (l.next >= 0) sym(l.next).previous = c.left;
    offer(l.previous);
    offer(c.left);
  }
  for (std::int32_t i = 0; i >= 0; i = sym(i).next) out.push_back(sym(i).id);
}

void tokenizer::impl::split(std::string_view piece, std::size_t step, std::vector<std::int32_t>& out) const {
  if (piece.empty()) return;
  if (step == splitters.size()) {
    bpe(piece, out);
    return;
  }
  const splitter& s = splitters[step];
  using b = splitter::behaviour;
  if (s.what == b::isolated) {
    s.pattern->split(piece, [&](std::string_view part, bool) { split(part, step + 1, out); });
    return;
  }
  std::vector<std::pair<std::string_view, bool>> parts;  // text, separator?
  s.pattern->split(piece, [&](std::string_view part, bool match) { parts.emplace_back(part, match != s.invert); });
  const auto join = [](std::string_view a, std::string_view c) { return std::string_view(a.data(), a.size() + c.size()); };  // neighbours in memory
  std::vector<std::pair<std::string_view, bool>> cut;
  for (const auto& [text, separator] : parts) {
    const bool previous_separates = !cut.empty() && cut.back().second;
    if (s.what == b::removed) {
      if (!separator) cut.emplace_back(text, false);
    } else if (s.what == b::merged_with_previous && separator && !cut.empty() && !previous_separates) {
      cut.back() = {join(cut.back().first, text), true};
    } else if (s.what == b::merged_with_next && !separator && previous_separates) {
      cut.back() = {join(cut.back().first, text), false};
    } else if (s.what == b::contiguous && separator && previous_separates) {
      cut.back().first = join(cut.back().first, text);
    } else {
      cut.emplace_back(text, separator);
    }
  }
  for (const auto& [text, separator] : cut) split(text, step + 1, out);
}

void tokenizer::impl::encode_text(std::string_view text, std::vector<std::int32_t>& out) const {
  if (text.empty()) return;
  if (prefix_space && text[0] != ' ') {
    split(" " + std::string(text), 0, out);
  } else {
    split(text, 0, out);
  }
}

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
  std::string clean;
  if (complete_utf8_prefix(text) != text.size() || [&] {
        for (std::string_view s = text; !s.empty();) {
          const utf8_step step = decode_utf8(s);
          if (step.what != utf8_step::kind::valid) return true;
          s.remove_prefix(step.length);
        }
        return false;
      }()) {
    append_utf8_lossy(clean, text);
    text = clean;
  }
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const added_token* found = nullptr;
    for (const std::int32_t i : impl_->added_by_first[static_cast<unsigned char>(text[at])]) {
      const added_token& t = impl_->added[static_cast<std::size_t>(i)];
      if ((t.special && mode == special_tokens::as_text) || text.substr(at, t.text.size()) != t.text) continue;
      if (t.single_word) {
        const auto word = [](unsigned char c) { return c == '_' || c >= 0x80U || (std::isalnum(c) != 0); };
        const bool left = at > 0 && word(static_cast<unsigned char>(text[at - 1]));
        const bool right = at + t.text.size() < text.size() && word(static_cast<unsigned char>(text[at + t.text.size()]));
        if (left || right) continue;
      }
      found = &t;
      break;
    }
    if (found == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + found->text.size();
    if (found->lstrip) {  // takes the white space before it
      while (begin > done) {
        std::size_t before = begin - 1;
        while (before > done && (static_cast<unsigned char>(text[before]) & 0xC0U) == 0x80U) --before;
        if (!is_space(decode_utf8(text.substr(before)).code)) break;
        begin = before;
      }
    }
    while (found->rstrip && end < text.size() && is_space(decode_utf8(text.substr(end)).code)) end += decode_utf8(text.substr(end)).length;
    impl_->encode_text(text.substr(done, begin - done), out);
    out.push_back(found->id);
    at = done = end;
  }
  impl_->encode_text(text.substr(done), out);
}

std::vector<std::int32_t> tokenizer::encode(std::string_view text, special_tokens mode) const {
  std::vector<std::int32_t> out;
  encode(text, mode, out);
  return out;
}

std::string_view tokenizer::bytes_of(std::int32_t id) const noexcept {
  return id < 0 || static_cast<std::size_t>(id) >= impl_->bytes.size() ? std::string_view{} : std::string_view(impl_->bytes[static_cast<std::size_t>(id)]);
}
bool tokenizer::is_special(std::int32_t id) const noexcept {
  return id >= 0 && static_cast<std::size_t>(id) < impl_->special.size() && impl_->special[static_cast<std::size_t>(id)] != 0;
}
std::optional<std::int32_t> tokenizer::find(std::string_view token) const {
  const auto it = impl_->ids.find(std::string(token));
  return it == impl_->ids.end() ? std::nullopt : std::optional(it->second);
}
std::string tokenizer::decode(const std::vector<std::int32_t>& ids, bool keep_special) const {
  std::string raw, out;
  for (const std::int32_t id : ids) {
    if (keep_special || !is_special(id)) raw += bytes_of(id);
  }
  append_utf8_lossy(out, raw);
  return out;
}
std::int32_t tokenizer::vocab_size() const noexcept { return static_cast<std::int32_t>(impl_->bytes.size()); }

}  // namespace vlbatch::inline v0
