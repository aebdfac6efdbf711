#!/usr/bin/env bash
# Configures and builds one preset, with ninja's progress: scripts/build.sh [--native] PRESET [TARGET …]
#   --native   a fresh build gets only the kernels that are the fastest on this machine. A build that exists keeps its kernels.
#              Without --native, a build always has the kernels of all instruction sets.
set -euo pipefail
cd "$(dirname "$0")/.."
native=false
if [ "${1:-}" = --native ]; then
  native=true
  shift
fi
preset=${1:-}
known=$(sed -n 's/^ *"name": "\([a-z-]*\)".*/\1/p' CMakePresets.json | sort -u | tr '\n' ' ')
case " $known" in
  *" $preset "*) shift ;;
  *) echo "build.sh: no preset \"$preset\"; one of: $known" >&2; exit 2 ;;
esac
ninja=build/$preset/build.ninja
if $native; then
  [ -f "$ninja" ] || cmake --preset "$preset" -DBATON_INSTRUCTION_SETS=native -Wno-dev >&2
# Configures again if the build was configured before the packages for tests were installed, because it then lacks their
# targets, and if it lacks kernels.
elif ! grep -qs '^build tests: ' "$ninja" || grep -qs '^BATON_INSTRUCTION_SETS:STRING=native$' "build/$preset/CMakeCache.txt"; then
  cmake --preset "$preset" -Wno-dev >&2
fi
targets=()
[ $# -gt 0 ] && targets=(--target "$@")
cmake --build --preset "$preset" "${targets[@]}" >&2
