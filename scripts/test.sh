#!/usr/bin/env bash
# Builds and runs the tests: installs what they need, fetches the model, builds the release preset, runs ctest; all but those with the label
# "heavy", which are scripts/test_heavy.sh.
#   scripts/test.sh [ctest arguments …]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh --test
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
scripts/build.sh release tests
ctest --test-dir build/release --parallel 2 --output-on-failure --no-tests=error --label-exclude heavy "$@"
