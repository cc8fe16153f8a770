#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# limit.sh SECONDS COMMAND...: fails if the best of three runs of COMMAND takes more user CPU time than SECONDS.
set -u
limit=$1
shift
TIMEFORMAT=%U
best=
for _ in 1 2 3; do
  log=$(mktemp)
  taken=$({ time "$@" >"$log" 2>&1 || echo failed; } 2>&1)
  if [[ $taken == *failed* ]]; then
    cat "$log"
    rm -f "$log"
    echo "limit.sh: the command failed: $*"
    exit 1
  fi
  rm -f "$log"
  best=$(printf '%s\n' "$taken" $best | sort -n | head -1)
done
echo "user CPU time: $best s, limit $limit s"
awk -v t="$best" -v l="$limit" 'BEGIN { exit !(t < l) }'
