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
    b = {"c": ("F16", [], bytes(2)), "d": ("I64", [1], bytes(8)), "empty": ("F32", [0, 4], b"")}
    yield "safetensors", "one", safetensors(a)
    yield "safetensors", "metadata", safetensors(b, {"format": "pt"}, pad=5)
    yield "safetensors", "nothing", safetensors({})
    index = {"metadata": {"total_size": 32}, "weight_map": {**{k: "a.safetensors" for k in a}, **{k: "b.safetensors" for k in b}}}
    yield "safetensors", "sharded", b"\0\0\0".join([json.dumps(index).encode(), safetensors(a), safetensors(b)])

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
