#!/usr/bin/env bash
# Runs one slice of the longer checks: scripts/ci_slice.sh NAME [SECONDS]
#   heavy      tests that take minutes on real processes, dropped packets between network namespaces, the longest lists of faults
#   asan       unit tests of the core and the simulation under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan       the same under ThreadSanitizer, built without gRPC
#   asan-grpc  tests of the gRPC edges under AddressSanitizer and UndefinedBehaviorSanitizer
#   cuda       nvcc on the changed CUDA kernels, for a third of the time; kernels on the emulator: under ThreadSanitizer (races) and
#              AddressSanitizer (bounds); nvcc on the other kernels
#   fuzz       every libFuzzer target for a minute
#   tidy       clang-format and clang-tidy on changed files, then the build without gRPC and its tests
# A slice ends after SECONDS (1800). It then prints what each check took and the checks that it did not finish, also for lack of a
# program. It fails only for the faults that it found.
# The commit's number chooses the check to start at, so a slow machine covers all checks over several commits.
set -uo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
if [ "${1:-}" = --knows ]; then  # used by tests/ci/ci_slice_test.py
  case ${2:-} in heavy | asan | tsan | asan-grpc | cuda | fuzz | tidy) exit 0 ;; *) exit 2 ;; esac
fi
# first_of COUNT: prints an index below COUNT for the commit's number. A multiplicative hash: the number itself chose the slice
# (ci_slice.py), so the numbers of one slice's commits may all have the same remainder.
first_of() { echo $(((number * 2654435761 >> 13 & 0x7fffffff) % $1)); }
if [ "${1:-}" = --first-of ]; then  # used by tests/ci/ci_slice_test.py: --first-of COUNT NUMBER …
  for number in "${@:3}"; do first_of "$2"; done
  exit 0
fi
[ $# -ge 1 ] || usage
slice=$1
limit_s=${2:-1800}
failed=() left=() took=()
number=$(git rev-list --count HEAD 2>/dev/null || echo 0)

remaining() { echo $((limit_s - SECONDS)); }

# within WHAT COMMAND…: runs the command in the remaining time. After a fault, notes it and the slice continues.
# Returns 0 only if the command succeeded.
within() {
  local what=$1 code=0 begin=$SECONDS
  shift
  if [ "$(remaining)" -lt 10 ]; then
    left+=("$what")
    return 1
  fi
  echo "== slice $slice: $what ($(remaining) s remain)" >&2
  timeout --kill-after=20 "$(remaining)" "$@" || code=$?
  took+=("$((SECONDS - begin)) s: $what")
  case $code in
    0) return 0 ;;
    75) left+=("$what: see its last lines") ;;  # scripts/run_ctest.py, scripts/compile_cuda.sh
    124 | 137) if [ "$(remaining)" -le 0 ]; then left+=("$what"); else failed+=("$what"); fi ;;
    *) failed+=("$what") ;;
  esac
  return 1
}

