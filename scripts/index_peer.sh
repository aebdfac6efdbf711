#!/usr/bin/env bash
# Compares index_bench with Dynamo's radix tree from PyPI, in one run on the same operations. The last line is one JSON object
# with the figures of both. The peer's names start with peer_.
#   scripts/index_peer.sh TRACE [WORKERS]     TRACE: JSON lines in Mooncake's format; WORKERS: default 16
set -euo pipefail
cd "$(dirname "$0")/.."
trace=${1:?the first argument must be a trace: JSON lines with hash_ids, in the format of Mooncake}
workers=${2:-16}
venv=build/peer-venv
scripts/build.sh release index_bench
if ! "$venv/bin/python" -c 'import dynamo._core' 2>/dev/null; then
  echo "index_peer: installing ai-dynamo-runtime into $venv …" >&2
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check ai-dynamo-runtime==1.6.1
fi
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
build/release/bin/index_bench --trace "$trace" --workers "$workers" --dump-operations "$scratch/operations" \
  > "$scratch/ours"
sed '$d' "$scratch/ours"
echo
"$venv/bin/python" tests/oracle/dynamo_peer.py --operations "$scratch/operations" --beside "$scratch/ours"
