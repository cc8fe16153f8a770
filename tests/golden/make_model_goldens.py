#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/models/: small random Idefics3 / SmolVLM checkpoints, and what transformers computes on them.

Each folder NAME holds a checkpoint in Hugging Face layout, golden.json (package versions, conversations, greedy tokens with the gap between
the two highest logits) and golden.safetensors with, for each conversation C:
  C.ids         f32 [n]                  prompt and greedy tokens
  C.tiles       i8  [t, side, side, 3]   the bytes of the tiles (reinterpreted: 200 is stored as -56)
  C.embeddings  f32 [t * per_tile, hidden]
  C.logits      f32 [n, vocab]           one pass over all of ids
The arithmetic is f32 whatever the checkpoint's number type is. models/tiny-vlm gets goldens too, its weights stay where they are.

Needs torch, transformers 4.57.6, tokenizers, pillow, numpy, safetensors. Run from anywhere: make_model_goldens.py [NAME ...]
"""
import argparse
import importlib.metadata
import json
import os
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (AutoProcessor, Idefics3Config, Idefics3ForConditionalGeneration, Idefics3ImageProcessor, Idefics3Processor,
                          PreTrainedTokenizerFast, SmolVLMConfig, SmolVLMForConditionalGeneration)

HERE = os.path.dirname(os.path.abspath(__file__))
GREEDY_STEPS = 24
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("a", "n"), ("Ġ", "i"), ("Ġi", "s"), ("e", "r"), ("o", "u"), ("Ġ", "a"), ("r", "e")]
CHAT_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}:"
    "{% if message['content'][0]['type'] != 'image' %}{{ ' ' }}{% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}")

LONG_TEXT = ("Over the hills and far away, the river bends twice before it meets the sea; there is a mill, an inn, a ferry. "
             "The miller counts sacks: 17, 4 and 236. Who rows the ferry when the water is high?")


def picture(seed, width, height):
    """The same picture that the tests draw (tests/parity/golden.hpp): smooth ramps, a product term, and one hard edge."""
    y, x = np.mgrid[0:height, 0:width].astype(np.int64)
    channels = [(x * (3 + seed) + y * (5 + 2 * c) + ((x * y) >> 3) * (c + 1) + seed * 37) & 255 for c in range(3)]
    p = np.stack(channels, axis=-1)
    p[:, width // 2:, :] = 255 - p[:, width // 2:, :]
    return p.astype(np.uint8)


MODELS = {
    # splitting on, grouped KV heads (3 over 1), three layers everywhere, untied, one file
    "idefics3-f32-splitting": dict(
        cls="idefics3", dtype=torch.float32, seed=11, tied=False, scale=2, shard=None,
        text=dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
                  rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=1024),
        vision=dict(hidden_size=36, intermediate_size=52, num_hidden_layers=3, num_attention_heads=3, image_size=32, patch_size=8),
        images=dict(do_image_splitting=True, size={"longest_edge": 96}, max_image_size={"longest_edge": 32}),
        cases={
            "one_image": [("user", [("image", (1, 50, 30)), ("text", "What is the colour of the circle?")])],
            "two_images": [("user", [("text", "First "), ("image", (2, 40, 40)), ("text", " then "), ("image", (3, 31, 64)), ("text", ": compare.")])],
            "text_only": [("user", [("text", LONG_TEXT)])],
        }),
    # splitting off, tied, sharded, bf16, five layers, 9 query heads over 3, heads wider than the model, odd patch side, scale 3
    "smolvlm-bf16-tied-sharded": dict(
        cls="smolvlm", dtype=torch.bfloat16, seed=12, tied=True, scale=3, shard="130KB",
        text=dict(hidden_size=72, intermediate_size=100, num_hidden_layers=5, num_attention_heads=9, num_key_value_heads=3, head_dim=24,
                  rms_norm_eps=1e-6, rope_theta=100000.0, max_position_embeddings=512),
        vision=dict(hidden_size=48, intermediate_size=60, num_hidden_layers=1, num_attention_heads=2, image_size=30, patch_size=5),
        images=dict(do_image_splitting=False, size={"longest_edge": 120}, max_image_size={"longest_edge": 30}),
        cases={
            "one_image": [("user", [("image", (4, 64, 48)), ("text", "Describe the picture.")])],
            "two_images": [("user", [("image", (5, 20, 33)), ("image", (6, 90, 90)), ("text", "Which is larger?")])],
            "conversation": [("system", [("text", "Answer in one word.")]), ("user", [("text", "Is it raining? 12% \u00e9t\u00e9 \u4e2d")]),
                             ("assistant", [("text", "No.")]), ("user", [("image", (7, 30, 30)), ("text", "And here?")])],
        }),
    # f16, one decoder layer, five vision layers, as many KV heads as heads, no pixel shuffle, other resampling and normalisation, splitting on
    "idefics3-f16-plain": dict(
        cls="idefics3", dtype=torch.float16, seed=13, tied=False, scale=1, shard=None,
        text=dict(hidden_size=40, intermediate_size=72, num_hidden_layers=1, num_attention_heads=5, num_key_value_heads=5, head_dim=32,
                  rms_norm_eps=1e-5, rope_theta=500.0, max_position_embeddings=1024),
        vision=dict(hidden_size=32, intermediate_size=40, num_hidden_layers=5, num_attention_heads=4, image_size=21, patch_size=7),
        images=dict(do_image_splitting=True, size={"longest_edge": 42}, max_image_size={"longest_edge": 21}, resample=3,
                    image_mean=[0.48, 0.45, 0.40], image_std=[0.27, 0.26, 0.28]),
        cases={
            "one_image": [("user", [("text", "Look: "), ("image", (8, 44, 70))])],
            "two_images": [("user", [("image", (9, 33, 21)), ("text", "and "), ("image", (10, 21, 21)), ("text", "the same?")])],
            "text_only": [("user", [("text", "Hello there, 2 + 2 is?")])],
        }),
}
TINY_CASES = {
    "one_image": [("user", [("image", (1, 96, 96)), ("text", "How many shapes are there?")])],
    "two_images": [("user", [("image", (2, 96, 96)), ("text", "Describe the picture."), ("image", (3, 50, 80)), ("text", "Read the digits.")])],
    "text_only": [("user", [("text", "How many squares are there?")])],
}


def make_tokenizer():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + alphabet + [a + b for a, b in MERGES]
    bpe = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(names)}, merges=MERGES))
    bpe.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = decoders.ByteLevel()
    special = names[:3] + ["<global-img>"] + [f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)]
    special += ["<fake_token_around_image>", "<image>", "<end_of_utterance>"]
    bpe.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|im_end|>",
                                   unk_token="<|endoftext|>", clean_up_tokenization_spaces=False, model_input_names=["input_ids", "attention_mask"],
                                   additional_special_tokens=["<fake_token_around_image>", "<image>", "<end_of_utterance>"])


def fill(model, seed, tied):
    """Random weights that keep activations of order one, so that every layer, bias and norm shows in the logits. A tied embedding is
    smaller, or each token would predict itself."""
    rng = np.random.default_rng(seed)
    for name, p in sorted(model.named_parameters()):
        noise = torch.from_numpy(rng.standard_normal(p.shape, dtype=np.float32))
        if "norm" in name and name.endswith("weight"):
            value = 1 + 0.2 * noise
        elif name.endswith("bias"):
            value = 0.2 * noise
        elif "embed" in name and "patch" not in name:
            value = 0.1 * noise if tied and "tokens" in name else noise
        elif "lm_head" in name:
            value = 3 * noise / p.shape[1] ** 0.5
        else:
            value = noise / p[0].numel() ** 0.5
        p.data.copy_(value)


def make_folder(name, spec, folder):
    shutil.rmtree(folder, ignore_errors=True)
    tok = make_tokenizer()
    config_class, model_class = {"idefics3": (Idefics3Config, Idefics3ForConditionalGeneration),
                                 "smolvlm": (SmolVLMConfig, SmolVLMForConditionalGeneration)}[spec["cls"]]
    vocab = len(tok) + 3  # a few rows that no token names, as published checkpoints have
    config = config_class(image_token_id=tok.convert_tokens_to_ids("<image>"), tie_word_embeddings=spec["tied"], scale_factor=spec["scale"],
                          pad_token_id=tok.pad_token_id, vision_config=dict(spec["vision"], hidden_act="gelu_pytorch_tanh"),
                          text_config=dict(spec["text"], model_type="llama", vocab_size=vocab, tie_word_embeddings=spec["tied"],
                                           bos_token_id=tok.bos_token_id, eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id))
    model = model_class(config)
    fill(model, spec["seed"], spec["tied"])
    model.tie_weights()
    model = model.to(spec["dtype"])
    model.generation_config.eos_token_id = tok.eos_token_id
    model.generation_config.pad_token_id = tok.pad_token_id
    model.save_pretrained(folder, safe_serialization=True, **({"max_shard_size": spec["shard"]} if spec["shard"] else {}))
    side = spec["vision"]["image_size"] // spec["vision"]["patch_size"] // spec["scale"]
    images = Idefics3ImageProcessor(**{"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 1, **spec["images"]})
    Idefics3Processor(images, tok, image_seq_len=side * side, chat_template=CHAT_TEMPLATE).save_pretrained(folder)


def run_case(model, processor, conversation):
    messages, pictures = [], []
    for role, parts in conversation:
        content = []
        for kind, value in parts:
            content.append({"type": "image"} if kind == "image" else {"type": "text", "text": value})
            if kind == "image":
                pictures.append(Image.fromarray(picture(*value)))
        messages.append({"role": role, "content": content})
    prompt = processor.apply_chat_template(messages, add_generation_prompt=True)
    inputs = processor(text=prompt, images=pictures or None, return_tensors="pt")
    arrays, ids = {}, inputs["input_ids"]
    vision = {}
    if pictures:
        pixels = inputs["pixel_values"]
        raw = processor.image_processor([pictures], do_rescale=False, do_normalize=False, return_tensors="np")["pixel_values"][0]
        tiles = np.asarray(raw).round().astype(np.uint8).transpose(0, 2, 3, 1)
        assert np.array_equal(tiles.transpose(0, 3, 1, 2), raw) and bool(inputs["pixel_attention_mask"].all())
        ip = processor.image_processor
        again = (tiles * ip.rescale_factor - np.array(ip.image_mean)) / np.array(ip.image_std)
        assert np.abs(again.transpose(0, 3, 1, 2) - pixels[0].numpy()).max() < 1e-6
        embeddings = model.model.get_image_features(pixels, inputs["pixel_attention_mask"])
        arrays["tiles"] = np.ascontiguousarray(tiles).view(np.int8)
        arrays["embeddings"] = embeddings.reshape(-1, embeddings.shape[-1]).numpy()
        vision = dict(image_hidden_states=embeddings)
    greedy, gaps = [], []
    sequence = ids
    for _ in range(GREEDY_STEPS):
        top = model(input_ids=sequence, **vision).logits[0, -1].topk(2)
        greedy.append(int(top.indices[0]))
        gaps.append(round(float(top.values[0] - top.values[1]), 5))
        sequence = torch.cat([sequence, top.indices[:1][None]], dim=1)
    logits = model(input_ids=sequence, **vision).logits[0]
    if pictures:  # the features that were passed in are those the model computes itself
        own = model(input_ids=ids, pixel_values=pixels, pixel_attention_mask=inputs["pixel_attention_mask"]).logits[0]
        assert float((own - logits[:ids.shape[1]]).abs().max()) < 1e-4
    arrays["ids"] = sequence[0].numpy().astype(np.float32)
    arrays["logits"] = logits.numpy()
    value_range = float(logits.max() - logits.min())
    counted = sum(g > 10 * 1e-4 * value_range for g in gaps)
    return arrays, dict(messages=[dict(role=role, parts=[{kind: value} for kind, value in parts]) for role, parts in conversation],
                        prompt_tokens=ids.shape[1], greedy=greedy, gaps=gaps, logit_range=value_range, steps_that_count=counted)


def write_goldens(name, folder, out, cases):
    processor = AutoProcessor.from_pretrained(folder, use_fast=False)
    config = json.load(open(os.path.join(folder, "config.json")))
    model_class = {"idefics3": Idefics3ForConditionalGeneration, "smolvlm": SmolVLMForConditionalGeneration}[config["model_type"]]
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    arrays, described = {}, {}
    for case, conversation in cases.items():
        with torch.no_grad():
            values, about = run_case(model, processor, conversation)
        arrays.update({f"{case}.{key}": value for key, value in values.items()})
        described[case] = about
        print(f"{name} {case}: {about['prompt_tokens']} prompt tokens, logits span {about['logit_range']:.1f}, "
              f"{about['steps_that_count']} of {GREEDY_STEPS} greedy steps count, {len(set(about['greedy']))} different tokens")
    versions = {p: importlib.metadata.version(p) for p in ("torch", "transformers", "tokenizers", "pillow", "numpy", "safetensors")}
    save_file(arrays, os.path.join(out, "golden.safetensors"))
    with open(os.path.join(out, "golden.json"), "w") as f:
        lines = ",\n".join(f"  {json.dumps(case)}: {json.dumps(about)}" for case, about in described.items())
        f.write(f'{{\n "versions": {json.dumps(versions)},\n "cases": {{\n{lines}\n }}\n}}\n')


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help=f"default: all of {', '.join(MODELS)}, tiny-vlm")
    p.add_argument("--tiny", default=os.path.join(HERE, "..", "..", "models", "tiny-vlm"), help="folder of the trained model")
    args = p.parse_args()
    torch.set_num_threads(1)
    for name in args.names or [*MODELS, "tiny-vlm"]:
        out = os.path.join(HERE, "models", name)
        if name == "tiny-vlm":
            os.makedirs(out, exist_ok=True)
            write_goldens(name, args.tiny, out, TINY_CASES)
        else:
            make_folder(name, MODELS[name], out)
            write_goldens(name, out, out, MODELS[name]["cases"])


if __name__ == "__main__":
    main()
