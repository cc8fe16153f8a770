#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains, evaluates and writes models/tiny-vlm: a small Idefics3-architecture vision-language model.

Pictures are 96 x 96 pixels, a grid of 3 x 3 cells: coloured shapes drawn here, or real handwritten digits (the UCI "Optical
Recognition of Handwritten Digits" test set that scikit-learn ships). Questions have short answers (counts, colours, yes/no, one cell) and long
ones (a description of all nine cells, the digits read out), so that output lengths vary by nature.

The loss is a mean over answers, each answer the mean over its tokens: averaged over tokens, the long descriptions drown one-word answers.
"""
import argparse
import json
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

SHAPES = ["circle", "square", "triangle", "cross"]
COLOURS = {"red": (214, 40, 40), "green": (30, 150, 60), "blue": (40, 80, 220), "yellow": (240, 200, 20)}
COLOUR_NAMES = list(COLOURS)
CELLS = ["Top left", "Top middle", "Top right", "Middle left", "Centre", "Middle right", "Bottom left", "Bottom middle", "Bottom right"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SIDE, CELL, GRID = 96, 32, 3
TOKENS_PER_IMAGE = 36
SHORT_KINDS = ["count_shape", "count_colour", "colour_of", "exists", "cell", "count_all"]
KIND_WEIGHTS = {"describe": 4.0, "digits": 2.0}
SPECIAL_START = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SPECIAL_END = (["<global-img>"] + [f"<row_{r}_col_{c}>" for r in range(1, 5) for c in range(1, 5)]
               + ["<fake_token_around_image>", "<image>", "<end_of_utterance>"])
CHAT_TEMPLATE = (
    "<|im_start|>{% for turn in messages %}{{ turn['role'] | capitalize }}:"
    "{% if turn['content'][0]['type'] != 'image' %}{{ ' ' }}{% endif %}"
    "{% for part in turn['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}")


# ---------------------------------------------------------------- pictures

def shape_masks():
    """[shape][variant] float masks of 32 x 32, anti-aliased by 4 x supersampling; variants differ in size and place."""
    fine = CELL * 4
    y, x = np.mgrid[0:fine, 0:fine].astype(np.float32) / 4 + 0.125
    banks = []
    for shape in SHAPES:
        variants = []
        for radius in (9.0, 10.5, 12.0):
            for dx in (-2.0, 0.0, 2.0):
                for dy in (-2.0, 0.0, 2.0):
                    u, v = x - (CELL / 2 + dx), y - (CELL / 2 + dy)
                    if shape == "circle":
                        inside = u * u + v * v <= radius * radius
                    elif shape == "square":
                        inside = (abs(u) <= 0.85 * radius) & (abs(v) <= 0.85 * radius)
                    elif shape == "triangle":
                        inside = (v <= 0.75 * radius) & (v >= 2.0 * abs(u) - 1.05 * radius)
                    else:
                        arm = 0.3 * radius
                        inside = ((abs(u) <= arm) & (abs(v) <= radius)) | ((abs(v) <= arm) & (abs(u) <= radius))
                    variants.append(inside.reshape(CELL, 4, CELL, 4).mean((1, 3)).astype(np.float32))
        banks.append(np.stack(variants))
    return banks


def digit_banks(rng, copies):
    """(training bank, held-out bank): lists by digit of 32 x 32 float masks. The split is by original sample; only training samples are varied."""
    from scipy.ndimage import affine_transform
    from sklearn.datasets import load_digits
    data = load_digits()
    order = np.random.default_rng(20240901).permutation(len(data.images))
    held_out = set(order[:360].tolist())
    train, test = [[] for _ in range(10)], [[] for _ in range(10)]

    def place(image, angle, scale, shear, dx, dy):
        # 8 x 8 -> 24 x 24 inside 32 x 32, bilinear; output pixel -> input pixel
        c, s = math.cos(angle), math.sin(angle)
        m = np.array([[c, -s + shear], [s, c]]) * (8 / (24 * scale))
        centre = np.array([CELL / 2 - 0.5 + dy, CELL / 2 - 0.5 + dx])
        offset = np.array([3.5, 3.5]) - m @ centre
        return np.clip(affine_transform(image, m, offset, output_shape=(CELL, CELL), order=1) / 16.0, 0, 1).astype(np.float32)

    for i, (image, label) in enumerate(zip(data.images, data.target)):
        if i in held_out:
            test[label].append(place(image, 0, 1, 0, 0, 0))
            continue
        train[label].append(place(image, 0, 1, 0, 0, 0))
        for _ in range(copies):
            train[label].append(place(image, rng.uniform(-0.22, 0.22), rng.uniform(0.85, 1.15), rng.uniform(-0.2, 0.2),
                                      rng.uniform(-2.5, 2.5), rng.uniform(-2.5, 2.5)))
    return [np.stack(t) for t in train], [np.stack(t) for t in test]


def draw(rng, cells, masks_of, ink_of):
    background = rng.uniform(215, 250)
    picture = np.full((SIDE, SIDE, 3), background, np.float32)
    for place, content in enumerate(cells):
        if content is None:
            continue
        row, col = divmod(place, GRID)
        bank = masks_of(content)
        mask = bank[rng.integers(len(bank))][..., None]
        ink = np.asarray(ink_of(content), np.float32) + rng.uniform(-12, 12, 3)
        region = picture[row * CELL:(row + 1) * CELL, col * CELL:(col + 1) * CELL]
        region += mask * (ink - region)
    picture += rng.normal(0, 2.0, picture.shape)
    return np.clip(picture + 0.5, 0, 255).astype(np.uint8)


def shapes_scene(rng):
    filled = rng.integers(3, 10)
    cells = [None] * 9
    for place in rng.permutation(9)[:filled]:
        cells[place] = (int(rng.integers(4)), int(rng.integers(4)))
    return cells


def digits_scene(rng):
    count = rng.integers(1, 5)
    return [int(rng.integers(10)) if place < count else None for place in range(9)]


# ---------------------------------------------------------------- questions

def name(content):
    shape, colour = content
    return f"a {COLOUR_NAMES[colour]} {SHAPES[shape]}"


def describe(cells):
    return " ".join(f"{CELLS[i]}: {name(c) if c else 'nothing'}." for i, c in enumerate(cells))


def read_digits(cells):
    digits = [NUMBERS[c] for c in cells if c is not None]
    return ", ".join(digits) + "."


def short_question(rng, cells, kind):
    """(question, answer) of that kind about a picture of shapes, or None where the kind does not apply."""
    present = [c for c in cells if c]
    if kind == "count_shape":
        shape = int(rng.integers(4))
        return f"How many {SHAPES[shape]}{'es' if SHAPES[shape] == 'cross' else 's'} are there?", NUMBERS[sum(c[0] == shape for c in present)].capitalize() + "."
    if kind == "count_colour":
        colour = int(rng.integers(4))
        return f"How many shapes are {COLOUR_NAMES[colour]}?", NUMBERS[sum(c[1] == colour for c in present)].capitalize() + "."
    if kind == "count_all":
        return "How many shapes are there?", NUMBERS[len(present)].capitalize() + "."
    if kind == "colour_of":
        unique = [s for s in range(4) if sum(c[0] == s for c in present) == 1]
        if not unique:
            return None
        shape = unique[rng.integers(len(unique))]
        colour = next(c[1] for c in present if c[0] == shape)
        return f"Which colour is the {SHAPES[shape]}?", COLOUR_NAMES[colour].capitalize() + "."
    if kind == "exists":
        if rng.random() < 0.5:
            shape, colour = present[rng.integers(len(present))]
        else:
            shape, colour = int(rng.integers(4)), int(rng.integers(4))
        return f"Is there {name((shape, colour))}?", "Yes." if (shape, colour) in present else "No."
    place = int(rng.integers(9))
    answer = name(cells[place]) if cells[place] else "nothing"
    return f"What is in the cell {CELLS[place].lower()}?", answer[0].upper() + answer[1:] + "."


class source:
    """Endless pictures with questions. `held_out` draws digits from samples that training never sees."""

    def __init__(self, seed, copies=30, held_out=False):
        self.rng = np.random.default_rng(seed)
        self.shapes = shape_masks()
        train, test = digit_banks(np.random.default_rng(seed + 1), 0 if held_out else copies)
        self.digits = test if held_out else train

    def shapes_picture(self):
        cells = shapes_scene(self.rng)
        return cells, draw(self.rng, cells, lambda c: self.shapes[c[0]], lambda c: COLOURS[COLOUR_NAMES[c[1]]])

    def digits_picture(self):
        cells = digits_scene(self.rng)
        return cells, draw(self.rng, cells, lambda c: self.digits[c], lambda c: (30, 30, 30))

    def short(self, cells, kinds):
        out = []
        for kind in kinds:
            qa = short_question(self.rng, cells, kind)
            out.append(qa or short_question(self.rng, cells, "count_shape"))
        return out


# ---------------------------------------------------------------- tokenizer and model

def make_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    rng = np.random.default_rng(0)
    corpus = ["User: Assistant:", "Describe the picture.", "Read the digits.", "System: You answer questions about a picture."]
    corpus += [", ".join(NUMBERS) + ".", " ".join(n.capitalize() + "." for n in NUMBERS)]
    for _ in range(400):
        cells = shapes_scene(rng)
        corpus.append(" " + describe(cells))
        for kind in SHORT_KINDS:
            qa = short_question(rng, cells, kind)
            if qa:
                corpus += [qa[0], " " + qa[1]]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=512, special_tokens=SPECIAL_START, show_progress=False,
                                                        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    fast = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<|im_start|>", eos_token="<end_of_utterance>", pad_token="<|im_end|>",
                                   unk_token="<|endoftext|>", additional_special_tokens=SPECIAL_END, clean_up_tokenization_spaces=False,
                                   model_max_length=1024, model_input_names=["input_ids", "attention_mask"])
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(tok):
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration
    vocab = (len(tok) + 7) // 8 * 8
    config = Idefics3Config(
        image_token_id=tok.convert_tokens_to_ids("<image>"), tie_word_embeddings=False, scale_factor=2, pad_token_id=tok.pad_token_id,
        vision_config=dict(hidden_size=128, intermediate_size=384, num_hidden_layers=3, num_attention_heads=4, image_size=SIDE, patch_size=8,
                           hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6),
        text_config=dict(model_type="llama", hidden_size=256, intermediate_size=640, num_hidden_layers=5, num_attention_heads=8,
                         num_key_value_heads=4, head_dim=32, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=1024,
                         vocab_size=vocab, hidden_act="silu", tie_word_embeddings=False, bos_token_id=tok.bos_token_id,
                         eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id))
    config.vocab_size = vocab
    return Idefics3ForConditionalGeneration(config)


def make_processor(tok):
    from transformers import Idefics3ImageProcessor, Idefics3Processor
    images = Idefics3ImageProcessor(do_image_splitting=False, size={"longest_edge": SIDE}, max_image_size={"longest_edge": SIDE},
                                    image_mean=[0.5] * 3, image_std=[0.5] * 3, resample=1)
    return Idefics3Processor(images, tok, image_seq_len=TOKENS_PER_IMAGE, chat_template=CHAT_TEMPLATE)


class packer:
    """(question, answer) -> ids; the prompt is exactly the processor's."""

    def __init__(self, tok):
        self.tok = tok
        self.eos = tok.convert_tokens_to_ids("<end_of_utterance>")
        self.head = tok.encode("<|im_start|>User:<fake_token_around_image><global-img>" + "<image>" * TOKENS_PER_IMAGE + "<fake_token_around_image>")
        self.cache = {}

    def text(self, s):
        if s not in self.cache:
            self.cache[s] = self.tok.encode(s)
        return self.cache[s]

    def pack(self, pictures):
        """One row a picture: the prompt up to the image once, then every question with its answer. A question sees the image and itself alone, at the
        positions it would have by itself, so that a row trains exactly what its questions would one by one, for a fraction of the work.

        pictures: lists of (question, answer). Returns ids, positions [n, length], mask [n, 1, length, length], and for the answers' tokens: where they
        are predicted [m], what they are [m] and which answer they belong to [m]."""
        rows, at, target, answer, segments, positions, count = [], [], [], [], [], [], 0
        for pairs in pictures:
            ids, segment, position = list(self.head), [0] * len(self.head), list(range(len(self.head)))
            for number, (question, reply) in enumerate(pairs):
                p = self.text(question + "<end_of_utterance>\nAssistant:")
                a = self.text(" " + reply) + [self.eos]
                first = len(ids) + len(p) - 1
                at += [(len(rows), first + i) for i in range(len(a))]
                target += a
                answer += [count] * len(a)
                count += 1
                ids += p + a
                segment += [number + 1] * (len(p) + len(a))
                position += range(len(self.head), len(self.head) + len(p) + len(a))
            rows.append(ids)
            segments.append(segment)
            positions.append(position)
        length = max(map(len, rows))

        def table(values, fill):
            return torch.tensor([v + [fill] * (length - len(v)) for v in values])
        ids, segment, position = table(rows, self.tok.pad_token_id), table(segments, -1), table(positions, 0)
        seen = (segment[:, None, :] == 0) | (segment[:, None, :] == segment[:, :, None])
        seen &= torch.ones(length, length, dtype=torch.bool).tril()
        mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)[:, None]
        return ids, position, mask, torch.tensor(at), torch.tensor(target), torch.tensor(answer)


