#!/usr/bin/env bash
# Makes the committed seeds of fuzz targets from fuzz/corpus: few inputs that reach most of what all of them
# reach, in a size that a repository bears. Seeds with a name, such as regressions, stay.
#   fuzz/minimise.sh                 all targets
#   fuzz/minimise.sh frame payload   these
set -euo pipefail
cd "$(dirname "$0")/.."
# Of each target.
most_bytes=150000 most_files=90
nightly=$(cat .ci/nightly)
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cargo "+$nightly" fuzz list)
cover=$(mktemp -d) && trap 'rm -rf "$cover"' EXIT
for target in "${targets[@]}"; do
    corpus=fuzz/corpus/$target seeds=fuzz/seeds/$target
    mkdir -p "$corpus" "$seeds"
    cp "$seeds"/* "$corpus" 2>/dev/null || true
    cargo "+$nightly" fuzz cmin -s none "$target" "$corpus" -- -rss_limit_mb=4096 >/dev/null 2>&1
    # Each of these adds something that the others do not reach.
    rm -f "$cover"/*
    cargo "+$nightly" fuzz run -s none "$target" "$cover" "$corpus" -- -set_cover_merge=1 \
        -rss_limit_mb=4096 >/dev/null 2>&1
    find "$seeds" -type f -regextype posix-extended -regex '.*/[0-9a-f]{40}' -delete
    # Large inputs reach the most.
    python3 - "$cover" "$seeds" "$most_bytes" "$most_files" <<'PYTHON'
import pathlib, shutil, sys
corpus, seeds = map(pathlib.Path, sys.argv[1:3])
most_bytes, most_files = map(int, sys.argv[3:])
files = sorted(((f.stat().st_size, f.name) for f in corpus.iterdir()), reverse=True)
used = sum(f.stat().st_size for f in seeds.iterdir())
count = len(list(seeds.iterdir()))
for size, name in files:
    if used + size <= most_bytes and count < most_files and not (seeds / name).exists():
        shutil.copy(corpus / name, seeds / name)
        used += size
        count += 1
print(f"{seeds}: {len(list(seeds.iterdir()))} of {len(files)} files, {used} bytes")
PYTHON
done
