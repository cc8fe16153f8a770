#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/image: what Pillow and transformers make of pictures, for the tests of decoding, resampling and preprocessing.

Pictures come from a formula that the tests know too (`picture` here, `test_picture` there), so that hashes are all that has to be stored.
Encoded pictures lie in image/files; those in ../shared/samples are other people's and stay there, only their hashes are recorded.

usage: make_image_goldens.py [--samples FOLDER]    needs Pillow, NumPy and transformers (processors only, no torch)
"""

import argparse
import hashlib
import io
import json
import math
import platform
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import PIL
import transformers
from PIL import Image, ImageOps, features
from transformers import Idefics3ImageProcessor, Idefics3Processor, PreTrainedTokenizerFast
from transformers.image_utils import ChannelDimension, load_image
from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE

HERE = Path(__file__).resolve().parent / "image"
FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def noise(width, height, channels, seed):
    """[height, width, channels] of 32 random bits."""
    x = np.arange(width, dtype=np.uint32)[None, :, None]
    y = np.arange(height, dtype=np.uint32)[:, None, None]
    c = np.arange(channels, dtype=np.uint32)[None, None, :]
    with np.errstate(over="ignore"):
        h = x * np.uint32(0x9E3779B1) ^ y * np.uint32(0x85EBCA77) ^ (c + np.uint32(1)) * np.uint32(0xC2B2AE3D)
        h = h ^ np.uint32((seed * 0x27D4EB2F) & 0xFFFFFFFF)
        h ^= h >> np.uint32(15)
        h *= np.uint32(0x2C1B3C6D)
        h ^= h >> np.uint32(12)
        h *= np.uint32(0x297A2D39)
        h ^= h >> np.uint32(15)
    return h


def picture(width, height, seed, channels=3):
    """Even seeds: smooth waves with some noise. Odd seeds: noise alone, which drives sharp filters out of 0..255."""
    bits = noise(width, height, channels, seed)
    if seed % 2:
        return (bits & np.uint32(255)).astype(np.uint8)
    x = np.arange(width, dtype=np.int64)[None, :, None]
    y = np.arange(height, dtype=np.int64)[:, None, None]
    c = np.arange(channels, dtype=np.int64)[None, None, :]
    wave = (x * 510 // width * (c + 1) + y * 510 // height * (4 - c)) % 510
    wave = np.where(wave > 255, 510 - wave, wave)
    return np.clip(wave + (bits & np.uint32(63)).astype(np.int64) - 32, 0, 255).astype(np.uint8)


def sha(data):
    return hashlib.sha256(np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else data).hexdigest()


# ---- PNG of every kind (Pillow writes neither interlaced ones nor 16-bit colour) ----

PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed_rows(samples, depth, seed):
    """Scanlines with filters 0 to 4 by turns; samples [h, w, channels]."""
    height, width, channels = samples.shape
    if depth == 16:
        raw = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    elif depth == 8:
        raw = samples.astype(np.uint8).reshape(height, -1)
    else:
        bits = ((samples.reshape(height, -1, 1).astype(np.uint8) >> np.arange(depth - 1, -1, -1, dtype=np.uint8)) & 1).reshape(height, -1)
        raw = np.packbits(bits, axis=1)
    step = max(1, channels * depth // 8)
    raw = raw.astype(np.int64)
    out = b""
    above = np.zeros(raw.shape[1], dtype=np.int64)
    for y in range(height):
        row = raw[y]
        left = np.concatenate([np.zeros(step, dtype=np.int64), row])[: len(row)]
        corner = np.concatenate([np.zeros(step, dtype=np.int64), above])[: len(row)]
        kind = (y + seed) % 5
        if kind == 4:
            p = left + above - corner
            pa, pb, pc = abs(p - left), abs(p - above), abs(p - corner)
            guess = np.where((pa <= pb) & (pa <= pc), left, np.where(pb <= pc, above, corner))
        else:
            guess = [np.zeros_like(row), left, above, (left + above) // 2][kind]
        out += bytes([kind]) + ((row - guess) % 256).astype(np.uint8).tobytes()
        above = row
    return out


def png(samples, depth, colour, interlaced=False, palette=None, trns=None, extra=b"", pieces=1):
    height, width, _ = samples.shape
    if interlaced:
        data = b""
        for x, y, dx, dy in PASSES:
            part = samples[y::dy, x::dx]
            if part.size:
                data += packed_rows(part, depth, x)
    else:
        data = packed_rows(samples, depth, 0)
    data = zlib.compress(data, 9)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced)))
    out += chunk(b"gAMA", struct.pack(">I", 45455)) + extra
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if trns is not None:
        out += chunk(b"tRNS", trns)
    step = max(1, math.ceil(len(data) / pieces))
    for i in range(0, len(data), step):
        out += chunk(b"IDAT", data[i : i + step])
    return out + chunk(b"IEND", b"")


def exif_block(orientation, big):
    order, mark = (">", b"MM") if big else ("<", b"II")
    entries = struct.pack(order + "HHI4s", 0x0110, 2, 4, b"abc\0")
    entries += struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return mark + struct.pack(order + "HI", 42, 8) + struct.pack(order + "H", 2) + entries + struct.pack(order + "I", 0)


def with_sampling(jpeg, luma):
    """The same codes under another shape of luma: as many blocks to a unit, so that sides of whole units stay valid."""
    at = jpeg.index(b"\xff\xc0")
    return jpeg[: at + 11] + bytes([luma]) + jpeg[at + 12 :]


def first_scans(jpeg, count):
    """A progressive picture that ends after its first scans: complete, but coarse."""
    at = 2
    for _ in range(count + 1):
        while jpeg[at : at + 2] != b"\xff\xda":
            at += 2 + struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        scan = at
        at += 2 + struct.unpack(">H", jpeg[at + 2 : at + 4])[0]
        while jpeg[at] != 0xFF or jpeg[at + 1] == 0 or 0xD0 <= jpeg[at + 1] <= 0xD7:
            at += 1
    return jpeg[:scan] + b"\xff\xd9"


def write_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()

    def put(name, data):
        (folder / name).write_bytes(data)

    def put_pil(name, image, **options):
        buffer = io.BytesIO()
        image.save(buffer, Path(name).suffix[1:].replace("jpg", "jpeg"), **options)
        put(name, buffer.getvalue())

    palette = picture(16, 16, 7).reshape(256, 3)
    for colour, channels, depths in ((0, 1, (1, 2, 4, 8, 16)), (2, 3, (8, 16)), (3, 1, (1, 2, 4, 8)), (4, 2, (8, 16)), (6, 4, (8, 16))):
        for depth in depths:
            samples = (noise(21, 13, channels, 10 * depth + colour) >> np.uint32(3)) & np.uint32((1 << depth) - 1)
            for interlaced in (False, True):
                name = f"png_{colour}_{depth}{'_interlaced' if interlaced else ''}.png"
                put(name, png(samples, depth, colour, interlaced, palette[: 1 << depth] if colour == 3 else None, pieces=3))
    gray16 = (noise(21, 13, 1, 3) & np.uint32(511))  # around the clipping point of 255
    put("png_0_16_low.png", png(gray16, 16, 0))
    gray = noise(21, 13, 1, 5) & np.uint32(7)
    put("png_0_8_key.png", png(gray * 31, 8, 0, trns=struct.pack(">H", 3 * 31)))
    put("png_0_1_key.png", png(gray & 1, 1, 0, trns=struct.pack(">H", 1)))
    colours = (noise(21, 13, 3, 6) & np.uint32(1)) * 200
    put("png_2_8_key.png", png(colours, 8, 2, trns=struct.pack(">HHH", 200, 0, 200)))
    put("png_2_16_key.png", png(colours * 257, 16, 2, trns=struct.pack(">HHH", 200 * 257, 0, 200 * 257)))
    indices = noise(21, 13, 1, 8) & np.uint32(15)
    put("png_3_4_alpha.png", png(indices, 4, 3, palette=palette[:16], trns=bytes(i * 17 for i in range(12))))
    put("png_3_4_alpha_interlaced.png", png(indices, 4, 3, True, palette=palette[:16], trns=bytes(i * 17 for i in range(12))))
    put("png_3_4_short_palette.png", png(indices, 4, 3, palette=palette[:9]))
    for width, height in ((1, 1), (1, 9), (9, 1), (2, 3), (5, 4)):
        put(f"png_tiny_{width}x{height}.png", png(noise(width, height, 3, 9) & np.uint32(255), 8, 2, True))
    put("png_exif_6.png", png(picture(10, 6, 2), 8, 2, extra=chunk(b"eXIf", exif_block(6, True))))

    smooth = Image.fromarray(picture(53, 37, 2))
    noisy = Image.fromarray(picture(40, 33, 3))
    for sampling, name in ((0, "444"), (1, "422"), (2, "420")):
        put_pil(f"jpeg_{name}.jpg", smooth, quality=90, subsampling=sampling)
        put_pil(f"jpeg_{name}_progressive.jpg", smooth, quality=70, subsampling=sampling, progressive=True)
        put_pil(f"jpeg_{name}_noise.jpg", noisy, quality=35, subsampling=sampling)
    units = Image.fromarray(picture(64, 32, 2))  # whole units under every sampling
    put_pil("jpeg_440.jpg", units, quality=85, subsampling=1)
    put("jpeg_440.jpg", with_sampling((folder / "jpeg_440.jpg").read_bytes(), 0x12))
    put_pil("jpeg_411.jpg", units, quality=85, subsampling=2)
    put("jpeg_411.jpg", with_sampling((folder / "jpeg_411.jpg").read_bytes(), 0x41))
    for count in (1, 2, 5):
        put(f"jpeg_progressive_{count}_scans.jpg", first_scans((folder / "jpeg_444_progressive.jpg").read_bytes(), count))
    put_pil("jpeg_restart.jpg", smooth, quality=80, restart_marker_blocks=2)
    put_pil("jpeg_restart_progressive.jpg", smooth, quality=80, restart_marker_rows=1, progressive=True)
    put_pil("jpeg_gray.jpg", smooth.convert("L"), quality=85)
    put_pil("jpeg_gray_progressive.jpg", smooth.convert("L"), quality=85, progressive=True)
    put_pil("jpeg_1x1.jpg", Image.fromarray(picture(1, 1, 2)))
    cmyk = Image.fromarray(picture(31, 19, 4, 4), "CMYK")
    put_pil("jpeg_cmyk.jpg", cmyk, quality=92)
    put_pil("jpeg_cmyk_progressive.jpg", cmyk, quality=92, progressive=True)
    data = (folder / "jpeg_cmyk.jpg").read_bytes()
    adobe = data.index(b"Adobe") + 11
    put("jpeg_ycck.jpg", data[:adobe] + b"\x02" + data[adobe + 1 :])
    at = data.index(b"\xff\xee")
    put("jpeg_cmyk_unmarked.jpg", data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0] :])
    put_pil("jpeg_rgb.jpg", smooth, quality=90, keep_rgb=True)
    upright = Image.fromarray(picture(24, 15, 2))
    turn = Image.Transpose
    undo = {2: turn.FLIP_LEFT_RIGHT, 3: turn.ROTATE_180, 4: turn.FLIP_TOP_BOTTOM, 5: turn.TRANSPOSE, 6: turn.ROTATE_90, 7: turn.TRANSVERSE,
            8: turn.ROTATE_270}
    for orientation in range(1, 9):
        stored = upright.transpose(undo[orientation]) if orientation in undo else upright
        block = exif_block(orientation, orientation % 2 == 0)
        put_pil(f"jpeg_exif_{orientation}.jpg", stored, quality=100, subsampling=0, exif=b"Exif\0\0" + block)
    for name, block in (("cut", exif_block(6, True)[:20]), ("range", exif_block(9, False)), ("order", b"XX" + exif_block(6, True)[2:]),
                        ("far", b"MM\0*\xff\xff\xff\xf0" + bytes(20)), ("empty", b"")):
        put_pil(f"jpeg_exif_broken_{name}.jpg", upright, exif=b"Exif\0\0" + block)

    rgba = picture(29, 23, 2, 4)
    rgba[4:9, 3:20, 3] = 0
    rgba[12:15, :, 3] = 255
    put_pil("webp_lossy.webp", smooth, quality=80)
    put_pil("webp_lossy_noise.webp", noisy, quality=20)
    put_pil("webp_lossless.webp", smooth, lossless=True)
    put_pil("webp_lossy_alpha.webp", Image.fromarray(rgba), quality=75, exact=True)
    put_pil("webp_lossless_alpha.webp", Image.fromarray(rgba), lossless=True, exact=True)
    put_pil("webp_exif_6.webp", upright.transpose(undo[6]), lossless=True, exif=exif_block(6, False))
    put_pil("webp_1x1.webp", Image.fromarray(picture(1, 1, 2)), lossless=True)
    put_pil("png_6_8_holes.png", Image.fromarray(rgba))
    put_pil("png_animated.png", Image.fromarray(picture(12, 9, 2)), save_all=True, append_images=[Image.fromarray(picture(12, 9, 4))])
    # The same colours and transparencies, stored in three ways.
    twins = (noise(21, 13, 1, 11) & np.uint32(7))[:, :, 0].astype(np.uint8)
    clear = np.array([0, 255, 128, 1, 254, 77, 255, 0], np.uint8)
    grays = np.array([0, 255, 30, 200, 128, 90, 64, 170], np.uint8)
    three = np.repeat(grays[:, None], 3, axis=1)
    put("png_twin_palette.png", png(twins[:, :, None], 8, 3, palette=three, trns=clear.tobytes()))
    put("png_twin_gray.png", png(np.stack([grays[twins], clear[twins]], axis=2), 8, 4))
    put("png_twin_rgba.png", png(np.concatenate([three[twins], clear[twins][:, :, None]], axis=2), 8, 6))

    # Many pixels in few bytes, of the kinds that need most memory to decode.
    y, x = np.mgrid[0:1024, 0:1024]
    ramps = np.stack([x // 4, y // 4, (x + y) // 8, 128 + (x ^ y) // 16], axis=2)
    put("large.png", png(np.full((1024, 1024, 3), 40000, np.uint32), 16, 2, True, trns=bytes(6)))
    put_pil("large.jpg", Image.new("CMYK", (1024, 1024), (90, 160, 30, 20)), quality=50, progressive=True)
    put_pil("large_lossless.webp", Image.fromarray(ramps.astype(np.uint8)), lossless=True)
    put_pil("large_lossy.webp", Image.fromarray(ramps.astype(np.uint8)), quality=30)

    # Texts and profiles that are large once inflated, for which Pillow refuses the whole file.
    bomb = zlib.compress(bytes(16 << 20), 9)
    put("bomb_text.png", png(picture(9, 7, 2), 8, 2, extra=chunk(b"iCCP", b"p\0\0" + bomb) + chunk(b"zTXt", b"t\0\0" + bomb)))

    # What is refused, by a word of the reason.
    data = (folder / "jpeg_444.jpg").read_bytes()
    frame = data.index(b"\xff\xc0")
    put("refused_12_bits.jpg", data[: frame + 4] + b"\x0c" + data[frame + 5 :])
    second = smooth.rotate(90, expand=True).resize(smooth.size)
    put_pil("refused_animated.webp", smooth, save_all=True, append_images=[second], duration=100)
    put_pil("refused_gif.gif", smooth)
    put_pil("refused_tiff.tiff", noisy.crop((0, 0, 3, 3)))
    put_pil("refused_bmp.bmp", noisy.crop((0, 0, 3, 3)))
    huge = struct.pack(">IIBBBBB", 40000, 40000, 8, 2, 0, 0, 0)
    put("refused_huge.png", b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", huge) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))


def decoded(path):
    """Hashes of the pixels as stored, upright, and (where Pillow's own idea of transparency is PNG's) over white; or why not."""
    out = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path)
            image.load()
            rgb = image.convert("RGB")
            upright = ImageOps.exif_transpose(image).convert("RGB")
            rgba = image.convert("RGBA")
            over = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255)), rgba).convert("RGB")
    except Exception as error:  # whatever Pillow throws at broken files
        return {"error": type(error).__name__}
    out["width"], out["height"] = rgb.size
    out["rgb"] = sha(np.array(rgb))
    if upright.size != rgb.size or sha(np.array(upright)) != out["rgb"]:
        out["upright"] = sha(np.array(upright))
        out["upright_width"] = upright.width
    if sha(np.array(over)) != out["rgb"]:
        out["over_white"] = sha(np.array(over))
    return out


def resampling():
    shapes = [(1, 1), (1, 5), (5, 1), (2, 2), (7, 5), (16, 16), (31, 64), (96, 96), (200, 150), (1, 300), (300, 1)]
    targets = [(1, 1), (1, 4), (3, 1), (5, 7), (16, 16), (33, 32), (97, 101), (96, 96), (150, 200)]
    pairs = [(s, t) for s in shapes for t in targets]
    pairs += [((3000, 17), t) for t in ((17, 3000), (1, 1), (96, 96), (2999, 18), (512, 3))]
    pairs += [((640, 480), (512, 512)), ((1600, 1067), (384, 256)), ((100, 100), (100, 41)), ((100, 100), (41, 100))]
    pairs += [((384, 256), (384, 288))]
    # Long and thin, up and down.
    pairs += [((16000, 1), t) for t in ((1, 1), (7, 3), (15999, 1))] + [((1, 16000), t) for t in ((1, 1), (3, 7), (1, 15999))]
    pairs += [((3, 2), (3000, 17)), ((2, 3), (17, 3000)), ((17, 3000), (3000, 17))]
    # Around the border of the two orders of passes.
    pairs += [((50, 60), (40, 40)), ((50, 61), (40, 40)), ((500, 1001), (96, 96)), ((100, 300), (90, 100)), ((20, 90), (60, 89))]
    out = []
    for (width, height), (to_width, to_height) in pairs:
        for name, number in FILTERS.items():
            seed = (width + to_height + number) % 4
            source = Image.fromarray(picture(width, height, seed))
            image = source.resize((to_width, to_height), number)
            row = [width, height, seed, to_width, to_height, name, sha(np.array(image))[:32]]
            # Before version 13 the horizontal pass always came first; one side at a time there is no choice.
            image = source.resize((to_width, height), number).resize((to_width, to_height), number)
            before = sha(np.array(image))[:32]
            out.append(row + [before] * (before != row[-1]))
    return out


def processor(**options):
    return Idefics3ImageProcessor(**options)


SMALL = {"max_image_size": {"longest_edge": 96}, "size": {"longest_edge": 384}}
SMOL = {"max_image_size": {"longest_edge": 512}, "size": {"longest_edge": 2048}}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CONFIGS = {
    "small": {**SMALL, **HALF},
    "small_single": {**SMALL, **HALF, "do_image_splitting": False},
    "tiny": {"max_image_size": {"longest_edge": 96}, "size": {"longest_edge": 96}, **HALF, "do_image_splitting": False},
    "default": {},
    "smolvlm": {**SMOL, **HALF},
    "smolvlm_single": {**SMOL, **HALF, "do_image_splitting": False},
    "odd_edge": {"max_image_size": {"longest_edge": 96}, "size": {"longest_edge": 301}},
    "bicubic_imagenet": {**SMALL, "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    "nearest": {**SMALL, **HALF, "resample": 0},
    "no_resize": {**SMALL, **HALF, "do_resize": False},
    "no_resize_single": {**SMALL, **HALF, "do_resize": False, "do_image_splitting": False},
    "no_rescale": {**SMALL, **HALF, "do_rescale": False},
    "no_normalize": {**SMALL, "do_normalize": False},
    "plain": {**SMALL, "do_rescale": False, "do_normalize": False},
    "factor": {**SMALL, **HALF, "rescale_factor": 0.00784313725490196},
    "beyond_4096": {"max_image_size": {"longest_edge": 96}, "size": {"longest_edge": 5000}},
}
SIZES = [(1, 1), (7, 5), (96, 96), (200, 150), (1600, 1067), (640, 480), (1000, 300), (300, 1000)]
SIZES += [(97, 96), (383, 385), (1, 40), (40, 1), (3, 700)]


def preprocess(options, width, height, seed):
    # Told where the channels are: left to guess, transformers takes pictures 1, 3 or 4 pixels high for channels-first.
    image = picture(width, height, seed)
    got = processor(**options).preprocess([image], return_row_col_info=True, input_data_format=ChannelDimension.LAST, return_tensors="np")
    return got["rows"][0][0], got["cols"][0][0], got["pixel_values"][0].astype(np.float32, copy=False)


def pixels():
    out = []
    for name, options in CONFIGS.items():
        for index, (width, height) in enumerate(SIZES):
            if name.startswith("smolvlm") and name != "smolvlm_single" and (width, height) not in ((96, 96), (1600, 1067), (300, 1000)):
                continue
            if name in ("default", "beyond_4096", "smolvlm_single") and (width, height) not in ((7, 5), (640, 480), (300, 1000)):
                continue
            if name == "beyond_4096" and (width, height) != (300, 1000):
                continue
            rows, cols, values = preprocess(options, width, height, index)
            assert values.shape[0] == rows * cols + 1
            out.append([name, width, height, index, rows, cols, values.shape[2], sha(values)])
            print("  ", name, width, height, rows, cols)
    return out


def text_processor(options):
    """9 tokens a tile; the tokenizer of the goldens of texts."""
    text = PreTrainedTokenizerFast(tokenizer_file=str(HERE.parent / "text" / "tokenizer.json"), bos_token="<|im_start|>",
                                   eos_token="<end_of_utterance>", pad_token="<|im_end|>", unk_token="<|endoftext|>",
                                   clean_up_tokenization_spaces=False)
    return Idefics3Processor(processor(**options), text, image_seq_len=9, chat_template=DEFAULT_CHAT_TEMPLATE)


def processed(p, image):
    """Rows, columns, hash of pixel values and hash of the token ids (int32) of a question about a picture."""
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}
    string = p.apply_chat_template([turn], add_generation_prompt=True)
    settings = {"input_data_format": ChannelDimension.LAST}
    info = p.image_processor([image], return_row_col_info=True, return_tensors="np", **settings)
    whole = p(text=string, images=[image], images_kwargs=settings)
    values = info["pixel_values"][0].astype(np.float32, copy=False)
    assert np.array_equal(values, np.array(whole["pixel_values"][0], np.float32))
    ids = np.array(whole["input_ids"][0], np.int32)
    return [int(info["rows"][0][0]), int(info["cols"][0][0]), sha(values)[:32], sha(ids)[:32]]


PROMPT_SIZES = [(1, 1), (1, 2), (3, 3), (4, 1), (16, 9), (95, 96), (97, 96), (96, 97), (128, 128), (200, 150), (150, 200), (384, 384),
                (385, 384), (640, 480), (1000, 250), (250, 1000), (1000, 249), (3000, 17), (17, 3000), (1600, 1067)]


def prompts():
    """Whole requests about pictures of the formula, small tiles."""
    out = []
    for name in ("small", "small_single"):
        p = text_processor(CONFIGS[name])
        out += [[name, width, height, *processed(p, picture(width, height, 2))] for width, height in PROMPT_SIZES]
    return out


def sample_values(root, samples):
    """Whole requests about those of the samples that Pillow decodes, read by transformers' own load_image."""
    out = []
    for name in ("small", "small_single", "smolvlm"):
        p = text_processor(CONFIGS[name])
        for path, entry in samples.items():
            if "error" in entry or (name == "smolvlm" and path != "ort-extensions/australia.jpg"):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                image = load_image(str(root / path))
            out.append([name, path, *processed(p, np.array(image))])
    return out