def answer_losses(model, features, packed, image_id):
    """Loss of each answer: the mean over its tokens."""
    ids, position, mask, at, target, answer = packed
    body = model.model
    embeds = body.text_model.embed_tokens(ids)
    embeds = embeds.masked_scatter((ids == image_id).unsqueeze(-1), features.to(embeds.dtype))
    hidden = body.text_model(inputs_embeds=embeds, attention_mask=mask, position_ids=position, use_cache=False).last_hidden_state
    losses = F.cross_entropy(model.lm_head(hidden[at[:, 0], at[:, 1]]).float(), target, reduction="none")
    total = torch.zeros(int(answer.max()) + 1).index_add(0, answer, losses)
    return total / torch.bincount(answer)


def image_features(model, pictures):
    pixels = (torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5
    return model.model.connector(model.model.vision_model(pixel_values=pixels).last_hidden_state)


def train(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    tok = make_tokenizer()
    model = make_model(tok)
    for module in model.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            torch.nn.init.normal_(module.weight, std=0.02 if isinstance(module, torch.nn.Embedding) else 1 / math.sqrt(module.weight.shape[1]))
    if args.start_from:
        from transformers import Idefics3ForConditionalGeneration
        model.load_state_dict(Idefics3ForConditionalGeneration.from_pretrained(args.start_from, dtype=torch.float32).state_dict())
    image_id = model.config.image_token_id
    print(f"parameters {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M, vocabulary {model.config.text_config.vocab_size}", flush=True)
    data, pack = source(args.seed), packer(tok)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.98))
    first = 0
    if args.resume and os.path.exists(args.checkpoint):
        state = torch.load(args.checkpoint)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        first = state["step"]
        data.rng = np.random.default_rng(args.seed + 1000 + first)
    model.train()
    began, sums = time.time(), {}
    for step in range(first, args.steps):
        rate = args.lr * min(1, (step + 1) / 200) * 0.5 * (1 + math.cos(math.pi * min(1, step / args.steps)))
        for g in opt.param_groups:
            g["lr"] = max(rate, 1e-5)
        shown, digits, asked, kinds = [], [], [], []
        for _ in range(args.batch):
            cells, picture = data.shapes_picture()
            chosen = [SHORT_KINDS[k] for k in data.rng.integers(0, len(SHORT_KINDS), args.questions)]
            shown.append(picture)
            asked.append([("Describe the picture.", describe(cells))] + data.short(cells, chosen))
            kinds += ["describe"] + chosen
        for _ in range(args.batch):
            cells, picture = data.digits_picture()
            digits.append(picture)
            asked.append([("Read the digits.", read_digits(cells).capitalize())])
            kinds.append("digits")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.autocast):
            features = image_features(model, np.stack(shown + digits))
            n = args.batch
            losses = torch.cat([answer_losses(model, features[:n], pack.pack(asked[:n]), image_id),
                                answer_losses(model, features[n:], pack.pack(asked[n:]), image_id)])
            # Each kind counts by itself, however many questions of it were asked. Descriptions and digits, which teach to see, count more.
            weight = torch.tensor([KIND_WEIGHTS.get(k, 1.0) / kinds.count(k) for k in kinds])
            loss = (losses * weight).sum() / 4
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        for kind, value in zip(kinds, losses.detach().tolist()):
            total = sums.setdefault(kind, [0.0, 0])
            total[0] += value
            total[1] += 1
        if (step + 1) % args.log_every == 0:
            spent = time.time() - began
            parts = " ".join(f"{k} {v[0] / v[1]:.3f}" for k, v in sorted(sums.items()))
            print(f"step {step + 1}/{args.steps} {spent:.0f} s, {spent / (step + 1 - first):.2f} s/step | {parts}", flush=True)
            sums = {}
        if (step + 1) % 250 == 0 or step + 1 == args.steps:
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step + 1}, args.checkpoint)
    save(model, tok, args.out)


