#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds for the fuzz targets, small and the same every time: usage: make_seeds.py FOLDER (one folder for each target in it)."""
import json
import pathlib
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"


def safetensors(tensors, metadata=None, pad=0):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + data


def seeds():
    a = {"a": ("F32", [2, 2], bytes(16)), "b.weight": ("BF16", [3], bytes(6))}
    b = {"c": ("F16", [], bytes(2)), "d": ("I64", [1], bytes(8)), "empty": ("F32", [0, 4], b""), "q": ("I8", [3], bytes(3))}
    header = lambda file: file[8:8 + struct.unpack("<Q", file[:8])[0]]
    yield "safetensors", "one", b"R" + safetensors(a)
    yield "safetensors", "metadata", b"R" + safetensors(b, {"format": "pt"}, pad=5)
    yield "safetensors", "nothing", b"R" + safetensors({})
    yield "safetensors", "header", b"H" + bytes([22, 0]) + header(safetensors(a))
    yield "safetensors", "header-mixed", b"H" + bytes([13, 0]) + header(safetensors(b, {"format": "pt"}))
    index = {"metadata": {"total_size": 35}, "weight_map": {**{k: "a.safetensors" for k in a}, **{k: "b.safetensors" for k in b}}}
    yield "safetensors", "sharded", b"S" + bytes([22, 13]) + b"\0".join([json.dumps(index).encode(), header(safetensors(a)), header(safetensors(b))])

    for i in range(3):
        yield "safetensors", f"drawn-{i}", b"T" + bytes((11 * i + 5 * k * k + 3 * k) % 256 for k in range(40))

    # A whole tokenizer in a few hundred bytes: mutations of it reach everything.
    alphabet = {c: i for i, c in enumerate("\u0120abct<>12")}
    added = [{"id": len(alphabet) + 2 + i, "content": t, "special": special, "normalized": normalized, "lstrip": i == 1, "rstrip": i == 2, "single_word": i == 3}
             for i, (t, special, normalized) in enumerate([("<image>", True, False), ("<u>", False, False), ("ta", False, True), ("ca", False, False)])]
    small = {"added_tokens": added, "normalizer": None, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "post_processor": None,
             "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "unk_token": None, "vocab": {**alphabet, "ab": 10, "abc": 11}, "merges": ["a b", ["ab", "c"]]}}
    yield "tokenizer", "small", json.dumps(small).encode() + b"\0abc ab<image> ta cat"
    small["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                              {"type": "Split", "pattern": {"Regex": "a+(?=b)|[^\\s\\p{L}]{1,2}|\\w"}, "behavior": "MergedWithNext", "invert": True},
                              {"type": "Split", "pattern": {"String": "t"}, "behavior": "Contiguous"}, {"type": "ByteLevel", "use_regex": False}]}
    small["model"].update(unk_token="ab", fuse_unk=True, ignore_merges=True)
    yield "tokenizer", "small-split", json.dumps(small).encode() + b"\0abc 12 a\xff tcat"

    def shortened(tokenizer, entries):
        tokenizer = json.loads(json.dumps(tokenizer))
        vocab = dict(sorted(tokenizer["model"]["vocab"].items(), key=lambda e: e[1])[:entries])
        joined = lambda m: m.split(" ") if isinstance(m, str) else m
        tokenizer["model"]["vocab"] = vocab
        tokenizer["model"]["merges"] = [m for m in tokenizer["model"]["merges"] if all(x in vocab for x in [*joined(m), "".join(joined(m))])]
        tokenizer["added_tokens"] = tokenizer["added_tokens"][:4]
        return tokenizer

    trained = json.loads((GOLDEN / "text" / "tokenizer.json").read_text())
    for name, t in (("trained", shortened(trained, 300)),
                    ("split", {**shortened(trained, 280), "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                        {"type": "Digits", "individual_digits": True},
                        {"type": "Split", "pattern": {"Regex": "\\s+(?!\\S)|\\p{L}+"}, "behavior": "Isolated", "invert": False},
                        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}})):
        yield "tokenizer", name, json.dumps(t, ensure_ascii=False).encode() + "\0 it's <image> 12\n\n ß".encode()

    for folder in sorted((GOLDEN / "models").iterdir()):
        parts = [(folder / f"{n}_config.json" if n else folder / "config.json") for n in ("", "preprocessor", "generation", "processor")]
        yield "config", folder.name, b"\0".join(p.read_bytes() if p.exists() else b"" for p in parts)

    for picture in sorted((GOLDEN / "image" / "files").iterdir()):
        if picture.stat().st_size <= 3000:
            yield "image", picture.name, picture.read_bytes()
    yield "image", "gif", b"GIF89a\1\0\1\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"

    for i, text in enumerate((b"<image><end_of_utterance>", b"<|im_start|>User: hello\\", b"<row_1_col_1><global-img>\\x")):
        yield "prompt", str(i), text + bytes(range(40, 90))
    for i in range(4):
        yield "plans", str(i), bytes((7 * i + k * k * (i + 1)) % 256 for k in range(400))


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    for target, name, content in seeds():
        folder = pathlib.Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return 0


sys.exit(main())
