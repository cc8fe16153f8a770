// SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer_split.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdio>

#include "io/json_file.hpp"
#include "io/tokenizer_unicode.hpp"
#include "vlbatch/core/error.hpp"

namespace vlbatch::inline v0::tokenizer_detail {
namespace {

using io_detail::shortened;

// Oniguruma's \s is Unicode's White_Space; PCRE2's also holds U+180E. Bodies of classes:
constexpr const char* space_body = R"(\x{9}-\x{D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr const char* not_space_body =
    R"(\x{0}-\x{8}\x{E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
constexpr const char* hex_body = "0-9a-fA-F";

std::string hex_range(char32_t first, char32_t last) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "\\x{%X}-\\x{%X}", static_cast<unsigned>(first), static_cast<unsigned>(last));
  return buffer;
}

// Body of the class of a general category ("L", "Lu"), with the characters that PCRE2 may not know yet.
std::string category_body(std::string_view category) {
  std::string out;
  // A class looks at its table of the first 256 characters before it looks at properties.
  if (category == "L") out = "a-zA-Z";
  if (category == "N" || category == "Nd") out = "0-9";
  out.append("\\p{").append(category).append("}");
  for (const category_range& r : newer_characters) {
    if (r.category.starts_with(category)) out += hex_range(r.first, r.last);
  }
  return out;
}

// \w of Oniguruma: alphabetic characters (letters, letter numbers, circled letters), marks, decimal digits, connectors; outside a class the
// superscripts and fractions of Latin-1 as well.
std::string word_body(bool in_class) {
  std::string out = category_body("L") + category_body("M") + category_body("Nd") + category_body("Nl") + category_body("Pc");
  out += R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
  if (!in_class) out += R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
  return out;
}

