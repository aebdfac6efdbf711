#!/usr/bin/env bash
# Compares the speed of two builds: a commit (old) and the working tree (new).
#   scripts/compare_builds.sh REV [--pairs N] [--bench LIST] [benchmark arguments …]
#     REV            the old commit; it is checked out and built under build/compare/
#     --pairs N      pairs of runs (default 10; fewer than 6 give no 95 % interval)
#     --bench LIST   benchmarks, comma-separated, of engine,transfer,index,routing (default: all four)
#   All other arguments go to every benchmark. If you give any, choose only one benchmark.
#   Example: scripts/compare_builds.sh origin/main --bench engine --only decode_1_,prefill_512
# Every round runs old, new and old again, in an order that changes. For each figure, the table shows the median of
# the rounds' ratios with its 95 % interval: new/old, and old/old (A/A) as a measure of the noise. A ratio above 1
# is always faster. SLOWER marks a figure whose whole interval is below 0.99. The exit code is then 1.
set -euo pipefail
usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; }
[ "${1:-}" = --help ] && { usage; exit 0; }
[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || { usage >&2; exit 2; }
revision=$1
shift
pairs=10
benches=engine,transfer,index,routing
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage; exit 0 ;;
    --pairs | --bench)
      [ $# -ge 2 ] || { echo "compare_builds: $1 needs a value" >&2; exit 2; }
      if [ "$1" = --pairs ]; then pairs=$2; else benches=$2; fi
      shift 2
      ;;
    *) arguments+=("$1"); shift ;;
  esac
done
[[ $pairs =~ ^[1-9][0-9]*$ ]] || { echo "compare_builds: --pairs is $pairs; it must be 1 or more" >&2; exit 2; }
targets=()
for bench in ${benches//,/ }; do
  case $bench in
    engine | transfer | index | routing) targets+=("${bench}_bench") ;;
    *) echo "compare_builds: unknown --bench $bench; known: engine, transfer, index, routing" >&2; exit 2 ;;
  esac
done
[ ${#targets[@]} -gt 0 ] || { echo "compare_builds: --bench is empty" >&2; exit 2; }

cd "$(dirname "$0")/.."
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || {
  echo "compare_builds: $revision is not a commit" >&2
  exit 2
}
old=build/compare/${commit:0:12}
[ -e "$old/.git" ] || git worktree add --force --detach "$old" "$commit" >&2
"$old/scripts/build.sh" release "${targets[@]}"
scripts/build.sh release "${targets[@]}"
exec python3 -B bench/compare_builds.py --old "$old/build/release/bin" --new build/release/bin --pairs "$pairs" \
  --bench "$benches" -- "${arguments[@]}"
