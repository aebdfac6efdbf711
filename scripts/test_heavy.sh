#!/usr/bin/env bash
# What scripts/test.sh leaves out because it takes minutes: several choices, long chats, faults, overload, resizing and priorities on real processes. CI runs
# both.
#   scripts/test_heavy.sh [ctest arguments …]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install_packages.sh --test
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
scripts/build.sh release tests
ctest --test-dir build/release --parallel 2 --output-on-failure --no-tests=error --label-regex heavy "$@"
