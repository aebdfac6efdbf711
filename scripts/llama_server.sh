#!/usr/bin/env bash
# Prints the path of llama.cpp's server, the peer of some benchmarks. Peers live in ${XDG_CACHE_HOME:-~/.cache}/baton/peers.
#   scripts/llama_server.sh [--wheel | --source]
#   default   llama-server, built once from the PyPI source package llama-cpp-python, in the folder where scripts/engine_peer.sh builds too.
#             That takes some minutes.
#   --source  only fetches the sources, and prints the folder of that package. Its build folder is build/.
#   --wheel   the prebuilt llama.cpp of the PyPI wheel xllamacpp, behind llama-server's options (bench/llama_wheel_server.py). It may
#             lack this processor's instructions: standard error shows which it has. A processor with AVX-512 needs the build.
set -euo pipefail
cd "$(dirname "$0")/.."
home=${XDG_CACHE_HOME:-$HOME/.cache}/baton/peers

if [ "${1:-}" = --wheel ]; then
  venv=$home/xllamacpp
  server=$venv/llama-server
  wheel=$(grep -o 'xllamacpp==[0-9.]*' scripts/engine_peer.sh)
  if ! "$venv/bin/python" -c 'import numpy, xllamacpp' 2> /dev/null; then
    echo "llama_server: installing $wheel in $venv …" >&2
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check numpy "$wheel" >&2
  fi
  printf '#!/bin/sh\nexec "%s" -B "%s" "$@"\n' "$venv/bin/python" "$PWD/bench/llama_wheel_server.py" > "$server"
  chmod +x "$server"
  echo "llama_server: $("$server" --about)" >&2
  echo "$server"
  exit
fi

version=$(sed -n 's/^version=//p' scripts/engine_peer.sh)
source=$home/llama-cpp-python-$version
server=$source/build/bin/llama-server
if ! [ -d "$source/llama_cpp_python-$version" ]; then
  echo "llama_server: fetching the sources of llama-cpp-python $version …" >&2
  python3 -m venv "$source/venv"
  "$source/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
    --dest "$source" "llama-cpp-python==$version" >&2
  tar xzf "$source/llama_cpp_python-$version.tar.gz" -C "$source"
fi
# To GCC 12, _tile_loadconfig reads only eight bytes. It leaves out the rest of the tiles' shapes, and AMX ends with SIGILL.
tiles=$source/llama_cpp_python-$version/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
barrier='asm volatile("" : : "r"(&tc) : "memory"); _tile_loadconfig(&tc);'
if ! grep -qF "$barrier" "$tiles"; then
  sed -i "s/^ *_tile_loadconfig(&tc);/    ${barrier//&/\\&}/" "$tiles"
  grep -qF "$barrier" "$tiles" || { echo "llama_server: $tiles has no line _tile_loadconfig(&tc); to mend" >&2; exit 1; }
  rm -f "$source"/build/bin/llama-*  # of the unmended source
fi
if [ "${1:-}" = --source ]; then
  echo "$source"
  exit
fi
if ! [ -x "$server" ]; then
  echo "llama_server: building llama-server in $source …" >&2
  cmake -S "$source/llama_cpp_python-$version/vendor/llama.cpp" -B "$source/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF >> "$source/build.log" 2>&1
  nice cmake --build "$source/build" --target llama-server >> "$source/build.log" 2>&1
fi
echo "$server"
