#!/usr/bin/env bash
# Prepares the Python load scripts: installs gRPC for Python and generates the stubs of Baton's protocol. Other scripts source
# it from the repository's root, after they have set `bin`, `venv` and `me`.
[ -x "$bin/baton-router" ] || { echo "$me: $bin/baton-router is missing; build first: scripts/build.sh release" >&2; exit 1; }
if ! "$venv/bin/python" -c 'import grpc_tools' 2>/dev/null; then
  echo "$me: installing grpcio-tools into $venv …" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check grpcio-tools==1.85.1
fi
mkdir -p "$venv/stubs"
"$venv/bin/python" -m grpc_tools.protoc -I proto --python_out="$venv/stubs" --grpc_python_out="$venv/stubs" \
  proto/baton/v1/inference.proto proto/baton/v1/roles.proto proto/baton/v1/tenant.proto proto/baton/v1/transfer.proto \
  proto/baton/v1/worker.proto
