#!/usr/bin/env bash
# Many clients for minutes against two prefill and two decode workers: see tests/e2e/soak.py.
#   scripts/soak.sh [--seconds 300] [--clients 32] [--seed N] …
set -euo pipefail
cd "$(dirname "$0")/.."
bin=build/release/bin
venv=build/venv
[ -x "$bin/baton-router" ] || { echo "soak: no $bin/baton-router; build first (scripts/build.sh release)" >&2; exit 1; }
if ! "$venv/bin/python" -c 'import grpc_tools' 2>/dev/null; then
  echo "soak: installing grpcio-tools into $venv …" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check grpcio-tools==1.85.1
fi
mkdir -p "$venv/stubs"
"$venv/bin/python" -m grpc_tools.protoc -I proto --python_out="$venv/stubs" --grpc_python_out="$venv/stubs" \
  proto/baton/v1/inference.proto proto/baton/v1/transfer.proto proto/baton/v1/worker.proto
PYTHONPATH="$venv/stubs" exec "$venv/bin/python" tests/e2e/soak.py --bin "$bin" "$@"
