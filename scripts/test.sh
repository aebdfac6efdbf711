#!/usr/bin/env bash
# Builds and runs the tests: installs packages, fetches the model, builds the release preset, runs ctest.
#   scripts/test.sh [ctest arguments …]           all tests that take only seconds
#   scripts/test.sh --heavy [ctest arguments …]   tests that take minutes, on real processes: several choices, long chats, failures, faults,
#                                                 overload, resizing, priorities
#   scripts/test.sh --network [ctest arguments …] tests that drop packets between network namespaces; needs root
#   scripts/test.sh --long [ctest arguments …]    the longest lists of faults: tens of minutes
#   scripts/test.sh --help                        this text
# The last lines count the tests that passed, failed and were not run, with the reason why this machine could not run them.
set -euo pipefail
cd "$(dirname "$0")/.."
labels=(--label-exclude "heavy|network|long")
case "${1:-}" in
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --heavy | --network | --long)
    labels=(--label-regex "${1#--}")
    shift
    ;;
esac
scripts/install_packages.sh --test
export GTEST_BRIEF=1  # prints only failures, so that a truncated log still shows them
export BATON_TEST_MODEL
BATON_TEST_MODEL=$(scripts/fetch_model.sh)
# Offline, the tests that need it say that they did not run.
BATON_ORACLE_PYTHON=$(scripts/oracle_python.sh) && export BATON_ORACLE_PYTHON || echo "test.sh: no numpy and gguf from PyPI" >&2
BATON_KUBE_PYTHON=$(scripts/kube_python.sh) && export BATON_KUBE_PYTHON || echo "test.sh: no kubernetes-validate from PyPI" >&2
scripts/build.sh release tests
exec scripts/run_ctest.py build/release "${labels[@]}" "$@"
