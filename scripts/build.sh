#!/usr/bin/env bash
# Configures and builds one preset, with ninja's progress: scripts/build.sh PRESET [TARGET …]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
[ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" -Wno-dev >&2
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}" >&2
