#!/usr/bin/env bash
# Sets up what the Python load scripts need: gRPC for Python, and the stubs of our protocol. Sourced from the repository's root
# by scripts that have set `bin`, `venv` and `me`.
[ -x "$bin/baton-router" ] || { echo "$me: no $bin/baton-router; build first (scripts/build.sh release)" >&2; exit 1; }
if ! "$venv/bin/python" -c 'import grpc_tools' 2>/dev/null; then
  echo "$me: installing grpcio-tools into $venv …" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check grpcio-tools==1.85.1
fi
mkdir -p "$venv/stubs"
"$venv/bin/python" -m grpc_tools.protoc -I proto --python_out="$venv/stubs" --grpc_python_out="$venv/stubs" \
  proto/baton/v1/inference.proto proto/baton/v1/transfer.proto proto/baton/v1/worker.proto
