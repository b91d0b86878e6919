#!/usr/bin/env bash
# Runs fuzz targets for so many minutes of CPU time each, and prints what came of it as a table. The inputs
# that reach something new are kept in fuzz/corpus, which is not committed; fuzz/minimise.sh makes seeds of
# them.
#   fuzz/long.sh 24                  all targets, 24 minutes each
#   fuzz/long.sh 3 frame payload     these
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${1:?minutes of CPU time for each target}
shift
nightly=$(cat .ci/nightly)
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cargo "+$nightly" fuzz list)

cargo "+$nightly" fuzz build -s none
programs=fuzz/target/x86_64-unknown-linux-gnu/release
[[ -d $programs ]] || programs=$(dirname "$(ls -d fuzz/target/*/release/frame)")

log=$(mktemp) && trap 'rm -f "$log"' EXIT
total_findings=0
printf '| %-20s | %7s | %12s | %7s | %6s | %8s | %8s |\n' target CPU-min executions per-sec edges features findings
printf '| --- | --- | --- | --- | --- | --- | --- |\n'
for target in "${targets[@]}"; do
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    before=$(find "fuzz/artifacts/$target" -type f | wc -l)
    # Hundredths of seconds.
    executions=0 edges=0 features=0 used=0
    limit=$((minutes * 6000))
    findings=0
    # In slices of a minute or less by the clock, until the CPU time is used up or enough was found.
    while ((used < limit && findings < 10)); do
        slice=$(((limit - used + 99) / 100))
        ((slice <= 60)) || slice=60
        TIMEFORMAT='%U %S'
        spent=$({ time "$programs/$target" "fuzz/corpus/$target" "fuzz/seeds/$target" \
            -max_total_time="$slice" -rss_limit_mb=4096 -timeout=60 -len_control=20 -print_final_stats=1 \
            -artifact_prefix="fuzz/artifacts/$target/" >"$log" 2>&1 || true; } 2>&1 | tail -1)
        used=$(awk -v used="$used" '{ printf "%d", used + 100 * ($1 + $2) + 1 }' <<<"$spent")
        executions=$((executions + $(awk '/number_of_executed_units/ { n = $2 } END { print n + 0 }' "$log")))
        read -r edges features < <(awk -v edges="$edges" -v features="$features" '
            { for (i = 1; i < NF; i++) { if ($i == "cov:") edges = $(i + 1); if ($i == "ft:") features = $(i + 1) } }
            END { print edges, features }' "$log")
        findings=$(($(find "fuzz/artifacts/$target" -type f | wc -l) - before))
    done
    total_findings=$((total_findings + findings))
    printf '| %-20s | %7s | %12s | %7s | %6s | %8s | %8s |\n' "$target" \
        "$(awk -v used="$used" 'BEGIN { printf "%.1f", used / 6000 }')" "$executions" \
        "$((100 * executions / used))" "$edges" "$features" "$findings"
done
((total_findings == 0))
