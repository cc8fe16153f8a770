// SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer_tables.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "io/json_file.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0::tokenizer_detail {
namespace {

using io_detail::json_blame;
using io_detail::json_node;
using io_detail::shortened;

constexpr std::int64_t max_file_bytes = 256LL * 1024 * 1024;
constexpr std::int64_t max_id = (1 << 24) - 1;

// Tables are sized by the highest id. Vocabularies have holes, but memory is to follow the size of the file, not a number in it.
std::int64_t most_ids(std::size_t tokens) { return (1 << 16) + 16 * static_cast<std::int64_t>(tokens); }

std::string in_quotes(std::string_view token) { return '"' + shortened(token) + '"'; }

// GPT-2's printable stand-ins for bytes: those that print in Latin-1 stand for themselves, the others for U+0100 on. Source: openai/gpt-2,
// encoder.py.
class byte_alphabet {
 public:
  byte_alphabet() {
    byte_of_.fill(-1);
    std::size_t next = 0x100;
    for (std::size_t b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      byte_of_[prints ? b : next++] = static_cast<std::int16_t>(b);
    }
  }
  // Bytes that the valid UTF-8 \p spelled stands for; nothing if some character stands for no byte.
  std::optional<std::string> bytes(std::string_view spelled) const {
    std::string out;
    for (std::size_t at = 0; at < spelled.size();) {
      const auto [c, length] = character_at(spelled, at);
      if (c >= byte_of_.size() || byte_of_[c] < 0) return std::nullopt;
      out += static_cast<char>(byte_of_[c]);
      at += length;
    }
    return out;
  }

