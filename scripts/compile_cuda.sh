#!/usr/bin/env bash
# Compiles every CUDA kernel with nvcc for sm_80 and sm_90a, and as PTX for later GPUs, which ptxas assembles for sm_90. Warnings
# are errors, and so are kernels without the tensor instructions that they are meant to have (scripts/tensor_instructions.py), and
# kernels that spill more registers than their limit (scripts/kernel_spills.py). Flags of the environment (NVCC_APPEND_FLAGS) have no
# effect.
#   scripts/compile_cuda.sh [FILE …]     default: all kernels, also those of the tests
set -euo pipefail
unset NVCC_APPEND_FLAGS NVCC_PREPEND_FLAGS
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || { echo "not run: no nvcc on this machine"; exit 0; }
[ $# -gt 0 ] || set -- kernels/cuda/*.cu tests/cuda/*.cu
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0
for source; do
  rm -rf "$out/kept"
  mkdir "$out/kept"
  "$nvcc" -std=c++17 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true -Xptxas=-v --Werror=all-warnings -I. --keep --keep-dir "$out/kept" -c "$source" -o "$out/object.o" \
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a \
    -gencode arch=compute_90,code=sm_90 >"$out/log" 2>&1 ||
    { cat "$out/log"; failed=1; continue; }
  python3 -B scripts/kernel_spills.py "$source" "$out/log" || failed=1
  python3 -B scripts/tensor_instructions.py "$source" $(find "$out/kept" -name '*.cubin') || failed=1
done
exit $failed
