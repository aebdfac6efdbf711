#!/usr/bin/env bash
# Builds and runs libFuzzer targets: scripts/fuzz.sh [SECONDS [TARGET …]]. Default: all targets, 60 s each. Findings are in build/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -eq 0 ] || shift
command -v clang++ >/dev/null || { echo "fuzz: clang++ not found; install it (scripts/install_packages.sh --clang)" >&2; exit 1; }
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz -DBATON_TESTS=ON -Wno-dev >&2
targets=("$@")
if [ $# -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
fi
cmake --build --preset fuzz --target "${targets[@]}" >&2
for target in "${targets[@]}"; do
  # Templates come with model files. Their memory is bounded (text/jinja/limits.h), also in a build with sanitizers.
  rss_limit_mb=2048
  [ "$target" = chat_template_fuzz ] && rss_limit_mb=1024
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target, $seconds s" >&2
  (cd build/fuzz && "bin/$target" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=512 -rss_limit_mb="$rss_limit_mb" "corpus/$target")
done
