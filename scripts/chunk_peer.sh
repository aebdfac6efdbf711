#!/usr/bin/env bash
# Compares the time to the first token behind reused prompt chunks with `llama-server --cache-reuse`, on the same file with the
# same threads and tokens. bench/chunk_peer.py has the details. llama.cpp is not part of Baton: it is built from the PyPI source
# package llama-cpp-python in ${XDG_CACHE_HOME:-~/.cache}/baton/peers, in the folder of scripts/engine_peer.sh.
#   scripts/chunk_peer.sh [--model FILE] [--server FILE] [--threads N] [--rounds N] [--chunks N] [--chunk-tokens N]
#   --server FILE    a llama-server that exists, instead of a build (which takes some minutes)
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; }

model=
server=
arguments=()
while [ $# -gt 0 ]; do
  [ "$1" = --help ] && { usage; exit 0; }
  [ $# -ge 2 ] || { usage >&2; exit 2; }
  case $1 in
    --model) model=$2 ;;
    --server) server=$2 ;;
    --threads | --rounds | --chunks | --chunk-tokens) arguments+=("$1" "$2") ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$model" ] || model=$(scripts/fetch_model.sh)

version=$(sed -n 's/^version=//p' scripts/engine_peer.sh)
if [ -z "$server" ]; then
  source=${XDG_CACHE_HOME:-$HOME/.cache}/baton/peers/llama-cpp-python-$version
  server=$source/build/bin/llama-server
  if ! [ -x "$server" ]; then
    echo "chunk_peer: building llama-server in $source …" >&2
    [ -x "$source/venv/bin/pip" ] || python3 -m venv "$source/venv"
    if ! [ -d "$source/llama_cpp_python-$version" ]; then
      "$source/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
        --dest "$source" "llama-cpp-python==$version" >&2
      tar xzf "$source/llama_cpp_python-$version.tar.gz" -C "$source"
    fi
    cmake -S "$source/llama_cpp_python-$version/vendor/llama.cpp" -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF \
      -DLLAMA_USE_PREBUILT_UI=OFF >> "$source/build.log" 2>&1
    nice cmake --build "$source/build" --target llama-server >> "$source/build.log" 2>&1
  fi
fi
scripts/build.sh release baton
exec python3 -B bench/chunk_peer.py --baton build/release/bin/baton --server "$server" --model "$model" "${arguments[@]}"
