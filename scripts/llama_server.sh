#!/usr/bin/env bash
# Prints the path of llama.cpp's llama-server, the peer of some benchmarks. Builds it once, from the PyPI source package
# llama-cpp-python in ${XDG_CACHE_HOME:-~/.cache}/baton/peers, in the folder of scripts/engine_peer.sh. That takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version=//p' scripts/engine_peer.sh)
source=${XDG_CACHE_HOME:-$HOME/.cache}/baton/peers/llama-cpp-python-$version
server=$source/build/bin/llama-server
if ! [ -x "$server" ]; then
  echo "llama_server: building llama-server in $source …" >&2
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
echo "$server"