 private:
  std::array<std::int16_t, 0x144> byte_of_{};  // by code point, -1: stands for no byte
};

[[noreturn]] void unsupported(const json_node& node, const std::string& what) {
  throw model_error(node.file() + ": " + node.path() + ": " + what + " is not supported");
}

// Kind of a component.
std::string kind_of(const json_node& node) { return node.object().at("type").string(); }

split_step read_split(const json_node& node, const std::string& where) {
  static constexpr std::pair<const char*, split_behaviour> names[] = {{"Removed", split_behaviour::removed},
                                                                      {"Isolated", split_behaviour::isolated},
                                                                      {"MergedWithPrevious", split_behaviour::merged_with_previous},
                                                                      {"MergedWithNext", split_behaviour::merged_with_next},
                                                                      {"Contiguous", split_behaviour::contiguous}};
  split_step step;
  const std::string& wanted = node.at("behavior").string();
  const auto* found = std::find_if(std::begin(names), std::end(names), [&](const auto& n) { return wanted == n.first; });
  if (found == std::end(names)) unsupported(node.at("behavior"), in_quotes(wanted));
  step.behaviour = found->second;
  step.invert = node.boolean_or("invert", false);
  const json_node what = node.at("pattern").object();
  if (what.has("String")) {
    const std::string& text = what.at("String").string();
    if (!text.empty()) step.regex = std::make_shared<pattern>(pattern::literal(text, where));
  } else {
    step.regex = std::make_shared<pattern>(what.at("Regex").string(), where);
  }
  return step;
}

void read_pre_tokenizer(const json_node& node, std::vector<split_step>& steps, bool& byte_level) {
  const std::string kind = kind_of(node);
  const std::string where = node.file() + ": " + node.path();
  if (kind == "Sequence") {
    const json_node parts = node.at("pretokenizers");
    for (std::size_t i = 0; i < parts.array_size(); ++i) read_pre_tokenizer(parts.at(i), steps, byte_level);
    return;
  }
  // ByteLevel turns text into stand-ins for bytes, and a later step would look at those.
  if (byte_level) unsupported(node, "kind " + in_quotes(kind) + " after \"ByteLevel\"");
  split_step step;
  if (kind == "ByteLevel") {
    byte_level = true;
    step.add_prefix_space = node.boolean_or("add_prefix_space", true);
    if (node.boolean_or("use_regex", true)) step.regex = std::make_shared<pattern>(gpt2_pattern, where);
  } else if (kind == "Digits") {
    step.regex = std::make_shared<pattern>(node.boolean_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", where);
  } else if (kind == "Split") {
    step = read_split(node, where);
  } else {
    unsupported(node, "kind " + in_quotes(kind));
  }
  steps.push_back(std::move(step));
}

// Components that must be of a kind that changes nothing here.
void check_harmless(const json_node& node, const char* parts, std::initializer_list<std::string_view> kinds) {
  const std::string kind = kind_of(node);
  if (kind == "Sequence") {
    const json_node list = node.at(parts);
    for (std::size_t i = 0; i < list.array_size(); ++i) check_harmless(list.at(i), parts, kinds);
  } else if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) {
    unsupported(node, "kind " + in_quotes(kind));
  }
}

void check_other_components(const json_node& root) {
  if (root.has("normalizer")) check_harmless(root.at("normalizer"), "normalizers", {});
  // These only put control tokens around a text, and a prompt brings its own.
  if (root.has("post_processor")) {
    check_harmless(root.at("post_processor"), "processors", {"ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"});
  }
  if (!root.has("decoder")) throw model_error(root.file() + ": decoder: null is not supported, expected kind \"ByteLevel\"");
  check_harmless(root.at("decoder"), "decoders", {"ByteLevel"});
}

std::vector<added_token> read_added(const json_node& root) {
  std::vector<added_token> out;
  if (!root.has("added_tokens")) return out;
  const json_node list = root.at("added_tokens");
  for (std::size_t i = 0; i < list.array_size(); ++i) {
    const json_node node = list.at(i).object();
    added_token t;
    t.id = static_cast<std::int32_t>(node.at("id").integer(0, max_id));
    t.content = node.at("content").string();
    if (t.content.empty()) node.at("content").fail_expected("a token of at least one character");
    t.single_word = node.boolean_or("single_word", false);
    t.lstrip = node.boolean_or("lstrip", false);
    t.rstrip = node.boolean_or("rstrip", false);
    t.special = node.boolean_or("special", false);
    t.normalized = node.boolean_or("normalized", !t.special);
    out.push_back(std::move(t));
  }
  return out;
}

// Tokens of the model and added tokens in one table by id. A token or an id that occurs twice with different partners is refused: two
// readers would see two vocabularies.
class vocabulary {
 public:
  vocabulary(const json_node& vocab, const json_node& root, const std::vector<added_token>& added) : file_(root.file()) {
    const auto& members = vocab.object().raw().get_ref<const nlohmann::json::object_t&>();
    std::int64_t highest = -1;
    for (const auto& [token, id] : members) {
      const json_node node(id, file_, json_blame::file, vocab.path());
      if (!id.is_number_integer()) node.fail("id of token " + in_quotes(token) + " is " + node.shown() + ", expected an integer");
      highest = std::max(highest, node.integer(0, max_id));
    }
    for (const added_token& t : added) highest = std::max<std::int64_t>(highest, t.id);
    if (highest < 0) vocab.fail("the vocabulary is empty");
    const std::int64_t most = most_ids(members.size() + added.size());
    if (highest >= most) {
      vocab.fail("id " + std::to_string(highest) + " of " + std::to_string(members.size() + added.size()) + " tokens, expected ids below " +
                 std::to_string(most));
    }
    const auto count = static_cast<std::size_t>(highest) + 1;
    tokens.resize(count);
    in_model.resize(count, false);
    used.resize(count, false);
    for (const auto& [token, id] : members) {
      put(token, id.get<std::size_t>());
      in_model[id.get<std::size_t>()] = true;
    }
    std::unordered_map<std::string_view, std::int32_t> before;
    auto next = static_cast<std::int64_t>(members.size());
    for (const added_token& t : added) {
      const std::string where = file_ + ": added_tokens: token " + in_quotes(t.content) + " has id " + std::to_string(t.id);
      if (!before.emplace(t.content, t.id).second) throw file_error(where + " and stands there twice");
      if (const auto it = members.find(t.content); it != members.end()) {
        if (it->second != t.id) throw file_error(where + ", but " + it->second.dump() + " in model.vocab");
      } else if (t.id != next++) {
        // The `tokenizers` package numbers them itself, in order.
        throw file_error(where + ", but is number " + std::to_string(next - 1) + " counted from the tokens of model.vocab");
      }
      put(t.content, static_cast<std::size_t>(t.id));
    }
  }

  std::vector<std::string> tokens;  // by id
  std::vector<bool> in_model;       // by id: the merges know it
  std::vector<bool> used;           // by id

 private:
  void put(const std::string& token, std::size_t id) {
    if (used[id] && tokens[id] != token) {
      throw file_error(file_ + ": tokens " + in_quotes(tokens[id]) + " and " + in_quotes(token) + " both have id " + std::to_string(id));
    }
    used[id] = true;
    tokens[id] = token;
  }

  const std::string& file_;
};

// Options of the model that would change ids and are not built.
void check_model_options(const json_node& node) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (node.has(key) && !node.at(key).string().empty()) unsupported(node.at(key), in_quotes(node.at(key).string()));
  }
  if (node.number_or("dropout", 0.0, 0.0, 1.0) != 0.0) unsupported(node.at("dropout"), "a value other than 0");
}

