#!/usr/bin/env bash
# Runs all seeds of a fuzz target that is built (`cargo fuzz build -s none`), and then new inputs for some
# seconds. What was found goes to fuzz/artifacts.
#   fuzz/short.sh frame 4
set -euo pipefail
cd "$(dirname "$0")"
target=$1 seconds=$2
mkdir -p "corpus/$target" "artifacts/$target"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
programs=$(dirname "$(ls -d target/*/release/frame)")
if ! "$programs/$target" "corpus/$target" "seeds/$target" -max_total_time="$seconds" -rss_limit_mb=4096 \
    -artifact_prefix="artifacts/$target/" >"$log" 2>&1; then
    cat "$log"
    echo "$target: a finding" >&2
    exit 255 # so that xargs begins no other
fi
printf '%s: %s\n' "$target" "$(tail -n 1 "$log")"
