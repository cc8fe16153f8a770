#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every test that tests/README.md names in its table of reports is there, and its table of mutations is the script's."""
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
text = (HERE / "README.md").read_text()
sources = "\n".join(p.read_text() for p in HERE.rglob("*.[ch]pp"))
known = set()
for suite, name in re.findall(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+),\s*(\w+)\)", sources):
    known.add(f"{suite}.{name}")
bad = [t for t in re.findall(r"`(\w+\.\w{8,})`", text[text.index("## Faults"):]) if t not in known]
for t in bad:
    print(f"tests/README.md names {t}, which is no test")
table = subprocess.run([HERE.parent / "scripts" / "mutation-check", "--markdown"], capture_output=True, text=True, check=True).stdout
if table not in text:
    print("tests/README.md: the table of mutations is not what scripts/mutation-check --markdown prints")
    bad.append("")
sys.exit(1 if bad else 0)