bool is_category(std::string_view name) {
  static constexpr std::string_view known[] = {"L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P", "Pc",
                                               "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
  return std::find(std::begin(known), std::end(known), name) != std::end(known);
}

// Rewrites Oniguruma's Ruby syntax so that PCRE2 reads the same meaning, and refuses what it does not know: a wrong guess would tokenise
// wrongly without a word.
class translator {
 public:
  translator(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        escape();
      } else if (c == '[') {
        open_bracket();
      } else if (c == ']' && in_class_) {
        in_class_ = false;
        copy(1);
      } else if (in_class_ && in_.substr(at_, 2) == "&&") {
        refuse("&& in a class");
      } else if (!in_class_ && c == '(' && in_.substr(at_, 2) == "(?") {
        group();
      } else if (!in_class_ && (in_.substr(at_, 2) == "}+" || in_.substr(at_, 2) == "}?" || in_.substr(at_, 2) == "{,")) {
        refuse("{n,m} in a form that PCRE2 reads otherwise");  // }+ is possessive there and }? lazy; {,m} is no repeat
      } else if (!in_class_ && in_.substr(at_, 2) == "(*") {
        refuse("(*");
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw model_error(where_ + ": pattern \"" + shortened(in_, 200) + "\" uses " + std::string(what) + " at byte " + std::to_string(at_) +
                      ", which is not supported");
  }
  void copy(std::size_t n) {
    out_.append(in_.substr(at_, n));
    at_ += std::min(n, in_.size() - at_);
  }
  // Puts a class in the place of the next \p consumed bytes. One that is negated can stand alone, but not in another class.
  void put_class(std::string_view body, std::size_t consumed, bool negated = false) {
    if (!in_class_) {
      out_.append(negated ? "[^" : "[").append(body).append("]");
      at_ += consumed;
      return;
    }
    if (negated) refuse("a negated shorthand in a class");
    // A hyphen beside a shorthand is a hyphen; beside the ranges that take the shorthand's place it would make another range.
    if (out_.back() == '-' && out_[out_.size() - 2] != '\\') out_.insert(out_.size() - 1, 1, '\\');
    out_.append(body);
    at_ += consumed;
    if (in_.substr(at_, 1) == "-") {
      out_ += '\\';
      copy(1);
    }
  }
  // \p{L}, \p{^L}, \P{L} of general categories, \p{Han} of scripts.
  void property() {
    const std::size_t brace = in_.find('}', at_);
    if (in_.substr(at_ + 2, 1) != "{" || brace == std::string_view::npos) refuse("\\p without braces");
    bool negated = in_[at_ + 1] == 'P';
    std::string_view name = in_.substr(at_ + 3, brace - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::size_t consumed = brace + 1 - at_;
    if (is_category(name)) return put_class(category_body(name), consumed, negated);
    for (const char c : name) {
      if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '_') refuse("\\p{" + std::string(name) + "}");
    }
    std::string body = "\\p{sc:" + std::string(name) + "}";
    if (name == "Han") body += R"(\x{2B739}\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";  // ideographs given since Unicode 14
    put_class(body, consumed, negated);
  }
  void open_bracket() {
    if (!in_class_) {
      in_class_ = true;
      copy(1);
      if (in_.substr(at_, 1) == "^") copy(1);
      if (in_.substr(at_, 1) == "]") refuse("an empty class");
    } else {
      refuse("a class inside a class");  // POSIX names included: their Unicode meaning differs
    }
  }
  // Of the groups that begin with "(?", those whose meaning is the same: (?: (?= (?! (?<= (?<! (?> and (?i) (?i: (?-i:.
  void group() {
    std::size_t end = at_ + 2;
    const std::string_view rest = in_.substr(end);
    if (!rest.empty() && std::string_view(":=!>").find(rest[0]) != std::string_view::npos) {
      copy(3);
    } else if (rest.substr(0, 2) == "<=" || rest.substr(0, 2) == "<!") {
      copy(4);
    } else {
      while (end < in_.size() && (in_[end] == 'i' || in_[end] == '-')) ++end;
      if (end == at_ + 2 || end == in_.size() || (in_[end] != ':' && in_[end] != ')')) refuse("a group of this kind");
      copy(end + 1 - at_);
    }
  }
  void escape() {
    if (at_ + 1 == in_.size()) refuse("a backslash at the end");
    const char c = in_[at_ + 1];
    const bool alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!alphanumeric) return copy(2);
    switch (c) {
      case 's':
        return put_class(space_body, 2);
      case 'S':
        return put_class(not_space_body, 2);
      case 'w':
      case 'W':
        return put_class(word_body(in_class_), 2, c == 'W');
      case 'd':
      case 'D':
        return put_class(category_body("Nd"), 2, c == 'D');
      case 'h':
        return put_class(hex_body, 2);
      case 'p':
      case 'P':
        return property();
      case 'u':
        out_ += "\\x{";
        out_ += hex_digits(4);
        out_ += '}';
        return;
      case 'v':
        out_ += "\\x{B}";  // one character there, a class in PCRE2
        at_ += 2;
        return;
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      case 'x': {
        const std::size_t brace = in_.find('}', at_);
        return copy(in_.substr(at_ + 2, 1) == "{" && brace != std::string_view::npos ? brace + 1 - at_ : 2);
      }
      case 'A':
      case 'z':
        if (!in_class_) return copy(2);
        break;
      default:
        break;
    }
    refuse(std::string("\\") + c);
  }
  std::string hex_digits(std::size_t n) {
    const std::string_view digits = in_.substr(at_ + 2, n);
    if (digits.size() != n || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) refuse("\\u without 4 digits");
    at_ += 2 + n;
    return std::string(digits);
  }

  std::string_view in_;
  const std::string& where_;
  std::string out_;
  std::size_t at_ = 0;
  bool in_class_ = false;
};

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

std::size_t character_bytes(char lead) {
  const auto c = static_cast<unsigned char>(lead);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

}  // namespace

struct pattern::compiled {
  std::string where;
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;

  explicit compiled(std::string w) : where(std::move(w)) {}
  compiled(const compiled&) = delete;
  compiled& operator=(const compiled&) = delete;
  ~compiled() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }

  static std::shared_ptr<const compiled> make(const std::string& translated, std::string_view shown, const std::string& where);
};

