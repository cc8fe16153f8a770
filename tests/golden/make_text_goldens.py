#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/text: what the reference packages make of texts, prompts and configurations.

  pip install transformers==4.57.6 tokenizers==0.22.2 torch pillow numpy
  python make_text_goldens.py

tokenizer.json   a byte-level BPE trained here on the sentences below, with the control tokens of SmolVLM
tokenizer_cases.json  ids of many strings by the `tokenizers` package, for the file above and for variants of it (JSON merge patches)
prompts.json     prompt ids by transformers' Idefics3Processor and SmolVLM's chat template
configs.json     how transformers reads configurations
utf8.json        what Python's decoder makes of bytes
"""

import copy
import json
import pathlib
import random

import numpy
import PIL
import tokenizers
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, Idefics3Config, Idefics3ImageProcessor, Idefics3Processor, PreTrainedTokenizerFast, SmolVLMConfig
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE

OUT = pathlib.Path(__file__).resolve().parent / "text"
VERSIONS = {p.__name__: p.__version__ for p in (transformers, tokenizers, PIL, numpy)}

SENTENCES = """
How many squares are in the picture? There are three squares and one circle.
Which colour is the circle? The circle is red. The triangle below the circle is green.
Describe the picture. A large blue square stands in the upper left corner, and a small yellow triangle in the lower right corner.
Read the digits. The digits are 4, 7, 1 and 9; they say 4719.
Is it warm outside? It isn't, but they're saying it'll be warmer tomorrow; we've waited, and I'd say that's fine.
Die Brücke über den Fluß ist schön. Où est la bibliothèque ? ¿Dónde está el niño?
Быстрая лиса прыгает через ленивую собаку. 日本語の文章です。 中文句子。 한국어 문장입니다.
    four spaces,  two spaces,	a tab,
