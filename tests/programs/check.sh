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
  "$bin/$program" --help >"$work/help"
  grep -q -- --help "$work/help" || fail "$program --help"
done

scripts/update-results --help >"$work/help"

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
expect_error 2 "--policies" "$bin/vlbatch-experiment" --policies fastest
# Manifests: every mistake is named with its row, key and value, and nothing that never ends is read.
short=("$bin/vlbatch-experiment" -q -n 1 --repeats 1 --policies continuous --vision inline --kv paged --no-encoder-cache-rows)
cp $tiny/eval/000.png "$work/000.png"
expect_manifest_error() { # TEXT MANIFEST
  printf '%s' "$2" >"$work/m.json"
  expect_error 2 "$1" timeout 60 "${short[@]}" --workload "$work/m.json"
}
expect_manifest_error 'row 0: max_new_tokens is 4294967301, expected a whole number' '{"rows":[{"image":"000.png","prompt":"x","max_new_tokens":4294967301}]}'
expect_manifest_error 'row 0: max_new_tokens is 1.5, expected a whole number' '{"rows":[{"image":"000.png","prompt":"x","max_new_tokens":1.5}]}'
expect_manifest_error 'row 0: max_new_tokens is -1, expected a whole number' '{"rows":[{"image":"000.png","prompt":"x","max_new_tokens":-1}]}'
expect_manifest_error 'row 0: prompt is of type number' '{"rows":[{"image":"000.png","prompt":5}]}'
expect_manifest_error 'row 0: image is missing' '{"rows":[{"prompt":"x"}]}'
expect_manifest_error 'row 0 is of type number' '{"rows":[5]}'
expect_manifest_error 'not a workload manifest' '[]'
expect_manifest_error 'not JSON' '{'
expect_manifest_error 'not a regular file' '{"rows":[{"image":"","prompt":"x"}]}'
expect_manifest_error 'nowhere.png: no such file' '{"rows":[{"image":"nowhere.png","prompt":"x"}]}'
mkfifo "$work/pipe"
expect_error 2 "not a regular file" timeout 60 "${short[@]}" --workload "$work/pipe"
printf '{"rows":[{"image":"%s/000.png","prompt":"x","max_new_tokens":1}]}' "$(realpath "$work")" >"$work/m.json"
"${short[@]}" --workload "$work/m.json" >/dev/null || fail "an absolute path of a picture"
# What cannot be written is found at once, and what was not written is no success.
expect_error 2 "cannot be written" timeout 60 "${short[@]}" --report "$work/nowhere/r.html"
expect_error 2 "both" "${short[@]}" --report "$work/same" --json "$work/same"
expect_error 2 "standard output cannot be written" bash -c '"$@" >/dev/full' - "${short[@]}"
expect_error 2 "standard output cannot be written" bash -c '"$@" >/dev/full' - "$bin/vlbatch-run" $tiny -p hi -n 2
# Lost requests are not compared.
"${short[@]}" --max-encoder-tokens 1 --policies sequential --json - >"$work/lost.json" 2>/dev/null && fail "refused requests are no success"
python3 -c 'import json, sys; assert all(r["completed"] == r["identical"] == 0 and r["speed_up"] is None for r in json.load(open(sys.argv[1])))' "$work/lost.json"
# A thread that the system refuses.
expect_error 2 "cannot be started" bash -c 'ulimit -s 8192; ulimit -v 2500000; timeout 60 "$@"' - "$bin/vlbatch-run" $tiny -p x -n 2 --threads 512

echo "run"
"$bin/vlbatch-run" $tiny -i $tiny/eval/000.png -p "Describe the picture." >"$work/answer"
python3 - "$work" $tiny <<'PY'
import json, struct, sys
work, tiny = sys.argv[1:]
reference = json.load(open(tiny + "/eval/reference.json"))["rows"][0]
assert open(work + "/answer").read() == reference["text"] + "\n", open(work + "/answer").read()
PY
echo "What is in the cell centre?" | "$bin/vlbatch-run" $tiny -i $tiny/eval/000.png -p - -n 3 -t 0.7 --top-k 5 --seed 3 -v >"$work/sampled" 2>"$work/err"
grep -q . "$work/sampled" || fail "sampling said nothing"
grep -q "prompt tokens" "$work/err" || fail "-v says nothing"
"$bin/vlbatch-run" $tiny -i $tiny/eval/000.png -p "Describe the picture." --dump-logits "$work/logits.npy"
size=$(stat -c %s "$work/logits.npy")
[ "$size" = $((128 + 52 * 488 * 4)) ] || fail "logits.npy has $size bytes"
expect_error 1 "config.json" "$bin/vlbatch-run" $tiny -i $tiny/config.json -p "What is this?"
expect_error 2 "whole number" "$bin/vlbatch-run" $tiny -p x --seed -1
expect_error 2 "whole number" "$bin/vlbatch-run" $tiny -p x --seed 18446744073709551616
[ "$("$bin/vlbatch-run" -p "Describe the picture." -i $tiny/eval/000.png $tiny --stop '[left]')" = "$(cat "$work/answer")" ] || fail "brackets of --stop, or the model after a list"
"$bin/vlbatch-run" $tiny -p x -n 0 -v 2>"$work/err"
grep -q "first token after -" "$work/err" || fail "no token has no first token"
cp -r $tiny "$work/nan" && python3 - "$work/nan/model.safetensors" <<'PY'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
begin, end = json.loads(data[8:8 + n])["model.text_model.norm.weight"]["data_offsets"]
data[8 + n + begin:8 + n + end] = b"\xc0\x7f" * ((end - begin) // 2)
open(sys.argv[1], "wb").write(data)
PY
expect_error 2 "not finite" "$bin/vlbatch-run" "$work/nan" -p x --dump-logits "$work/nan.npy"
expect_error 1 "none.png" "$bin/vlbatch-run" $tiny -i "$work/none.png" -p "What is this?"
expect_error 1 "positions" "$bin/vlbatch-run" $tiny -p "What is this?" -n 100000
expect_error 1 "temperature" "$bin/vlbatch-run" $tiny -p "What is this?" -t -1

echo "make-model"
"$bin/vlbatch-make-model" --shape tiny --out "$work/random" --seed 3
"$bin/vlbatch-run" "$work/random" -i $tiny/eval/000.png -p "Hello." -n 4 --ignore-eos >/dev/null
expect_error 2 "random" "$bin/vlbatch-make-model" --shape tiny --out "$work/random"
echo "done"
