#!/usr/bin/env bash
# Runs everything that CI runs: the build, the tests and every slice, without the limit of 30 minutes. Then it replaces pods under
# load (scripts/kube_test.sh), mixes two versions (scripts/skew_test.sh), and puts back the faults of tests/regressions, whose tests
# must fail.
#   scripts/nightly.sh [SECONDS]     limit of each slice, 7200 by default
# Continues after a fault. The last lines name the parts that failed.
set -uo pipefail
cd "$(dirname "$0")/.."
limit_s=${1:-7200}
failed=()
scripts/install_packages.sh --test --clang || exit 1
scripts/build.sh release || failed+=("build")
scripts/test.sh || failed+=("scripts/test.sh")
for slice in $(scripts/ci_slice.py list); do
  scripts/ci_slice.sh "$slice" "$limit_s" || failed+=("slice $slice")
done
scripts/kube_test.sh || failed+=("scripts/kube_test.sh")
scripts/skew_test.sh || failed+=("scripts/skew_test.sh")
tests/regressions/reintroduce_faults.py || failed+=("tests/regressions")
echo "nightly: ${#failed[@]} parts failed"
[ ${#failed[@]} -eq 0 ] || printf '  failed: %s\n' "${failed[@]}"
[ ${#failed[@]} -eq 0 ]
