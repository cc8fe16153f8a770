#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times vlbatch's tokenizer and the `tokenizers` package on the same text, one thread each, by turns, and compares the ids.

  pip install tokenizers
  bench/compare_tokenizer.py TOKENIZER_JSON TEXT [--bytes 1000000] [--rounds 7]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402  (reads the environment)

ROOT = Path(__file__).resolve().parent.parent


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tokenizer")
    p.add_argument("text", help="repeated until it is long enough")
    p.add_argument("--bytes", type=int, default=1_000_000, help="length of the text that is timed (default: %(default)s)")
    p.add_argument("--rounds", type=int, default=7, help="turns of each (default: %(default)s)")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/bench_tokenizer"), help="default: %(default)s")
    a = p.parse_args()
    text = Path(a.text).read_text(encoding="utf-8")
    if not text:
        sys.exit(f"{a.text} is empty")
    text *= -(-a.bytes // len(text.encode()))
    text = text.encode()[: a.bytes].decode(errors="ignore")
    other = tokenizers.Tokenizer.from_file(a.tokenizer)
    ours, theirs = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        for _ in range(a.rounds):
            run = json.loads(subprocess.run([a.program, a.tokenizer, file.name, "--repeats", "1"], check=True, capture_output=True).stdout)
            began = time.perf_counter()
            ids = other.encode(text, add_special_tokens=False).ids
            theirs.append(time.perf_counter() - began)
            ours.append(run["seconds"][0])
            if run["ids"] != ids:
                at = next((i for i, (x, y) in enumerate(zip(run["ids"], ids)) if x != y), min(len(ids), len(run["ids"])))
                sys.exit(f"ids differ from number {at} on")
    size = len(text.encode())
    for name, times in (("vlbatch", ours), (f"tokenizers {tokenizers.__version__}", theirs)):
        print(f"{name:20} {size / statistics.median(times) / 1e6:7.2f} MB/s  ({1e3 * min(times):.0f}-{1e3 * max(times):.0f} ms for {size} bytes, {len(ids)} ids)")
    print(f"ratio of medians     {statistics.median(theirs) / statistics.median(ours):7.2f}")


if __name__ == "__main__":
    main()
