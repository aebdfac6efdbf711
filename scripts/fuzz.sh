#!/usr/bin/env bash
# Runs every libFuzzer target for SECONDS (default 60): scripts/fuzz.sh [SECONDS]. Findings are in build/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v clang++ >/dev/null || { echo "fuzz: clang++ not found; install it (apt-get install clang)" >&2; exit 1; }
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz -DBATON_TESTS=ON -Wno-dev >&2
targets=()
for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
cmake --build --preset fuzz --target "${targets[@]}" >&2
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target, $seconds s" >&2
  (cd build/fuzz && "bin/$target" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=512 "corpus/$target")
done
