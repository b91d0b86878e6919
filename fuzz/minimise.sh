#!/usr/bin/env bash
# Makes the committed seeds of fuzz targets from fuzz/corpus: the smallest set that reaches the same, cut
# to a size that a repository bears. Seeds whose names begin with "regression" stay.
#   fuzz/minimise.sh                 all targets
#   fuzz/minimise.sh frame payload   these
set -euo pipefail
cd "$(dirname "$0")/.."
# Of each target.
most_bytes=150000 most_files=90
nightly=$(cat .ci/nightly)
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(cargo "+$nightly" fuzz list)
for target in "${targets[@]}"; do
    corpus=fuzz/corpus/$target seeds=fuzz/seeds/$target
    mkdir -p "$corpus" "$seeds"
    cp "$seeds"/* "$corpus" 2>/dev/null || true
    cargo "+$nightly" fuzz cmin -s none "$target" "$corpus" -- -rss_limit_mb=4096 >/dev/null 2>&1
    find "$seeds" -type f ! -name 'regression*' ! -name '*.*' -regextype posix-extended \
        -regex '.*/[0-9a-f]{40}' -delete
    # The smallest first: they reach the most for their bytes. Then some of the others, evenly.
    python3 - "$corpus" "$seeds" "$most_bytes" "$most_files" <<'PYTHON'
import pathlib, shutil, sys
corpus, seeds = map(pathlib.Path, sys.argv[1:3])
most_bytes, most_files = map(int, sys.argv[3:])
files = sorted((f.stat().st_size, f.name) for f in corpus.iterdir() if not f.name.startswith("regression"))
step = max(1, len(files) / most_files)
chosen = [files[int(i * step)] for i in range(min(most_files, len(files)))]
used = sum(f.stat().st_size for f in seeds.iterdir())
for size, name in chosen:
    if used + size <= most_bytes and not (seeds / name).exists():
        shutil.copy(corpus / name, seeds / name)
        used += size
print(f"{seeds}: {len(list(seeds.iterdir()))} of {len(files)} files, {used} bytes")
PYTHON
done
