#!/usr/bin/env bash
# Prints which share of the core's lines, by module, the committed seeds of the fuzz targets reach; with
# --unit, seeds and the core's unit tests together; with --tests, all of the core's tests, which takes long as
# nothing is optimised. Test code does not count.
#   fuzz/coverage.sh [--unit | --tests]
set -euo pipefail
cd "$(dirname "$0")/.."
nightly=$(cat .ci/nightly)
root=$PWD
tools=$(rustc "+$nightly" --print target-libdir)/../bin
if [[ ! -x $tools/llvm-profdata || ! -x $tools/llvm-cov ]]; then
    echo "llvm-profdata and llvm-cov are missing: rustup component add llvm-tools --toolchain $nightly" >&2
    exit 1
fi
export CARGO_TARGET_DIR=$root/fuzz/target/coverage CARGO_INCREMENTAL=0 CARGO_TERM_COLOR=never
profiles=$CARGO_TARGET_DIR/profiles
rm -rf "$profiles" && mkdir -p "$profiles"
objects=()

# Nothing is optimised away: lines stay lines.
export RUSTFLAGS="-Cinstrument-coverage -Cdebug-assertions"
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
# Building runs instrumented build scripts and macros, too.
export LLVM_PROFILE_FILE=$CARGO_TARGET_DIR/building-%m.profraw
cargo "+$nightly" build --manifest-path fuzz/Cargo.toml --bins --locked
for seeds in fuzz/seeds/*; do
    program=$CARGO_TARGET_DIR/debug/$(basename "$seeds")
    LLVM_PROFILE_FILE=$profiles/$(basename "$seeds").profraw "$program" "$seeds"/* >/dev/null 2>&1 ||
        { echo "$(basename "$seeds") fails on its seeds" >&2; exit 1; }
    objects+=(-object "$program")
done
case ${1:-} in
"") programs=() ;;
--unit) programs=(--lib) ;;
--tests) programs=(--lib --tests) ;;
*)
    echo "unknown option $1" >&2
    exit 2
    ;;
esac
if [[ ${#programs[@]} != 0 ]]; then
    while read -r program; do
        (cd crates/mpquic-core && LLVM_PROFILE_FILE=$profiles/tests-%p.profraw "$program" -q >/dev/null)
        objects+=(-object "$program")
    done < <(cargo "+$nightly" test -p mpquic-core --locked "${programs[@]}" --no-run --message-format=json |
        python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["profile"]["test"]:
        print(made["executable"])')
fi
"$tools/llvm-profdata" merge -sparse "$profiles"/*.profraw -o "$profiles/all.profdata"
"$tools/llvm-cov" export -format=lcov -instr-profile="$profiles/all.profdata" "${objects[@]:1}" \
    --sources "$root/crates/mpquic-core/src" >"$profiles/all.lcov"
rm -f "$CARGO_TARGET_DIR"/building-*.profraw

python3 - "$profiles/all.lcov" "$root/crates/mpquic-core/src/" <<'PYTHON'
import collections, pathlib, sys
lcov, source = sys.argv[1:]
lines = collections.defaultdict(dict)
for record in open(lcov):
    kind, _, rest = record.rstrip().partition(":")
    if kind == "SF":
        file = rest
    elif kind == "DA" and file.startswith(source):
        line, count = map(int, rest.split(",")[:2])
        lines[file][line] = max(count, lines[file].get(line, 0))
modules = collections.defaultdict(lambda: [0, 0])
for file, counts in lines.items():
    name = file[len(source):]
    parts = pathlib.PurePath(name).with_suffix("").parts
    if "tests" in parts or parts[-1] in ("testing", "tests") or parts[0] == "testing":
        continue
    # Tests stand at the end of a file.
    text = pathlib.Path(file).read_text().splitlines()
    end = next((n for n, line in enumerate(text, 1) if line.strip() == "mod tests {"), len(text) + 1)
    counted = [count for line, count in counts.items() if line < end]
    for module in (parts[0], "all"):
        modules[module][0] += sum(count > 0 for count in counted)
        modules[module][1] += len(counted)
first = "wire packet space cid path recovery stream endpoint".split()
order = [m for m in first if m in modules] + sorted(set(modules) - set(first) - {"all"}) + ["all"]
print("| module | lines | reached | share |\n| --- | --- | --- | --- |")
for module in order:
    reached, total = modules[module]
    print(f"| {module} | {total} | {reached} | {100 * reached / max(total, 1):.1f} % |")
PYTHON
