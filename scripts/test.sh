#!/usr/bin/env bash
# Builds and runs the tests: installs packages, fetches the model, builds the release preset, runs ctest.
#   scripts/test.sh [ctest arguments …]           all tests that take only seconds
#   scripts/test.sh --heavy [ctest arguments …]   tests that take minutes, on real processes: several choices, long chats, failures, faults,
#                                                 overload, resizing, priorities
#   scripts/test.sh --network [ctest arguments …] tests that drop packets between network namespaces; needs root
set -euo pipefail
cd "$(dirname "$0")/.."
labels=(--label-exclude "heavy|network")
case "${1:-}" in
  --heavy | --network)
    labels=(--label-regex "${1#--}")
    shift
    ;;
esac
scripts/install_packages.sh --test
export GTEST_BRIEF=1  # prints only failures, so that a truncated log still shows them
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
scripts/build.sh release tests
ctest --test-dir build/release --parallel 2 --output-on-failure --no-tests=error "${labels[@]}" "$@"