// Both spellings of a merge: "a b" and ["a", "b"].
std::pair<std::string_view, std::string_view> merge_parts(const json_node& node) {
  if (node.is_array()) {
    if (node.array_size() != 2) node.fail_expected("a pair of tokens");
    return {node.at(std::size_t{0}).string(), node.at(std::size_t{1}).string()};
  }
  const std::string_view text = node.string();
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    node.fail_expected("two tokens with one space between them");
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(const json_node& list, tokenizer_tables& t, const vocabulary& v) {
  const std::size_t count = list.array_size();
  const auto id_of = [&](const json_node& node, std::string_view token) {
    const auto it = t.ids.find(token);
    if (it == t.ids.end() || !v.in_model[static_cast<std::size_t>(it->second)])
      node.fail("token " + in_quotes(token) + " is not in model.vocab");
    return it->second;
  };
  t.model.merges.reserve(count);
  std::int32_t rank = 0;
  std::string merged;
  for (std::size_t i = 0; i < count; ++i) {
    const json_node node = list.at(i);
    if (node.is_string() && node.string().starts_with("#version")) continue;  // a header that came along from merges.txt
    const auto [left, right] = merge_parts(node);
    merged.assign(left).append(right);
    const std::int32_t id = id_of(node, merged);
    t.model.merges.insert(id_of(node, left), id_of(node, right), {rank++, id});
    if (t.model.special[static_cast<std::size_t>(id)]) t.model.special_can_merge = true;
  }
}

}  // namespace

void string_table::assign(const std::vector<std::string>& strings) {
  text_.clear();
  ends_.assign(1, 0);
  for (const std::string& s : strings) {
    text_ += s;
    ends_.push_back(text_.size());
  }
}

void tokenizer_tables::read(const std::string& path) {
  const auto file = io_detail::json_file::load(path, max_file_bytes);
  const json_node root = file.root(json_blame::file).object();
  const json_node model_node = root.at("model").object();
  const std::string kind = model_node.string_or("type", "BPE");
  if (kind != "BPE") unsupported(model_node, "kind " + in_quotes(kind));
  check_model_options(model_node);
  check_other_components(root);
  bool byte_level = false;
  if (root.has("pre_tokenizer")) read_pre_tokenizer(root.at("pre_tokenizer"), steps, byte_level);
  if (!byte_level) throw model_error(file.name + ": pre_tokenizer: no \"ByteLevel\" in it; only byte-level BPE is supported");

  std::vector<added_token> added = read_added(root);
  const vocabulary v(model_node.at("vocab"), root, added);
  const std::size_t count = v.tokens.size();
  size = static_cast<std::int32_t>(count);
  model.special.assign(count, false);
  for (const added_token& t : added) model.special[static_cast<std::size_t>(t.id)] = t.special;

  // A token that is no sequence of stand-ins stands for its own UTF-8.
  const byte_alphabet alphabet;
  std::vector<std::string> byte_strings(count);
  std::vector<bool> reachable(count, false);  // by merging bytes of text
  for (std::size_t id = 0; id < count; ++id) {
    std::optional<std::string> b = alphabet.bytes(v.tokens[id]);
    reachable[id] = b.has_value() && v.in_model[id];
    byte_strings[id] = b ? std::move(*b) : v.tokens[id];
  }
  spelled.assign(v.tokens);
  bytes.assign(byte_strings);
  ids.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    if (v.used[id]) ids.emplace(spelled[id], static_cast<std::int32_t>(id));
  }

  model.byte_ids.fill(-1);
  model.whole_first = model_node.boolean_or("ignore_merges", false);
  for (std::size_t id = 0; id < count; ++id) {
    if (!reachable[id]) continue;
    if (model.whole_first) model.whole.emplace(bytes[id], static_cast<std::int32_t>(id));
    if (bytes[id].size() != 1) continue;
    // Plain text could then only be written with a control token.
    if (model.special[id])
      throw model_error(file.name + ": special token " + in_quotes(v.tokens[id]) +
                        " is also that of a byte of text, which is not supported");
    model.byte_ids[static_cast<unsigned char>(bytes[id][0])] = static_cast<std::int32_t>(id);
  }
  model.fuse_unknown = model_node.boolean_or("fuse_unk", false);
  if (model_node.has("unk_token")) {
    const json_node unknown = model_node.at("unk_token");
    const auto it = ids.find(unknown.string());
    const bool in_model = it != ids.end() && v.in_model[static_cast<std::size_t>(it->second)];
    const bool needed = std::find(model.byte_ids.begin(), model.byte_ids.end(), -1) != model.byte_ids.end();
    if (!in_model && needed)
      unknown.fail("token " + in_quotes(unknown.string()) + " is not in model.vocab, which lacks tokens of some bytes");
    if (in_model && needed && model.special[static_cast<std::size_t>(it->second)]) {
      throw model_error(file.name + ": " + unknown.path() + ": special token " + in_quotes(unknown.string()) +
                        " also stands for bytes of text without a token, which is not supported");
    }
    if (in_model) model.unknown = it->second;
  }
  if (model_node.boolean_or("byte_fallback", false) &&
      std::find(model.byte_ids.begin(), model.byte_ids.end(), -1) != model.byte_ids.end()) {
    unsupported(model_node.at("byte_fallback"), "true without a token for every byte");
  }
  read_merges(model_node.at("merges"), *this, v);

  std::vector<added_token> raw;
  std::vector<added_token> normalised;
  for (added_token& t : added) (t.normalized ? normalised : raw).push_back(std::move(t));
  raw_added = added_matcher(std::move(raw));
  normalised_added = added_matcher(std::move(normalised));
}

}  // namespace vlbatch::inline v0::tokenizer_detail
