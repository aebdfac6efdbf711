#!/usr/bin/env bash
# Builds and runs the tests: installs what they need, fetches the model, builds the release preset, runs ctest.
#   scripts/test.sh [ctest arguments …]           all but those that take minutes
#   scripts/test.sh --heavy [ctest arguments …]   those: several choices, long chats, faults, overload, resizing, priorities on real processes
set -euo pipefail
cd "$(dirname "$0")/.."
labels=--label-exclude
if [ "${1:-}" = --heavy ]; then
  labels=--label-regex
  shift
fi
scripts/install_packages.sh --test
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
scripts/build.sh release tests
ctest --test-dir build/release --parallel 2 --output-on-failure --no-tests=error "$labels" heavy "$@"