def tables():
    """Bytes of the float32 that every 8-bit value becomes, [3, 256]."""
    out = {}
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    ramp = np.concatenate([np.pad(ramp, ((0, 255), (0, 0), (0, 0)))])  # square, so that nothing is resized
    for name, options in CONFIGS.items():
        options = {**options, "max_image_size": {"longest_edge": 256}, "do_resize": False, "do_image_splitting": False}
        got = processor(**options).preprocess([ramp], return_tensors="np", input_data_format=ChannelDimension.LAST)
        out[name] = sha(got["pixel_values"][0][0][:, 0, :].astype(np.float32))
    return out


def grids():
    """Rows and columns for many sizes; resizing is replaced by an empty picture of the right shape."""
    widths = (1, 2, 3, 10, 49, 95, 96, 97, 98, 193, 511, 512, 513, 1500)
    sizes = [(w, h) for w in widths for h in (1, 2, 7, 49, 96, 98, 107, 197, 512, 1067)]
    sizes += [(1920, 1080), (1080, 1920), (1280, 720), (4000, 3000), (10000, 10), (10, 10000), (16384, 4096), (1366, 768), (1024, 1023)]
    out = {}
    for name in ("small", "default", "smolvlm", "odd_edge", "no_resize", "beyond_4096"):
        p = processor(**CONFIGS[name])
        rows = []
        for width, height in sizes:
            try:
                shape = np.lib.stride_tricks.as_strided(np.zeros(3, np.uint8), (height, width, 3), (0, 0, 1))
                made = []

                def resize(image, size, resample=None, data_format=None, input_data_format=None, processor=p):
                    if "longest_edge" in size:
                        from transformers.models.idefics3.image_processing_idefics3 import get_resize_output_image_size

                        to = get_resize_output_image_size(image, size["longest_edge"], input_data_format=ChannelDimension.LAST)
                    else:
                        to = (size["height"], size["width"])
                    if min(to) < 1:
                        raise ValueError("empty")
                    made.append((to[1], to[0]))
                    return np.lib.stride_tricks.as_strided(np.zeros(3, np.uint8), (to[0], to[1], 3), (0, 0, 1))

                p.resize = resize
                image = resize(shape, p.size) if p.do_resize else shape
                image = p.resize_for_vision_encoder(image, p.max_image_size["longest_edge"], input_data_format=ChannelDimension.LAST)
                full = (image.shape[1], image.shape[0])
                _, r, c = p.split_image(image, p.max_image_size, input_data_format=ChannelDimension.LAST)
                rows.append([width, height, *(made[0] if p.do_resize else (width, height)), *full, r, c])
            except ValueError:
                rows.append([width, height])  # transformers fails there
        out[name] = rows
    return out


