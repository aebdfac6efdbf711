#!/usr/bin/env bash
# Builds and runs the tests: installs what they need, fetches the model, builds the release preset, runs ctest.
#   scripts/test.sh [ctest arguments …]           all but those that take minutes
#   scripts/test.sh --heavy [ctest arguments …]   those: several choices, long chats, failures, faults, overload, resizing, priorities on real processes
#   scripts/test.sh --network [ctest arguments …] packets dropped between network namespaces; needs root
#   scripts/test.sh --long [ctest arguments …]    the longest lists of faults: tens of minutes
# The closing lines count the tests that passed, failed and were not run, with the reason why this machine could not.
set -euo pipefail
cd "$(dirname "$0")/.."
labels=(--label-exclude "heavy|network|long")
case "${1:-}" in
  --heavy | --network | --long)
    labels=(--label-regex "${1#--}")
    shift
    ;;
esac
scripts/install_packages.sh --test
export GTEST_BRIEF=1 # a log that is cut short still shows what failed
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
scripts/build.sh release tests
exec scripts/run_ctest.py build/release "${labels[@]}" "$@"
