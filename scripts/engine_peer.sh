#!/usr/bin/env bash
# Compares engine_bench with llama.cpp. They alternate in rounds, on the same file with the same threads, prompts and batches.
# Shows our and the peer's best of all rounds and mean of all rounds, and the peer's best mode (flash attention, type of KV).
# The last line is one JSON object. bench/engine_peer.py has the details. Peers are not part of Baton: they are built or
# installed in ${XDG_CACHE_HOME:-~/.cache}/baton/peers.
#   scripts/engine_peer.sh [--model FILE] [--threads N] [--rounds N] [--prompts 512,2048] [--batches 1,4,16] [--peer-bin DIR]… [--wheel]
#   --rounds N       at least 3, which is the default
#   --peer-bin DIR   folder with llama-bench and llama-batched-bench of llama.cpp or a fork such as ik_llama.cpp. Repeatable.
#                    Default: llama.cpp from the PyPI source package llama-cpp-python, built once (takes some minutes).
#   --wheel          the prebuilt llama.cpp of the PyPI wheel xllamacpp instead of a build. It may lack this processor's
#                    instructions: its output shows which it has. Then compare with --instruction-set avx2.
#   --instruction-set NAME   of engine_bench
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,14s/^# \{0,1\}//p' "$0"; }

model=
wheel=
peers=()
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage; exit 0 ;;
    --wheel) wheel=1; shift; continue ;;
  esac
  [ $# -ge 2 ] || { usage >&2; exit 2; }
  case $1 in
    --model) model=$2 ;;
    --rounds)  # checked here, before minutes of building
      [[ $2 =~ ^[0-9]+$ ]] && [ "$2" -ge 3 ] || { echo "engine_peer: --rounds is $2; it must be 3 or more" >&2; exit 2; }
      arguments+=("$1" "$2")
      ;;
    --threads | --prompts | --batches | --instruction-set) arguments+=("$1" "$2") ;;
    --peer-bin) peers+=("$1" "$2") ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$model" ] || model=$(scripts/fetch_model.sh)
home=${XDG_CACHE_HOME:-$HOME/.cache}/baton/peers

version=0.3.36
build_llama_cpp() {  # builds llama.cpp if needed
  local source
  source=$(scripts/llama_server.sh --source)
  peers+=(--peer-bin "$source/build/bin")
  if ! [ -x "$source/build/bin/llama-batched-bench" ]; then
    echo "engine_peer: building llama.cpp in $source …" >&2
    cmake -S "$source/llama_cpp_python-$version/vendor/llama.cpp" -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_CURL=OFF > "$source/build.log" 2>&1
    nice cmake --build "$source/build" --target llama-bench llama-batched-bench >> "$source/build.log" 2>&1
  fi
}

install_wheel() {  # installs the wheel if needed
  local venv=$home/xllamacpp
  peers+=(--peer-python "$venv/bin/python")
  if ! "$venv/bin/python" -c 'import numpy, xllamacpp' 2> /dev/null; then
    echo "engine_peer: installing xllamacpp in $venv …" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check numpy xllamacpp==2026.10.11549
  fi
}

if [ -n "$wheel" ]; then
  install_wheel
elif [ ${#peers[@]} -eq 0 ]; then
  build_llama_cpp
fi
scripts/build.sh release engine_bench
exec python3 -B bench/engine_peer.py --engine-bench build/release/bin/engine_bench --model "$model" "${peers[@]}" "${arguments[@]}"
