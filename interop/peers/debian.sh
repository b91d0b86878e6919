#!/usr/bin/env bash
# Installs Debian packages for the scripts of the peers: debian.sh PACKAGE..
set -euo pipefail
run=()
[ "$(id -u)" = 0 ] || run=(sudo)
export DEBIAN_FRONTEND=noninteractive
"${run[@]}" apt-get update -q
"${run[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "$@"