and a new line. x = y + 2; if (a[i] != b) { return "no"; }
""".strip()


def train():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    )
    t.train_from_iterator(SENTENCES.splitlines() * 2, trainer)
    control = ["<global-img>"] + [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    control += ["<fake_token_around_image>", "<image>", "<|reserved_special_token_0|>", "<end_of_utterance>"]
    t.add_special_tokens([AddedToken(c, normalized=False, special=True) for c in control])
    return t


def write(name, value, compact=True):
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":") if compact else None, indent=None if compact else 1)
    (OUT / name).write_text(text + "\n", encoding="utf-8")


# ---- strings

BITS = ["Hello", " world", "The circle", "don't", "I'LL", "we'Re", "it's", "123", "4567", " 89", "\u0663\u0664", "\u00bd\u00b2", "\n", "\n\n", " ",
        "  ", "    ", "\t", "\r\n", "\u00a0", "\u180e", "\u200b", "\u3000", "\u0085", "\u2028", "\x1c", "\x1f", "\x0b", "\x00", "\x7f", "\u00e9",
        "e\u0301", "\u65e5\u672c", "\u8a9e", "\u0e44\u0e17\u0e22", "\u0939\u093f\u0928\u094d\u0926\u0940", "\U0001f642",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0010ffff", "\ufffd", "\ufeff", "<image>", "<|im_start|>", "<|im",
        "<|im_end|>", "<|endoftext|>", "<im", "<image", "<row_1_col_2>", "<end_of_utterance>", "foo", "foo_", "xfoo", " foo", "bar", "<l>", "<r>",
        "<lr>", "\u0120", "\u010a", "_", "-", "...", "!?", "a", "b", " a", "A", "\u017f", "'\u017f", "\u01c5", "\u00df", "\u0130", "\u0131", "\u0378",
        "\ue000", "\U00031350", "\u1c89", "\U00010d40", "\u24b6"]
FIXED = ["", " ", "  ", "\n", "a", " a", "a ", "What is in the picture?", " What", "User: What", "<|im_start|>User:<image>What?<end_of_utterance>\nAssistant:",
         "<|im_end|>\n<|im_start|>system", "<<image>>", "<image><image>", "< image >", "<IMAGE>", "x" * 200, " " * 200, "ab" * 150, "0" * 80, "\n" * 70,
         "the the the the the the the the the the the the the the the the the the the"]


def random_string(r):
    kind = r.random()
    if kind < 0.6:
        return "".join(r.choice(BITS) for _ in range(r.randint(1, 9)))
    if kind < 0.85:
        planes = [(0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x323AF), (0xE0000, 0xE01EF), (0x323B0, 0x10FFFF)]
        return "".join(chr(r.randint(*r.choice(planes))) for _ in range(r.randint(1, 12)))
    return "".join(r.choice("abcdefgh  \n'0123.,<>|ims_") for _ in range(r.randint(1, 80)))


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **options}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}


PLAIN = byte_level(use_regex=False)
# Contractions in any case, words with one sign before them, numbers of at most three digits: the style of Llama 3 and Qwen 2.
NUMBERS_BY_THREE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def variants(base):
    def added(*tokens):
        rows = copy.deepcopy(base["added_tokens"])
        for content, flags in tokens:
            outside = sum(r["content"] not in base["model"]["vocab"] for r in rows)
            row = dict(id=base["model"]["vocab"].get(content, len(base["model"]["vocab"]) + outside), content=content)
            for letter, key in zip("wlrns", ("single_word", "lstrip", "rstrip", "normalized", "special")):
                row[key] = letter in flags
            rows.append(row)
        return {"added_tokens": rows}

    pairs = [m.split(" ") if isinstance(m, str) else m for m in base["model"]["merges"]]
    return {
        "as trained": ({}, 260),
        "merges as strings": ({"model": {"merges": [" ".join(p) for p in pairs]}}, 20),
        "byte level alone": ({"pre_tokenizer": byte_level()}, 25),
        "prefix space": ({"pre_tokenizer": byte_level(add_prefix_space=True)}, 25),
        "prefix space after digits": (sequence({"type": "Digits", "individual_digits": False}, byte_level(add_prefix_space=True)), 25),
        "no regex": ({"pre_tokenizer": PLAIN}, 25),
        "numbers by three": (sequence(split({"Regex": NUMBERS_BY_THREE}), PLAIN), 60),
        "both cut": (sequence(split({"Regex": r"\p{L}+"}), byte_level()), 25),
        "removed": (sequence(split({"Regex": r"\s+"}, "Removed"), byte_level()), 25),
        "merged with previous": (sequence(split({"Regex": "[aeiou]"}, "MergedWithPrevious"), PLAIN), 25),
        "merged with next": (sequence(split({"Regex": "[aeiou ]"}, "MergedWithNext"), PLAIN), 25),
        "contiguous": (sequence(split({"Regex": r"[a-m\d]"}, "Contiguous"), PLAIN), 25),
        "inverted": (sequence(split({"Regex": r"\p{L}+|\s"}, "MergedWithNext", True), PLAIN), 25),
        "words": (sequence(split({"Regex": r"\w+"}, "Removed", True), PLAIN), 25),
        "empty matches": (sequence(split({"Regex": r"(?=[a-f])|\d*"}), PLAIN), 25),
        "lines": (sequence(split({"Regex": r"^.|.$"}), split({"Regex": r"[^\S\n]+"}), PLAIN), 25),
        "strings": (sequence(split({"String": " a"}, "MergedWithPrevious"), split({"String": "."}, "Contiguous"), PLAIN), 25),
        "ideographs": (sequence(split({"Regex": r"\p{Han}|[\p{P}\p{S}-]+"}), PLAIN), 25),
        "whole pieces first": ({"model": {"ignore_merges": True}}, 25),
        "added tokens": (
            added(("<|im|>", ""), ("foo", "wn"), ("<l>", "l"), ("<r>", "rs"), ("<lr>", "lrn"), ("  bar", "n"), ("\u00e9", ""), ("\u65e5\u672c", "w"),
                  ("<im", "n"), ("<image>s", ""), ("\u00df", "w")),
            80,
        ),
    }


def merged(base, patch):
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    out = copy.deepcopy(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def tokenizer_cases(base):
    cases = []
    for number, (name, (patch, count)) in enumerate(variants(base).items()):
        r = random.Random(1000 + number)
        t = Tokenizer.from_str(json.dumps(merged(base, patch)))
        strings = (FIXED if name in ("as trained", "numbers by three") else FIXED[:14]) + [random_string(r) for _ in range(count)]
        rows = []
        for s in strings:
            t.encode_special_tokens = False
            parse = t.encode(s, add_special_tokens=False).ids
            t.encode_special_tokens = True
            as_text = t.encode(s, add_special_tokens=False).ids
            row = {"text": s, "parse": parse}
            if as_text != parse:
                row["as_text"] = as_text
            for key, skip in (("decoded", False), ("shown", True)):
                back = t.decode(parse, skip_special_tokens=skip)
                if back != s:
                    row[key] = back
            rows.append(row)
        cases.append({"name": name, "patch": patch, "rows": rows})
    return cases


def decode_cases(t):
    r = random.Random(7)
    rows = []
    for _ in range(60):
        ids = [r.randrange(3, 259) if r.random() < 0.8 else r.randrange(t.get_vocab_size()) for _ in range(r.randint(1, 12))]
        rows.append({"ids": ids, "decoded": t.decode(ids, skip_special_tokens=False), "shown": t.decode(ids, skip_special_tokens=True)})
    return rows


# ---- prompts

def text(s):
    return {"type": "text", "text": s}


def image(width, height):
    return {"type": "image", "image": Image.fromarray(numpy.zeros((height, width, 3), numpy.uint8))}


def turn(role, *parts):
    return {"role": role, "content": list(parts)}


def prompt_cases():
    long = "Look closely: 3 squares, 12 circles.\n\nAre they   red?"
    return {
        "text": [turn("user", text("What is 2 + 2?"))],
        "empty text": [turn("user", text(""))],
        "text begins with a space": [turn("user", text(" What?"))],
        "text begins with a line": [turn("user", text("\nWhat?\n"))],
        "image": [turn("user", image(40, 40), text("What is it?"))],
        "image alone": [turn("user", image(40, 30))],
        "text then image": [turn("user", text("What is it? "), image(30, 40))],
        "image between texts": [turn("user", text("Before "), image(64, 64), text(" after."))],
        "two images": [turn("user", image(20, 20), image(90, 30), text(long))],
        "images apart": [turn("user", text("A:"), image(64, 32), text("\nB:"), image(32, 64), text("\nwhich?"))],
        "texts in a row": [turn("user", text("one"), text("two"), text(" three"))],
        "turns": [turn("user", image(50, 20), text("What?")), turn("assistant", text("A circle.")), turn("user", text("Its colour?"))],
        "system": [turn("system", text("Answer in one word.")), turn("user", text("Which? "), image(10, 10))],
        "image in the answer": [turn("user", text("Draw.")), turn("assistant", image(16, 48), text("Here.")), turn("user", image(8, 8))],
    }


def prompts(t):
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|im_end|>",
                                   unk_token="<|endoftext|>", clean_up_tokenization_spaces=False)
    cases = []
    for splitting in (False, True):
        images = Idefics3ImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 32}, do_image_splitting=splitting)
        processor = Idefics3Processor(images, fast, image_seq_len=4, chat_template=DEFAULT_CHAT_TEMPLATE)
        for name, messages in prompt_cases().items():
            pictures = [p["image"] for m in messages for p in m["content"] if p["type"] == "image"]
            if splitting and not pictures:
                continue
            grids = []
            if pictures:
                info = images([pictures], return_row_col_info=True)
                grids = [[int(a), int(b)] for a, b in zip(info["rows"][0], info["cols"][0])]
            plain = [turn(m["role"], *({"type": p["type"]} | ({"text": p["text"]} if p["type"] == "text" else {}) for p in m["content"])) for m in messages]
            string = processor.apply_chat_template(plain, add_generation_prompt=True)
            ids = processor(text=string, images=[pictures] if pictures else None)["input_ids"][0]
            cases.append({"name": name + (", split" if splitting else ""), "messages": plain, "grids": grids, "ids": [int(i) for i in ids]})
    return {"versions": VERSIONS, "tile": 32, "patch": 8, "scale_factor": 2, "cases": cases}


# ---- configurations

def configs():
    tiny_text = {"model_type": "llama", "hidden_size": 96, "num_attention_heads": 3}
    tiny_vision = {"hidden_size": 64, "num_attention_heads": 4, "image_size": 96, "patch_size": 8}
    cases = [
        ({"model_type": "idefics3", "text_config": tiny_text, "vision_config": tiny_vision, "image_token_id": 5}, None),
        ({"model_type": "smolvlm", "scale_factor": 4, "image_token_id": 49190, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
          "text_config": {**tiny_text, "num_key_value_heads": 1, "head_dim": 20, "vocab_size": 49280, "rope_theta": 100000.0, "rms_norm_eps": 1e-5,
                          "eos_token_id": [7, 9], "tie_word_embeddings": False, "max_position_embeddings": 8192, "rope_scaling": None},
          "vision_config": {**tiny_vision, "layer_norm_eps": 1e-5, "intermediate_size": 200, "num_hidden_layers": 3}}, None),
        ({"model_type": "idefics3", "text_config": {**tiny_text, "eos_token_id": 11, "tie_word_embeddings": True}, "vision_config": tiny_vision,
          "image_token_id": 6, "eos_token_id": 12}, None),
        ({"model_type": "idefics3", "text_config": tiny_text, "vision_config": {"image_size": 224, "patch_size": 28}, "image_token_id": 6,
          "eos_token_id": 12}, {"eos_token_id": [1, 2, 3]}),
        ({"model_type": "smolvlm", "text_config": {**tiny_text, "num_key_value_heads": 3}, "vision_config": tiny_vision, "image_token_id": 6},
         {"eos_token_id": 4}),
    ]
    out = []
    for config, generation in cases:
        kind = {"idefics3": Idefics3Config, "smolvlm": SmolVLMConfig}[config["model_type"]]
        c = kind.from_dict(copy.deepcopy(config))
        g = GenerationConfig(**generation) if generation else GenerationConfig.from_model_config(c)
        t, v = c.get_text_config(decoder=True), c.vision_config
        out.append({
            "config": config,
            "generation_config": generation,
            "text": {k: getattr(t, k) for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                                                "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "tie_word_embeddings")},
            "vision": {k: getattr(v, k) for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size",
                                                  "patch_size", "layer_norm_eps")},
            "scale_factor": c.scale_factor,
            "image_token_id": c.image_token_id,
            "eos": g.eos_token_id if isinstance(g.eos_token_id, list) else [g.eos_token_id],
            "dtype": str(c.dtype).removeprefix("torch.") if c.dtype is not None else "float32",
        })
    p = Idefics3ImageProcessor()
    defaults = {k: getattr(p, k) for k in ("do_convert_rgb", "do_resize", "do_image_splitting", "do_rescale", "rescale_factor", "do_normalize",
                                           "image_mean", "image_std", "size", "max_image_size")} | {"resample": int(p.resample)}
    return {"versions": VERSIONS, "cases": out, "preprocessing_defaults": defaults}


# ---- bytes

def utf8():
    r = random.Random(3)
    leads = [0x41, 0xC0, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF]
    rows = [bytes([b]) for b in range(0x7F, 0x100)]
    rows += [bytes(r.choice(leads) for _ in range(r.randint(2, 9))) for _ in range(400)]
    return [[b.hex(), b.decode("utf-8", errors="replace")] for b in rows]


def main():
    OUT.mkdir(exist_ok=True)
    t = train()
    base = json.loads(t.to_str())
    write("tokenizer.json", base)
    write("tokenizer_cases.json", {"versions": VERSIONS, "cases": tokenizer_cases(base), "decode": decode_cases(t)})
    write("prompts.json", prompts(t))
    write("configs.json", configs())
    write("utf8.json", utf8())


if __name__ == "__main__":
    main()
