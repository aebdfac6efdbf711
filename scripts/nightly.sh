#!/usr/bin/env bash
# Everything that CI runs, in one night: the build, the tests, every slice without a limit of 30 minutes.
#   scripts/nightly.sh [SECONDS]     how long each slice may take, 7200 by default
# Goes on after a fault. The closing lines say which parts failed.
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
echo "nightly: ${#failed[@]} parts failed"
[ ${#failed[@]} -eq 0 ] || printf '  failed: %s\n' "${failed[@]}"
[ ${#failed[@]} -eq 0 ]