# rotated NAME…: prints the names, and starts with a name that the commit's number chooses.
rotated() {
  local names=("$@") first index
  first=$(first_of $#)
  for ((index = 0; index < $#; ++index)); do echo "${names[(first + index) % $#]}"; done
}

# tests_of WHAT BUILD [ctest arguments …]
tests_of() {
  local what=$1 build=$2
  shift 2
  # 20 s less than `within` allows, so that run_ctest.py can print the tests that it did not finish.
  within "$what" scripts/run_ctest.py "$build" --seconds $(($(remaining) > 30 ? $(remaining) - 20 : 10)) "$@"
}

# sanitized PRESET FOLDER…: builds and runs the tests folder by folder, each in $parts parts. If time runs out, only the last ones are
# missing.
parts=1
sanitized() {
  local preset=$1 folder part targets
  shift
  within "configuring $preset" cmake --preset "$preset" -Wno-dev || return
  for folder in $(rotated "$@"); do
    targets=("${folder}_tests")
    [ "$folder" = cluster_sim ] && targets=(cluster_sim)
    within "building ${targets[*]}" scripts/build.sh "$preset" "${targets[@]}" || continue
    for part in $(rotated $(seq "$parts")); do
      GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$((part - 1)) \
        tests_of "tests of $folder, part $part of $parts" "build/$preset" -R "^$folder(_(replay|sweep|mutants))?$"
    done
  done
}

# compiled WHAT SECONDS FILE…: compiles CUDA sources with nvcc. The commit's number chooses the first one.
compiled() {
  local what=$1 limit=$2
  shift 2
  [ $# -eq 0 ] || within "$what" scripts/compile_cuda.sh --seconds "$((limit > 10 ? limit : 10))" $(rotated "$@")
}

case $slice in
  heavy) scripts/install_packages.sh --test --browser || exit 1 ;;
  asan | tsan | asan-grpc | cuda) scripts/install_packages.sh --test || exit 1 ;;
  fuzz | tidy) scripts/install_packages.sh --test --clang || exit 1 ;;
  *) echo "ci_slice: no slice $slice" >&2; usage ;;
esac
BATON_TEST_MODEL=${BATON_TEST_MODEL:-$(scripts/fetch_model.sh)} || exit 1
export BATON_TEST_MODEL GTEST_BRIEF=1 TSAN_OPTIONS="halt_on_error=1 suppressions=$PWD/tests/tsan_suppressions.txt"
SECONDS=0

core=(common security http metrics tracing text requests openai kernels cache scheduler routing router loadtest model kvtransfer engine cli bench cluster_sim)
case $slice in
  heavy)
    within "building" scripts/build.sh release tests &&
      for label in $(rotated heavy network long); do tests_of "$label tests" build/release --label-regex "$label"; done
    ;;
  asan | tsan) sanitized "$slice" "${core[@]}" ;;
  asan-grpc) sanitized asan observe rpc tracing_otlp worker_rpc router_grpc router_http e2e ;;
  cuda)
    # First the changed kernels, because on a slow machine the tests take all the time.
    changed=$(scripts/ci_slice.py kernels)
    others=$(ls kernels/cuda/*.cu tests/cuda/*.cu bench/*.cu | grep -vxF "${changed:-none}")
    compiled "nvcc on changed kernels" $((limit_s / 3)) $changed
    # Neither preset ends in one slice on a slow machine, so a commit begins with one of ten parts. 5 and 2 have no common factor:
    # first_of then chooses the part and the preset independently.
    parts=5
    for preset in $(rotated tsan asan); do sanitized "$preset" cuda; done
    compiled "nvcc on other kernels" $(($(remaining) - 20)) $others
    ;;
  fuzz)
    for source in $(rotated tests/fuzz/*_fuzz.cc); do
      within "$(basename "$source" .cc)" scripts/fuzz.sh 60 "$(basename "$source" .cc)"
    done
    ;;
  tidy)
    within "style of changed files" scripts/check_style.py --seconds 600
    # In batches and with -O1, for time. A batch may hide a missing include; clang-tidy reads every changed file alone. With -O1, gcc
    # warns falsely of uninitialised values; the release build takes warnings as errors.
    within "configuring local" cmake --preset local -DBATON_UNITY=ON -DBATON_OPTIMIZATION=-O1 -DBATON_WERROR=OFF \
      -DBATON_INSTRUCTION_SETS=runnable -Wno-dev &&
      within "building without gRPC" scripts/build.sh local tests && tests_of "tests without gRPC" build/local
    ;;
esac

echo "slice $slice: ${#failed[@]} failed, ${#left[@]} not finished, $SECONDS s"
[ ${#took[@]} -eq 0 ] || printf '  took %s\n' "${took[@]}"
[ ${#failed[@]} -eq 0 ] || printf '  failed: %s\n' "${failed[@]}"
[ ${#left[@]} -eq 0 ] || printf '  left: %s\n' "${left[@]}"
[ ${#failed[@]} -eq 0 ]