std::shared_ptr<const pattern::compiled> pattern::compiled::make(const std::string& translated, std::string_view shown,
                                                                 const std::string& where) {
  auto c = std::make_shared<compiled>(where);
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(pcre2_compile_context_create(nullptr),
                                                                                         pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // whatever the library was built for
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Ruby's ^ and $ are those of lines. \C and callouts never come out of the translator.
  c->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE,
                          &error, &offset, context.get());
  if (c->code == nullptr) {
    throw model_error(where + ": pattern \"" + shortened(shown, 200) + "\" is not a regular expression: " + pcre_message(error));
  }
  static_cast<void>(pcre2_jit_compile(c->code, PCRE2_JIT_COMPLETE));  // where there is no JIT, the interpreter does it
  c->limits = pcre2_match_context_create(nullptr);
  if (c->limits == nullptr) throw std::bad_alloc();
  // A pattern from a hostile file may backtrack without end; these bounds are far beyond what a sane one needs for a match.
  pcre2_set_match_limit(c->limits, 20'000'000);
  pcre2_set_heap_limit(c->limits, 256 * 1024);  // KiB
  return c;
}

struct pattern::scratch {
  pcre2_match_data* data;
};

void pattern::scratch_deleter::operator()(scratch* s) const noexcept {
  pcre2_match_data_free(s->data);
  delete s;
}

pattern::pattern(std::string_view oniguruma, const std::string& where)
    : code_(compiled::make(translator(oniguruma, where).run(), oniguruma, where)) {}

pattern pattern::literal(std::string_view text, const std::string& where) {
  std::string escaped;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = u >= 0x80 || (u >= '0' && u <= '9') || (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z');
    if (!plain) escaped += '\\';
    escaped += c;
  }
  return pattern(escaped, where);
}

std::unique_ptr<pattern::scratch, pattern::scratch_deleter> pattern::make_scratch() const {
  std::unique_ptr<scratch, scratch_deleter> s(new scratch{nullptr});
  s->data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  if (s->data == nullptr) throw std::bad_alloc();
  return s;
}

void pattern::find_all(std::string_view text, scratch& s, std::vector<text_range>& out) const {
  out.clear();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t from = 0;     // where the next search begins
  std::size_t covered = 0;  // end of what is in `out`
  bool any = false;
  while (from <= text.size()) {
    int found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, s.data, code_->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its state on the heap
      found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s.data, code_->limits);
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw model_error(code_->where + ": matching a text of " + std::to_string(text.size()) + " bytes: " + pcre_message(found));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data);
    const std::size_t begin = ends[0];
    const std::size_t end = ends[1];
    // An empty match right after the last match is not one (else the search would stand still); the `tokenizers` package has the same rule.
    if (begin == end && any && covered == end) {
      if (from == text.size()) break;
      from += character_bytes(text[from]);
      continue;
    }
    if (covered != begin) out.push_back({covered, begin, false});
    out.push_back({begin, end, true});
    covered = from = end;
    any = true;
  }
  if (covered != text.size()) out.push_back({covered, text.size(), false});
}

void apply_behaviour(split_behaviour behaviour, bool invert, std::vector<text_range>& ranges) {
  if (invert) {
    for (text_range& r : ranges) r.match = !r.match;
  }
  if (behaviour == split_behaviour::removed) return;
  std::size_t kept = 0;
  bool previous_match = false;
  const auto keep = [&](text_range r) { ranges[kept++] = {r.begin, r.end, false}; };
  switch (behaviour) {
    case split_behaviour::removed:
      break;
    case split_behaviour::isolated:
      for (text_range& r : ranges) r.match = false;
      return;
    case split_behaviour::contiguous:
      for (const text_range r : ranges) {
        if (r.match == previous_match && kept > 0) {
          ranges[kept - 1].end = r.end;
        } else {
          keep(r);
        }
        previous_match = r.match;
      }
      break;
    case split_behaviour::merged_with_previous:
      for (const text_range r : ranges) {
        if (r.match && !previous_match && kept > 0) {
          ranges[kept - 1].end = r.end;
        } else {
          keep(r);
        }
        previous_match = r.match;
      }
      break;
    case split_behaviour::merged_with_next:
      std::reverse(ranges.begin(), ranges.end());
      for (const text_range r : ranges) {
        if (r.match && !previous_match && kept > 0) {
          ranges[kept - 1].begin = r.begin;
        } else {
          keep(r);
        }
        previous_match = r.match;
      }
      ranges.resize(kept);
      std::reverse(ranges.begin(), ranges.end());
      return;
  }
  ranges.resize(kept);
}

bool is_white_space(char32_t c) noexcept {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace vlbatch::inline v0::tokenizer_detail
