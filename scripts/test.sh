#!/usr/bin/env bash
# Builds and runs all tests: installs what they need, fetches the model, builds the release preset, runs ctest.
#   scripts/test.sh [ctest arguments …]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh --test
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
scripts/build.sh release tests
ctest --test-dir build/release --parallel 2 --output-on-failure --no-tests=error "$@"
