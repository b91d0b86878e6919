# For the install scripts of peers that are crates.

set -euo pipefail
peers=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# install_crate PACKAGE PROGRAM CRATE: builds PROGRAM and prints CRATE's version and where it is.
install_crate() {
    cd "$peers"
    cargo build --locked --quiet -p "$1" --bin "$2" >&2
    version=$(awk -v name="\"$3\"" '$1 == "name" { found = $3 == name }
        found && $1 == "version" { gsub("\"", "", $3); print $3; exit }' Cargo.lock)
    printf '%s\t%s\n' "$version" "${CARGO_TARGET_DIR:-$peers/target}/debug/$2"
}
