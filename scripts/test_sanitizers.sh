#!/usr/bin/env bash
# Heavier than scripts/test.sh: builds everything without gRPC under AddressSanitizer + UndefinedBehaviorSanitizer, then under
# ThreadSanitizer, and runs the unit tests in each.
#   scripts/test_sanitizers.sh [asan] [tsan]     default: both
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh --test
[ $# -eq 0 ] && set -- asan tsan
for preset in "$@"; do
  scripts/build.sh "$preset" tests
  TSAN_OPTIONS=halt_on_error=1 ctest --test-dir "build/$preset" --parallel 2 --output-on-failure --no-tests=error
done
