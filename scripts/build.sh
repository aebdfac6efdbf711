#!/usr/bin/env bash
# Configures and builds one preset: scripts/build.sh PRESET [TARGET …]. Prints ninja's own progress.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
# A build that was configured before the tests' packages were there has no target for them: again.
if ! grep -qs '^build tests: ' "build/$preset/build.ninja"; then
  cmake --preset "$preset" -Wno-dev >&2
fi
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}" >&2
