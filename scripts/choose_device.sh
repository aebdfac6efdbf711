#!/usr/bin/env bash
# Prints the device that quickstart.sh builds for and runs on: "cuda" or "cpu". Prints the reason to standard error.
#   cuda   this machine has NVIDIA's driver and a compiler for CUDA kernels (nvcc)
set -euo pipefail
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
# Not `ldconfig -p | grep -q`: grep ends at the first match, and ldconfig may then fail because it can write no further.
libraries=$(ldconfig -p) || true
# Containers often name the driver's folder here. The program finds it in the same way.
IFS=: read -ra folders <<< "${LD_LIBRARY_PATH:-}"
for folder in "${folders[@]}"; do
  if [ -n "$folder" ] && [ -e "$folder/libcuda.so.1" ]; then libraries+=$'\n'"libcuda.so.1 => $folder"; fi
done
if [[ $libraries != *'libcuda.so.1 '* ]]; then
  echo "device: cpu (this machine has no CUDA driver)" >&2
  echo cpu
elif ! [ -x "$nvcc" ]; then
  echo "device: cpu (there is a CUDA driver but no nvcc, which compiles the kernels: install the CUDA toolkit, or set CUDA_HOME)" >&2
  echo cpu
else
  echo "device: cuda (found the CUDA driver and $nvcc)" >&2
  echo cuda
fi