def write(name, value):
    # One entry a line: readable differences.
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).replace("],[", "],\n[")
    if name == "decode.json":
        text = text.replace("},\"", "},\n\"")
    (HERE / name).write_text(text + "\n")
    print(name, len(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default=str(Path(__file__).resolve().parents[3] / "shared" / "samples"))
    arguments = parser.parse_args()
    HERE.mkdir(parents=True, exist_ok=True)
    write_files(HERE / "files")
    versions = {"pillow": PIL.__version__, "libjpeg-turbo": features.version("libjpeg_turbo"), "webp": features.version("webp"),
                "zlib": features.version("zlib"), "numpy": np.__version__, "transformers": transformers.__version__,
                "python": platform.python_version()}
    write("versions.json", versions)
    own = {p.name: decoded(p) for p in sorted((HERE / "files").iterdir()) if not p.name.startswith(("refused", "bomb"))}
    samples = {}
    root = Path(arguments.samples)
    for p in sorted(root.glob("**/*")):
        if p.suffix in (".png", ".jpg", ".jpeg", ".webp", ".gif"):
            samples[str(p.relative_to(root))] = decoded(p)
    write("decode.json", {"files": own, "samples": samples})
    write("resample.json", resampling())
    write("idefics3.json", {"configs": CONFIGS, "grids": grids(), "tables": tables(), "pixels": pixels(), "prompts": prompts(),
                            "samples": sample_values(root, samples)})


if __name__ == "__main__":
    main()
