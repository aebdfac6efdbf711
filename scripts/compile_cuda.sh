#!/usr/bin/env bash
# Compiles every CUDA kernel with nvcc for sm_80 and sm_90a, and as PTX for later GPUs, which ptxas assembles for sm_90. Warnings
# are errors, and so are kernels without the tensor instructions that they are meant to have (scripts/tensor_instructions.py),
# kernels that spill more registers than their limit (scripts/kernel_spills.py), kernels that touch device memory before they wait for
# earlier kernels (scripts/early_accesses.py), and ptxas's messages C75xx, which say that wgmma products wait for each other and which
# --Werror does not see. Flags of the environment (NVCC_APPEND_FLAGS) have no effect.
#   scripts/compile_cuda.sh [--seconds N] [FILE …]     default: all kernels, also those of tests and benchmarks
# After N seconds it stops, and names the files that it did not compile. The exit code is 1 after an error. It is 75 if there was none
# but nvcc is missing or files are left.
set -euo pipefail
unset NVCC_APPEND_FLAGS NVCC_PREPEND_FLAGS
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || { echo "not compiled: there is no nvcc on this machine"; exit 75; }
limit_s=
if [ "${1:-}" = --seconds ]; then
  limit_s=${2:?--seconds needs a number}
  shift 2
fi
[ $# -gt 0 ] || set -- kernels/cuda/*.cu tests/cuda/*.cu bench/*.cu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0 left=()
SECONDS=0
for source; do
  bounded=()
  if [ -n "$limit_s" ]; then
    remaining_s=$((limit_s - SECONDS))
    [ $remaining_s -gt 0 ] || { left+=("$source"); continue; }
    bounded=(timeout --kill-after=10 $remaining_s)
  fi
  rm -rf "$out/kept"
  mkdir "$out/kept"
  "${bounded[@]}" "$nvcc" -std=c++17 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Xptxas=-v --Werror=all-warnings -I. --keep --keep-dir "$out/kept" -c "$source" -o "$out/object.o" \
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a \
    -gencode arch=compute_90,code=sm_90 >"$out/log" 2>&1 ||
    { case $? in 124 | 137) left+=("$source") ;; *) cat "$out/log"; failed=1 ;; esac; continue; }  # timeout's codes
  python3 -B scripts/kernel_spills.py "$source" "$out/log" || failed=1
  serial=$(grep -E '\(C75[0-9][0-9]\)' "$out/log" || true)
  [ -z "$serial" ] || { sed "s|^|$source: |" <<<"$serial"; failed=1; }
  python3 -B scripts/tensor_instructions.py "$source" $(find "$out/kept" -name '*.cubin') || failed=1
  python3 -B scripts/early_accesses.py "$source" $(find "$out/kept" -name '*.cubin') || failed=1
done
[ ${#left[@]} -eq 0 ] || echo "not compiled for lack of time: ${left[*]}"
[ $failed -eq 0 ] || exit 1
[ ${#left[@]} -eq 0 ] || exit 75
