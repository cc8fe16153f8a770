#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes kernels/io/tokenizer_unicode.hpp: the characters that the regular expressions of the `tokenizers` package know and Unicode 14 does not.

  pip install tokenizers        (Python 3.11, whose unicodedata is that of Unicode 14)
  python make_unicode_ranges.py > ../../kernels/io/tokenizer_unicode.hpp
"""

import unicodedata

import tokenizers
from tokenizers import Regex, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0", "the older version must be that of the oldest PCRE2 that is built against"
points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
whole = "".join(map(chr, points))


def matched(pattern):
    left = set()
    for _, (begin, end) in pre_tokenizers.Split(Regex(pattern), "removed").pre_tokenize_str(whole):
        left.update(points[begin:end])
    return (c for c in points if c not in left)


ranges = []
for category in sorted({unicodedata.category(chr(c)) for c in points} - {"Cn"}):
    for c in matched(r"\p{%s}" % category):
        if unicodedata.category(chr(c)) != category:
            if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == category:
                ranges[-1][1] = c
            else:
                ranges.append([c, c, category])

print(f"""// SPDX-License-Identifier: Apache-2.0
// Made by tests/golden/make_unicode_ranges.py with tokenizers {tokenizers.__version__}. Facts of the Unicode character database.
#pragma once

#include <string_view>

namespace vlbatch::inline v0::tokenizer_detail {{

/// Characters of one general category.
struct category_range {{
  char32_t first;
  char32_t last;
  std::string_view category;
}};

/// General categories given since Unicode 14, which is what the PCRE2 of current distributions knows.
inline constexpr category_range newer_characters[] = {{""")
print(",\n".join(f'    {{0x{a:X}, 0x{b:X}, "{k}"}}' for a, b, k in ranges) + "};")
print("\n}  // namespace vlbatch::inline v0::tokenizer_detail")
