#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the programs as a user would. usage: check.sh BIN SOURCE WORK
set -euo pipefail
bin=$1 source=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cd "$source"
tiny=models/tiny-vlm

fail() { echo "check.sh: $*" >&2; exit 1; }
# expect_error CODE TEXT COMMAND...: the command ends with that code and says that text on one line
expect_error() {
  local code=$1 text=$2 rc=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" || rc=$?
  [ "$rc" = "$code" ] || fail "$* ended with $rc, expected $code: $(cat "$work/err")"
  grep -qF -- "$text" "$work/err" || fail "$* said: $(cat "$work/err"); expected: $text"
}

for program in vlbatch-experiment vlbatch-run vlbatch-make-model; do
  "$bin/$program" --help | grep -q -- --help || fail "$program --help"
done

echo "experiment"
"$bin/vlbatch-experiment" -n 10 --repeats 1 --json "$work/e.json" --report "$work/e.html" >"$work/table" 2>"$work/progress"
grep -q '^continuous *async *paged *off' "$work/table" || fail "no row of continuous in the table"
grep -q '\[18/18\]' "$work/progress" || fail "no progress"
"$bin/vlbatch-experiment" -q -n 10 --repeats 1 --pairs same --policies sequential,continuous --json - >"$work/same.json" 2>"$work/quiet"
[ ! -s "$work/quiet" ] || fail "--quiet is not quiet"
python3 - "$work" <<'PY'
import json, sys
work = sys.argv[1]
keys = """policy kv vision backend model workload seed requests completed failed dropped makespan_s output_tokens output_tok_per_s requests_per_s ttft_ms tpot_ms itl_ms
e2e_ms steps rows_per_step empty_rows pad_tokens preemptions recomputed_tokens swapped_bytes kv_peak_blocks encoder_share correct identical machine git""".split()
rows = json.load(open(work + "/e.json"))
assert len(rows) == 18, len(rows)
for r in rows:
    missing = [k for k in keys if k not in r]
    assert not missing, missing
    assert r["requests"] == r["completed"] == r["identical"] == 10 and r["failed"] == r["dropped"] == 0, r
    assert r["correct"] == rows[0]["correct"] >= 9, r
    assert set(r["ttft_ms"]) == {"mean", "p50", "p90", "p99"} and r["ttft_ms"]["p99"] is None, r
    assert (r["pad_tokens"] > 0) == (r["policy"] == "padded_static"), r
    assert r["output_tokens"] == rows[0]["output_tokens"], r
html = open(work + "/e.html").read()
assert html.count("<svg") == html.count("</svg>") == 6 and "http" not in html.replace("http-equiv", ""), "self-contained page"
same = json.load(open(work + "/same.json"))
cached = [r for r in same if r["encoder_cache"]]
assert cached and all(r["encoded_tiles"] == 0 for r in cached), "the warm-up encoded the one picture"
assert all(r["encoded_tiles"] == 10 for r in same if not r["encoder_cache"])
PY
expect_error 2 "nowhere" "$bin/vlbatch-experiment" --model "$work/nowhere"
expect_error 2 "manifest" "$bin/vlbatch-experiment" --workload "$work/manifest.json"
expect_error 105 "--policies" "$bin/vlbatch-experiment" --policies fastest

echo "run"
"$bin/vlbatch-run" $tiny -i $tiny/eval/000.png -p "Describe the picture." >"$work/answer"
python3 - "$work" $tiny <<'PY'
import json, struct, sys
work, tiny = sys.argv[1:]
reference = json.load(open(tiny + "/eval/reference.json"))["rows"][0]
assert open(work + "/answer").read() == reference["text"] + "\n", open(work + "/answer").read()
PY
echo "What is in the cell centre?" | "$bin/vlbatch-run" $tiny -i $tiny/eval/000.png -p - -n 3 -t 0.7 --top-k 5 --seed 3 -v 2>"$work/err" | grep -q .
grep -q "prompt tokens" "$work/err" || fail "-v says nothing"
"$bin/vlbatch-run" $tiny -i $tiny/eval/000.png -p "Describe the picture." --dump-logits "$work/logits.npy"
size=$(stat -c %s "$work/logits.npy")
[ "$size" = $((128 + 52 * 488 * 4)) ] || fail "logits.npy has $size bytes"
expect_error 1 "config.json" "$bin/vlbatch-run" $tiny -i $tiny/config.json -p "What is this?"
expect_error 1 "none.png" "$bin/vlbatch-run" $tiny -i "$work/none.png" -p "What is this?"
expect_error 1 "positions" "$bin/vlbatch-run" $tiny -p "What is this?" -n 100000
expect_error 1 "temperature" "$bin/vlbatch-run" $tiny -p "What is this?" -t -1

echo "make-model"
"$bin/vlbatch-make-model" --shape tiny --out "$work/random" --seed 3
"$bin/vlbatch-run" "$work/random" -i $tiny/eval/000.png -p "Hello." -n 4 --ignore-eos >/dev/null
expect_error 2 "random" "$bin/vlbatch-make-model" --shape tiny --out "$work/random"
echo "done"
