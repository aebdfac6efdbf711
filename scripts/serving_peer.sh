#!/usr/bin/env bash
# Compares a Baton service with llama-server under load, on the same file with the same threads and requests. bench/serving_peer.py
# has the details. llama.cpp is not part of Baton (scripts/llama_server.sh).
#   scripts/serving_peer.sh [--model FILE] [--server FILE] [--wheel] [--OPTION VALUE] …
#   --server FILE     a llama-server that exists, instead of a build (which takes some minutes)
#   --wheel           the prebuilt server of the wheel xllamacpp (scripts/llama_server.sh says when that is fair)
#   --clients LIST    numbers of clients (1,4,16,64); --requests N of each (4); --rounds N (3)
#   --trace FILE      also plays a Mooncake trace; --policies LIST: under these routing policies too
#   all other options are those of bench/serving_peer.py
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }

model=
server=
wheel=()
arguments=()
while [ $# -gt 0 ]; do
  case $1 in
    --help) usage; exit 0 ;;
    --wheel) wheel=(--wheel); shift; continue ;;
  esac
  [ $# -ge 2 ] || { usage >&2; exit 2; }
  case $1 in
    --model) model=$2 ;;
    --server) server=$2 ;;
    --*) arguments+=("$1" "$2") ;;
    *) usage >&2; exit 2 ;;
  esac
  shift 2
done
[ -n "$model" ] || model=$(scripts/fetch_model.sh)
[ -n "$server" ] || server=$(scripts/llama_server.sh "${wheel[@]}")
scripts/build.sh release baton baton-router baton-prefill-worker baton-decode-worker
exec python3 -B bench/serving_peer.py --baton build/release/bin/baton --server "$server" --model "$model" "${arguments[@]}"
