#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/text/tokenizer_hashes.json: hashes of what the `tokenizers` package makes of 10,000 generated strings a file.

  pip install tokenizers==0.23.3
  python make_tokenizer_hashes.py [FOLDER with vocab.json and merges.txt of GPT-2]

The strings are not stored: tests/unit/io/tokenizer_hashes_test.cpp draws the same ones from the same generator. For each block of strings
there is one FNV-1a hash of the ids with control tokens parsed, one of the ids with them as text, and one of the text decoded again.
"""

import json
import pathlib
import sys

import tokenizers
from tokenizers import Tokenizer

OUT = pathlib.Path(__file__).resolve().parent / "text"
STRINGS, BLOCK, SEED = 10_000, 250, 2027
MASK = (1 << 64) - 1

# Placeholders and halves of them typed as text, spaces of all kinds, controls, combining marks, joined emoji, digits of several scripts.
BITS = ["Hello", " world", "don't", "I'LL", "it's", "123", "4567", " 89", "\u0663\u0664", "\u00bd", "\n", "\n\n", " ", "  ", "\t", "\r\n", "\u00a0",
        "\u200b", "\u3000", "\u0085", "\u2028", "\x1c", "\x00", "\x7f", "e\u0301", "a\u0308\u0323", "\u1e9b\u0323", "\uac00", "\u1100\u1161",
        "\u65e5\u672c\u8a9e", "\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea", "\U0010ffff", "\ufffd", "\ufeff", "<image>", "<|im_start|>", "<|im", "<|im_end|>", "<|endoftext|>", "<im",
        "<row_1_col_2>", "<row_9_col_9>", "<end_of_utterance>", "<fake_token_around_image>", "<global-img>", "\u0120", "\u2581", "_", "...", "!?",
        "The circle is red.", "x = y[i] + 2;", "'\u017f", "\u01c5", "\u0130"]
# First and last code point of each range that characters are drawn from; surrogates are in none.
RANGES = [[0x00, 0x1F], [0x20, 0x7E], [0x7F, 0x24F], [0x300, 0x36F], [0x370, 0x7FF], [0x800, 0xD7FF], [0xE000, 0xFFFF], [0x10000, 0x1FFFF],
          [0x20000, 0x323AF], [0xE0000, 0xE01EF], [0xF0000, 0x10FFFF]]


class Random:
    """SplitMix64 (Steele, Lea, Flood 2014); a number below n is the remainder."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n


def draw(r):
    parts = []
    for _ in range(1 + r.below(12)):
        kind = r.below(10)
        if kind < 5:
            parts.append(BITS[r.below(len(BITS))])
        elif kind < 8:
            low, high = RANGES[r.below(len(RANGES))]
            parts.append(chr(low + r.below(high - low + 1)))
        elif kind < 9:
            parts.append(" " * (1 + r.below(40)))
        else:
            parts.append("".join(chr(97 + r.below(26)) for _ in range(1 + r.below(15))))
    return "".join(parts)


class Hash:
    """FNV-1a, 64 bits."""

    def __init__(self):
        self.value = 0xCBF29CE484222325

    def add(self, data):
        for byte in data:
            self.value = ((self.value ^ byte) * 0x100000001B3) & MASK

    def add_ids(self, ids):
        for i in [len(ids), *ids]:
            self.add(i.to_bytes(4, "little"))


def hashes(tokenizer):
    r = Random(SEED)
    blocks = []
    for _ in range(STRINGS // BLOCK):
        parse, as_text, decoded = Hash(), Hash(), Hash()
        for _ in range(BLOCK):
            s = draw(r)
            tokenizer.encode_special_tokens = False
            ids = tokenizer.encode(s, add_special_tokens=False).ids
            parse.add_ids(ids)
            decoded.add(tokenizer.decode(ids, skip_special_tokens=False).encode() + b"\x00")
            tokenizer.encode_special_tokens = True
            as_text.add_ids(tokenizer.encode(s, add_special_tokens=False).ids)
        blocks.append([f"{h.value:016x}" for h in (parse, as_text, decoded)])
    return blocks


def merged(base, patch):
    """JSON merge patch (RFC 7396) of objects without null."""
    if not isinstance(patch, dict):
        return patch
    return {**base, **{k: merged(base.get(k, {}) if isinstance(base, dict) else {}, v) for k, v in patch.items()}}


def gpt2_patch(folder):
    vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = [line for line in (folder / "merges.txt").read_text(encoding="utf-8").split("\n") if line and not line.startswith("#version")]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True, "trim_offsets": True}
    return vocab, merges, byte_level


def main():
    trained = json.loads((OUT / "tokenizer.json").read_text(encoding="utf-8"))
    cases = {c["name"]: c["patch"] for c in json.loads((OUT / "tokenizer_cases.json").read_text(encoding="utf-8"))["cases"]}
    files = [{"name": name, "blocks": hashes(Tokenizer.from_str(json.dumps(merged(trained, cases[name]))))}
             for name in ("as trained", "numbers by three", "added tokens")]
    out = {"tokenizers": tokenizers.__version__, "seed": SEED, "block": BLOCK, "bits": BITS, "ranges": RANGES, "files": files}
    if len(sys.argv) > 1:
        vocab, merges, byte_level = gpt2_patch(pathlib.Path(sys.argv[1]))
        # Assigned, not patched: nothing of the trained vocabulary is to stay.
        gpt2 = {**trained, "added_tokens": [], "pre_tokenizer": byte_level, "model": {**trained["model"], "vocab": vocab, "merges": merges}}
        out["gpt2"] = hashes(Tokenizer.from_str(json.dumps(gpt2)))
    (OUT / "tokenizer_hashes.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