def save(model, tok, out):
    """Writes the folder as transformers reads it, weights rounded to bf16."""
    from transformers import GenerationConfig
    os.makedirs(out, exist_ok=True)
    model = model.to(torch.bfloat16)
    model.generation_config = GenerationConfig(bos_token_id=tok.bos_token_id, eos_token_id=tok.eos_token_id, pad_token_id=tok.pad_token_id)
    model.save_pretrained(out, safe_serialization=True)
    make_processor(tok).save_pretrained(out)
    print("wrote", out, f"{os.path.getsize(os.path.join(out, 'model.safetensors')) / 1e6:.2f} MB", flush=True)


# ---------------------------------------------------------------- evaluation

def make_evaluation(folder):
    """200 held-out pictures, one question each: 80 % descriptions, 10 % digits, 10 % short questions of every kind in turn."""
    from PIL import Image
    data = source(777, held_out=True)
    os.makedirs(folder, exist_ok=True)
    rows = []
    for i in range(200):
        turn = i % 10
        if turn == 2:
            cells, picture = data.digits_picture()
            kind, question, answer = "digits", "Read the digits.", read_digits(cells).capitalize()
        elif turn == 6:
            kind = SHORT_KINDS[i // 10 % len(SHORT_KINDS)]
            qa = None
            while qa is None:
                cells, picture = data.shapes_picture()
                qa = short_question(data.rng, cells, kind)
            question, answer = qa
        else:
            cells, picture = data.shapes_picture()
            kind, question, answer = "describe", "Describe the picture.", describe(cells)
        file = f"{i:03d}.png"
        Image.fromarray(picture).save(os.path.join(folder, file), optimize=True)
        rows.append({"kind": kind, "image": file, "prompt": question, "answer": answer, "max_new_tokens": 96})
    with open(os.path.join(folder, "manifest.json"), "w") as f:
        json.dump({"comment": "200 pictures that training never saw; digits from held-out samples. answer is what counts as right.", "rows": rows}, f, indent=1)


def answer_rows(model, processor, folder, rows, progress=True):
    from PIL import Image
    out = []
    for i, row in enumerate(rows):
        messages = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": row["prompt"]}]}]
        prompt = processor.apply_chat_template(messages, add_generation_prompt=True)
        inputs = processor(text=prompt, images=[Image.open(os.path.join(folder, row["image"])).convert("RGB")], return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(**inputs, max_new_tokens=row["max_new_tokens"], do_sample=False)
        new = ids[0, inputs["input_ids"].shape[1]:].tolist()
        text = processor.tokenizer.decode(new, skip_special_tokens=True)
        out.append({"prompt_ids": inputs["input_ids"][0].tolist(), "ids": new, "text": text, "right": text.strip() == row["answer"]})
        if progress and (i + 1) % 50 == 0:
            print(f"{i + 1}/{len(rows)}", flush=True)
    return out


def evaluate_kinds(args):
    """Accuracy of each kind on fresh held-out pictures (no files are written), through transformers' own classes."""
    import tempfile
    from PIL import Image
    from transformers import AutoProcessor, Idefics3ForConditionalGeneration
    torch.set_num_threads(args.threads)
    processor = AutoProcessor.from_pretrained(args.out, use_fast=False)
    model = Idefics3ForConditionalGeneration.from_pretrained(args.out, dtype=torch.float32).eval()
    data = source(4242, held_out=True)
    for kind in ["describe", "digits"] + SHORT_KINDS:
        with tempfile.TemporaryDirectory() as folder:
            rows = []
            while len(rows) < args.per_kind:
                cells, picture = data.digits_picture() if kind == "digits" else data.shapes_picture()
                qa = {"describe": lambda: ("Describe the picture.", describe(cells)),
                      "digits": lambda: ("Read the digits.", read_digits(cells).capitalize())}.get(kind, lambda: short_question(data.rng, cells, kind))()
                if qa is None:
                    continue
                Image.fromarray(picture).save(os.path.join(folder, f"{len(rows)}.png"))
                rows.append({"image": f"{len(rows)}.png", "prompt": qa[0], "answer": qa[1], "max_new_tokens": 96})
            right = sum(a["right"] for a in answer_rows(model, processor, folder, rows, progress=False))
        print(f"{kind:14s} {right:4d} of {len(rows):4d} = {100 * right / len(rows):5.1f} %", flush=True)


def evaluate(args):
    """Accuracy of the bf16-rounded weights in f32 arithmetic, through transformers' own classes."""
    import importlib.metadata as meta
    from transformers import AutoProcessor, Idefics3ForConditionalGeneration
    torch.set_num_threads(args.threads)
    processor = AutoProcessor.from_pretrained(args.out, use_fast=False)
    model = Idefics3ForConditionalGeneration.from_pretrained(args.out, dtype=torch.float32).eval()
    folder = os.path.join(args.out, "eval")
    if not os.path.exists(os.path.join(folder, "manifest.json")):
        make_evaluation(folder)
    rows = json.load(open(os.path.join(folder, "manifest.json")))["rows"]
    answers = answer_rows(model, processor, folder, rows)
    table = {}
    for row, a in zip(rows, answers):
        t = table.setdefault(row["kind"], [0, 0, 0])
        t[0] += a["right"]
        t[1] += 1
        t[2] += len(a["ids"])
    for kind, (right, n, tokens) in sorted(table.items()):
        print(f"{kind:14s} {right:4d} of {n:4d} = {100 * right / n:5.1f} %, {tokens / n:.1f} tokens an answer")
    right, n, tokens = (sum(t[i] for t in table.values()) for i in range(3))
    print(f"{'all':14s} {right:4d} of {n:4d} = {100 * right / n:5.1f} %, {tokens / n:.1f} tokens an answer")
    versions = {p: meta.version(p) for p in ("torch", "transformers", "tokenizers", "pillow", "numpy")}
    with open(os.path.join(folder, "reference.json"), "w") as f:
        json.dump({"versions": versions, "arithmetic": "f32 on bf16-rounded weights, greedy", "rows": answers}, f)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    p.add_argument("--out", default=os.path.join(here, "tiny-vlm"), help="model folder (default: %(default)s)")
    p.add_argument("--evaluate", action="store_true", help="only evaluate the folder and write eval/reference.json")
    p.add_argument("--evaluate-kinds", action="store_true", help="only print the accuracy of each kind on fresh held-out pictures")
    p.add_argument("--per-kind", type=int, default=100, help="pictures a kind for --evaluate-kinds")
    p.add_argument("--write-untrained", action="store_true", help="only write the folder with random weights, to try the plumbing")
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--batch", type=int, default=12, help="pictures of shapes a step, and as many of digits")
    p.add_argument("--questions", type=int, default=18, help="short questions a picture of shapes")
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--lr", type=float, default=1.5e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--autocast", action="store_true", help="bf16 autocast")
    p.add_argument("--resume", action="store_true", help="go on from --checkpoint")
    p.add_argument("--start-from", help="begin with the weights of this folder, with a fresh optimiser")
    p.add_argument("--checkpoint", default="tiny_vlm_checkpoint.pt")
    args = p.parse_args()
    if args.write_untrained:
        torch.manual_seed(args.seed)
        tok = make_tokenizer()
        save(make_model(tok), tok, args.out)
    elif args.evaluate_kinds:
        evaluate_kinds(args)
    elif args.evaluate:
        evaluate(args)
    else:
        train(args)
        evaluate(args)


if __name__ == "__main__":
    main()
