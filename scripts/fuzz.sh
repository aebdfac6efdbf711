#!/usr/bin/env bash
# Runs every libFuzzer target for a while: scripts/fuzz.sh [SECONDS]   (60 each by default). Findings lie in build/fuzz/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
command -v clang++ >/dev/null || { echo "fuzz: needs clang (apt-get install clang)" >&2; exit 1; }
[ -f build/fuzz/build.ninja ] || cmake --preset fuzz -DBATON_TESTS=ON -Wno-dev >&2
targets=()
for source in tests/fuzz/*_fuzz.cc; do targets+=("$(basename "$source" .cc)"); done
cmake --build --preset fuzz --target "${targets[@]}" >&2
for target in "${targets[@]}"; do
  # Templates come with model files: what they may cost is bounded (text/jinja/limits.h), also with a sanitizer around it.
  rss_limit_mb=2048
  [ "$target" = chat_template_fuzz ] && rss_limit_mb=1024
  mkdir -p "build/fuzz/corpus/$target"
  echo "== $target, $seconds s" >&2
  (cd build/fuzz && "bin/$target" -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=512 -rss_limit_mb="$rss_limit_mb" "corpus/$target")
done
