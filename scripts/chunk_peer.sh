#!/usr/bin/env bash
# Compares the time to the first token behind reused prompt chunks with `llama-server --cache-reuse`, on the same file with the
# same threads and tokens. bench/chunk_peer.py has the details. llama.cpp is not part of Baton (scripts/llama_server.sh).
#   scripts/chunk_peer.sh [--model FILE] [--server FILE] [--threads N] [--rounds N] [--chunks N] [--chunk-tokens N]
#   --server FILE    a llama-server that exists, instead of a build (which takes some minutes)
set -euo pipefail
cd "$(dirname "$0")/.."
usage() { sed -n '2,5s/^# \{0,1\}//p' "$0"; }

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

[ -n "$server" ] || server=$(scripts/llama_server.sh)
scripts/build.sh release baton
exec python3 -B bench/chunk_peer.py --baton build/release/bin/baton --server "$server" --model "$model" "${arguments[@]}"
