#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/safetensors/cases.json: small files, right and wrong, and what the reference reader makes of each.

  pip install safetensors==0.8.0
  python make_safetensors_goldens.py

A case: `name`; `head` and `data`, the file as two hexadecimal strings (length and header, tensors); `tensors`, if the reference reads it: name -> dtype as the file
spells it, shape, bytes; or `refused`, the kind of the reference's error.
"""

import json
import math
import pathlib
import random
import struct

import safetensors

OUT = pathlib.Path(__file__).resolve().parent / "safetensors" / "cases.json"
BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
        "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64}
cases = []


def noise(n):
    return bytes((37 * i + 11) % 256 for i in range(n))


def add(name, header, data=b"", length=None, whole=None):
    text = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    head = struct.pack("<Q", len(text) if length is None else length) + text if whole is None else whole
    case = {"name": name, "head": head.hex(), "data": data.hex()}
    try:
        found = safetensors.deserialize(head + data)
        case["tensors"] = {n: [t["dtype"], list(t["shape"]), bytes(t["data"]).hex()] for n, t in found}
    except safetensors.SafetensorError as e:
        case["refused"] = str(e).split("(")[0].split(":")[-1].strip()[:80]
    assert all(c["name"] != name for c in cases), name
    cases.append(case)


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def add_entries(name, entries, data_bytes):
    add(name, json.dumps(entries, ensure_ascii=False, separators=(",", ":")), noise(data_bytes))


def bytes_of(dtype, shape):
    return math.prod(shape) * BITS[dtype] // 8


def dtypes():
    for t, bits in BITS.items():
        for shape in ([], [0], [8], [2, 4], [1, 0, 3], [3]):
            n = bits * math.prod(shape)
            add_entries(f"{t} of shape {shape}", {"t": entry(t, shape, 0, (n + 7) // 8)}, (n + 7) // 8)
    for wrong in ("f32", "F31", "", "F32 ", "float32", "I4", "U1", "F8", "C128"):
        add_entries(f"dtype {wrong!r}", {"t": entry(wrong, [1], 0, 4)}, 4)
    add("dtype null", '{"t":{"dtype":null,"shape":[1],"data_offsets":[0,4]}}', noise(4))
    add("dtype a number", '{"t":{"dtype":1,"shape":[1],"data_offsets":[0,4]}}', noise(4))
    pick = random.Random(7)
    for i in range(40):
        entries, at = {}, 0
        for k in range(pick.randint(1, 7)):
            t = pick.choice(list(BITS))
            shape = [pick.choice([0, 1, 2, 4, 8]) for _ in range(pick.randint(0, 4))]
            if math.prod(shape) * BITS[t] % 8 != 0:
                shape = [8]
            n = bytes_of(t, shape)
            entries[f"{pick.choice('abcz')}{k}"] = entry(t, shape, at, at + n)
            at += n
        names = list(entries)
        pick.shuffle(names)
        add_entries(f"mix {i}", {n: entries[n] for n in names}, at)


def headers():
    one = '{"t":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}}'
    d = noise(3)
    add("plain", one, d)
    add("no tensor", "{}")
    add("no tensor, data", "{}", d)
    for label, pad in (("spaces", "   "), ("tabs", "\t\t"), ("newlines", "\n\r\n"), ("NULs", "\0\0"), ("form feed", "\f"), ("no-break space", "\u00a0"), ("a comma", ","), ("x", "x")):
        add(f"header followed by {label}", one + pad, d)
        add(f"header preceded by {label}", pad + one, d)
    add("header preceded by a byte order mark", "\ufeff" + one, d)
    add("header with a comment", one[:-1] + "/*x*/}", d)
    add("header with a trailing comma", one[:-1] + ",}", d)
    add("header in UTF-16", one.encode("utf-16-le"), d)
    add("header with invalid UTF-8", b'{"\xff":{"dtype":"I8","shape":[3],"data_offsets":[0,3]}}', d)
    for value in ("[]", "null", "1", '"x"', "true", "", " ", "{", "[" * 200, '{"a":' * 200):
        add(f"header {value[:12]!r}", value)
    n = len(one)
    for label, length in (("0", 0), ("1", 1), ("one less", n - 1), ("one more", n + 1), ("the data's end", n + 3), ("beyond the data", n + 4), ("100000001", 100_000_001),
                          ("2^63", 1 << 63), ("2^64 - 1", (1 << 64) - 1), ("2^64 - 8", (1 << 64) - 8), ("2^63 - 8", (1 << 63) - 8)):
        add(f"length {label}", one, d, length=length)
    for size in range(9):
        add(f"{size} bytes of 0", b"", whole=bytes(size))
    add("nothing after the length", b"", whole=struct.pack("<Q", 2))


def keys():
    e = '{"dtype":"I8","shape":[1],"data_offsets":[0,1]}'
    second = '{"dtype":"I8","shape":[1],"data_offsets":[1,2]}'
    add("tensor twice", f'{{"t":{e},"t":{e}}}', noise(1))
    add("tensor twice, other place", f'{{"t":{e},"t":{second}}}', noise(2))
    add("tensor twice, one escaped", f'{{"t":{e},"\\u0074":{e}}}', noise(1))
    add("dtype twice", '{"t":{"dtype":"I8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}', noise(1))
    add("metadata twice", f'{{"__metadata__":{{}},"__metadata__":{{}},"t":{e}}}', noise(1))
    add("metadata's key twice", f'{{"__metadata__":{{"a":"1","a":"2"}},"t":{e}}}', noise(1))
    for label, name in (("empty", ""), ("a space", " "), ("long", "n" * 3000), ("of another script", "\u00e9\u6f22\U0001f600"), ("quoted", 'a"b\\c'), ("of controls", "a\nb\tc\x7f"), ("with a NUL", "a\0b"),
                        ("like a path", "../a"), ("nearly reserved", "__metadata"), ("a dot", ".")):
        add_entries(f"name {label}", {name: entry("I8", [1], 0, 1)}, 1)
    add("name a lone surrogate", f'{{"\\ud800":{e}}}', noise(1))
    add("name a surrogate pair", f'{{"\\ud83d\\ude00":{e}}}', noise(1))
    add("name with a raw newline", f'{{"a\nb":{e}}}', noise(1))
    for label, value in (("of strings", '{"format":"pt","x":""}'), ("empty", "{}"), ("null", "null"), ("with a number", '{"a":1}'), ("with null", '{"a":null}'), ("nested", '{"a":{"b":"c"}}'),
                         ("a list", "[]"), ("a string", '"x"'), ("like a tensor", e)):
        add(f"metadata {label}", f'{{"__metadata__":{value},"t":{e}}}', noise(1))
    add("only metadata", '{"__metadata__":{"format":"pt"}}')
    add("a key more", '{"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1],"extra":[1]}}', noise(1))
    for missing in ("dtype", "shape", "data_offsets"):
        v = entry("I8", [1], 0, 1)
        del v[missing]
        add_entries(f"without {missing}", {"t": v}, 1)
    for value in ("null", "1", "[]", '["I8",[1],[0,1]]', "{}", '"I8"'):
        add(f"tensor {value}", f'{{"t":{value}}}', noise(1))


def shapes():
    for shape, n in (("[1.0]", 1), ("[1e0]", 1), ("[-1]", 1), ("[-0]", 0), ("[true]", 1), ('["1"]', 1), ("1", 1), ("null", 1), ("{}", 1), ("[[1]]", 1), ("[null]", 1), ("[01]", 1),
                     ("[18446744073709551615]", 0), ("[18446744073709551616]", 0), ("[9223372036854775807]", 0), ("[9223372036854775808]", 0), ("[4294967296,4294967296]", 0),
                     ("[4294967296,4294967296,0]", 0), ("[0,4294967296,4294967296]", 0), ("[2305843009213693952]", 0), ("[9223372036854775808,0]", 0), ("[0,9223372036854775807]", 0)):
        add(f"shape {shape}", f'{{"t":{{"dtype":"I8","shape":{shape},"data_offsets":[0,{n}]}}}}', noise(n))
    add_entries("F64 of 2^61 elements", {"t": entry("F64", [1 << 61], 0, 0)}, 0)
    for rank in (8, 16, 17, 64):
        add_entries(f"rank {rank}", {"t": entry("I8", [1] * rank, 0, 1)}, 1)


def offsets():
    def one(label, value, data=4, shape="[4]"):
        add(f"offsets {label}", f'{{"t":{{"dtype":"I8","shape":{shape},"data_offsets":{value}}}}}', noise(data))

    one("right", "[0,4]")
    for label, value in (("of floats", "[0.0,4.0]"), ("of exponents", "[0,4e0]"), ("negative", "[-4,0]"), ("minus zero", "[-0,4]"), ("of strings", '["0","4"]'), ("of nulls", "[null,4]"),
                         ("one", "[0]"), ("three", "[0,4,4]"), ("none", "[]"), ("no list", "4"), ("an object", '{"0":0,"1":4}'), ("reversed", "[4,0]"), ("too long", "[0,5]"),
                         ("too short", "[0,3]"), ("beyond the data", "[4,8]"), ("huge", "[0,18446744073709551615]"), ("beyond 64 bits", "[0,18446744073709551616]"),
                         ("that wrap", "[18446744073709551614,2]")):
        one(label, value)
    i8 = lambda n, b: entry("I8", [n], b, b + n)
    for label, e, n in (("hole before", {"a": i8(2, 1)}, 3), ("hole between", {"a": i8(2, 0), "b": i8(2, 3)}, 5), ("hole after", {"a": i8(2, 0)}, 3), ("data missing", {"a": i8(2, 0), "b": i8(2, 2)}, 3),
                        ("overlap by one", {"a": i8(2, 0), "b": i8(2, 1)}, 3), ("the same bytes twice", {"a": i8(2, 0), "b": i8(2, 0)}, 2), ("one inside another", {"a": i8(4, 0), "b": i8(2, 1)}, 4),
                        ("in the other order", {"a": i8(2, 2), "b": i8(2, 0)}, 4), ("empty first", {"a": i8(0, 0), "b": i8(2, 0)}, 2), ("empty last", {"a": i8(2, 0), "b": i8(0, 2)}, 2),
                        ("empty between", {"a": i8(2, 0), "b": i8(0, 2), "c": i8(2, 2)}, 4), ("empties at one place", {"a": i8(0, 0), "b": i8(0, 0), "c": i8(1, 0), "d": i8(0, 1)}, 1),
                        ("empty inside another", {"a": i8(4, 0), "b": i8(0, 2)}, 4), ("empty beyond the data", {"a": i8(2, 0), "b": i8(0, 3)}, 2), ("only empties", {"a": i8(0, 0), "b": i8(0, 0)}, 0),
                        ("unaligned", {"a": i8(1, 0), "b": entry("F32", [1], 1, 5), "c": entry("F16", [1], 5, 7)}, 7)):
        add_entries(f"two tensors: {label}", e, n)


def mutations():
    """Files with one random edit of a number, a key or a byte of the header."""
    pick = random.Random(3)
    base = {"w.0": entry("F32", [2, 2], 0, 16), "w.1": entry("BF16", [3], 16, 22), "n": entry("I64", [1], 22, 30), "s": entry("F16", [], 30, 32)}
    text = json.dumps(base, separators=(",", ":"))
    for i in range(150):
        at = pick.randrange(len(text))
        how = pick.randrange(4)
        if how == 0:
            changed = text[:at] + text[at + 1:]
        elif how == 1:
            changed = text[:at] + pick.choice('0123456789{}[]",:-. ') + text[at:]
        elif how == 2:
            changed = text[:at] + pick.choice("0123456789") + text[at + 1:]
        else:
            other = pick.randrange(len(text))
            changed = text[:at] + text[other:other + pick.randrange(12)] + text[at:]
        add(f"mutation {i}", changed, noise(32))


dtypes()
headers()
keys()
shapes()
offsets()
mutations()
OUT.parent.mkdir(exist_ok=True)
with OUT.open("w") as f:
    f.write('{"versions":' + json.dumps({"safetensors": safetensors.__version__}) + ',\n"cases":[\n')
    f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
    f.write("\n]}\n")
print(len(cases), "cases,", sum("tensors" in c for c in cases), "read by the reference,", OUT.stat().st_size, "bytes")
