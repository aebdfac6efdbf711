#!/usr/bin/env bash
# Builds everything with AddressSanitizer and UndefinedBehaviorSanitizer, and everything without gRPC with ThreadSanitizer. Runs the
# unit tests of each build. Takes longer than scripts/test.sh.
#   scripts/test_sanitizers.sh [asan] [tsan]     default: both
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh --test
[ $# -eq 0 ] && set -- asan tsan
for preset in "$@"; do
  scripts/build.sh "$preset" tests
  TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/tsan_suppressions.txt" ctest --test-dir "build/$preset" --parallel 2 --output-on-failure --no-tests=error
done
