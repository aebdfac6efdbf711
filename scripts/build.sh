#!/usr/bin/env bash
# Configures and builds one preset, with ninja's progress: scripts/build.sh PRESET [TARGET …]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# Configures again if the build was configured before the packages for tests were installed: it then lacks their targets.
if ! grep -qs '^build tests: ' "build/$preset/build.ninja"; then
  cmake --preset "$preset" -Wno-dev >&2
fi
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}" >&2
