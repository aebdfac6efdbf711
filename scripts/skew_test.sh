#!/usr/bin/env bash
# Runs the programs of this tree together with those of the release before: routers and workers of both, in every combination, and an
# upgrade under load.
#   scripts/skew_test.sh [--previous REV] [--previous-bin DIR] [--bin DIR]
#     --previous REV       the release before; it is checked out and built under build/compare/ (default: the last tag, or without
#                          tags the commit that wrote the newest protocol of proto/released/)
#     --previous-bin DIR   its programs, if they are built already
#     --bin DIR            the programs of this tree (default: build/release/bin, which is built)
set -euo pipefail
cd "$(dirname "$0")/.."
revision= previous= bin=
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  case $1 in
    --previous) revision=$2 ;;
    --previous-bin) previous=$2 ;;
    --bin) bin=$2 ;;
    *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
programs=(baton baton-router baton-prefill-worker baton-decode-worker)
if [ -z "$previous" ]; then
  revision=${revision:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
  revision=${revision:-$(git log -1 --format=%H -- proto/released)}
  [ -n "$revision" ] || { echo "skew_test: there is neither a tag nor a released protocol; name a commit with --previous" >&2; exit 2; }
  commit=$(git rev-parse --verify --quiet "$revision^{commit}") || { echo "skew_test: $revision is not a commit" >&2; exit 2; }
  old=build/compare/${commit:0:12}
  [ -e "$old/.git" ] || git worktree add --force --detach "$old" "$commit" >&2
  "$old/scripts/build.sh" release "${programs[@]}"
  previous=$old/build/release/bin
fi
if [ -z "$bin" ]; then
  scripts/build.sh release "${programs[@]}"
  bin=build/release/bin
fi
exec python3 -B tests/e2e/skew_test.py --previous "$previous" --bin "$bin"
