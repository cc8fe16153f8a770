#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how far transformers' torchvision-based Idefics3ImageProcessorFast is from the Pillow-based Idefics3ImageProcessor.

The project equals the latter bit for bit; these are the differences to expect of a model that was trained or measured with the other one.

usage: compare_fast_images.py [--samples FOLDER]    needs Pillow, NumPy, torch, torchvision and transformers
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
import PIL
import torch
import torchvision
import transformers
from transformers import Idefics3ImageProcessorFast
from transformers.image_utils import ChannelDimension, load_image

from make_image_goldens import CONFIGS, SIZES, picture, processor

TORCH = {"input_data_format": ChannelDimension.LAST, "return_row_col_info": True}


def compare(options, image):
    """Grids, and differences in levels of 255 where the grids are equal."""
    slow = processor(**options).preprocess([image], return_tensors="np", **TORCH)
    fast = Idefics3ImageProcessorFast(**options).preprocess([image], return_tensors="pt", **TORCH)
    grids = [(int(r["rows"][0][0]), int(r["cols"][0][0])) for r in (slow, fast)]
    if grids[0] != grids[1]:
        return grids, None
    levels = 255 * np.array(options["image_std"])[:, None, None]
    return grids, np.abs(slow["pixel_values"][0].astype(np.float64) - fast["pixel_values"][0].double().numpy()) * levels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default=str(Path(__file__).resolve().parents[3] / "shared" / "samples"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(", ".join(f"{m.__name__} {m.__version__}" for m in (transformers, torch, torchvision, PIL)))
    smooth = {f"waves {w}x{h}": picture(w, h, 2) for w, h in SIZES}
    noise = {f"noise {w}x{h}": picture(w, h, 1) for w, h in SIZES}
    samples = {}
    for path in sorted(Path(arguments.samples).glob("**/*")):
        if path.suffix in (".png", ".jpg", ".jpeg", ".webp"):
            try:
                samples[path.name] = np.array(load_image(str(path)))
            except Exception:  # whatever Pillow throws at broken files
                pass
    print("| settings | pictures | compared | other grid or refused | mean difference | 99.9 % below | largest |")
    print("|---|---|---|---|---|---|---|")
    for name in ("small", "small_single", "smolvlm"):
        for kind, pictures in (("waves", smooth), ("noise", noise), ("samples", samples)):
            found, others = [], []
            for title, image in pictures.items():
                if name == "smolvlm" and max(image.shape) < 256:
                    continue
                try:
                    grids, levels = compare(CONFIGS[name], image)
                except Exception as error:
                    others.append(f"{title}: {type(error).__name__}")
                    continue
                if levels is None:
                    others.append(f"{title}: {grids[0]} and {grids[1]}")
                else:
                    found.append(levels.ravel().astype(np.float32))
            if found:
                mean = np.mean([f.mean() for f in found])
                high = np.max([np.quantile(f, 0.999) for f in found])
                print(f"| {name} | {kind} | {len(found)} | {len(others)} | {mean:.3f} | {high:.1f} | {max(f.max() for f in found):.1f} |")
            for other in others:
                print("   ", name, other)


if __name__ == "__main__":
    main()
