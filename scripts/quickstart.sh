#!/usr/bin/env bash
# From a fresh clone to an answer. Installs packages, fetches the model, builds, and starts router, prefill worker and
# decode worker as three processes. Then asks a question, streams the answer and prints where the time went.
#
#   scripts/quickstart.sh                     asks the default question and stops all processes
#   scripts/quickstart.sh "Your question"     asks your question and stops all processes
#   scripts/quickstart.sh --serve             leaves the service running until Ctrl-C, with OpenAI's API over HTTP
#   scripts/quickstart.sh --device cpu|cuda   builds for this device. Default: cuda where NVIDIA's driver and nvcc are found.
#                                             No real GPU has run Baton yet.
set -euo pipefail
cd "$(dirname "$0")/.."

serve=false
device=
question="What is gravity?"
address=127.0.0.1:50051
http_address=127.0.0.1:8000
while [ $# -gt 0 ]; do
  case $1 in
    --serve) serve=true ;;
    --router-address) address=$2; shift ;;
    --http-address) http_address=$2; shift ;;
    --device) device=${2:-}; shift
      [[ $device =~ ^(cpu|cuda)$ ]] || { echo "quickstart: --device is '$device'; it must be cpu or cuda" >&2; exit 2; } ;;
    -h | --help) sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
    -*) echo "quickstart: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) question=$1 ;;
  esac
  shift
done

step() { printf '\n== %s (after %d s)\n' "$*" "$SECONDS" >&2; }

step "1/5 packages"
scripts/install_packages.sh
step "2/5 model"
model=$(scripts/fetch_model.sh)
echo "$model" >&2
step "3/5 build, with the kernels for this machine"
[ -n "$device" ] || device=$(scripts/choose_device.sh)
targets=(baton baton-router baton-worker baton-prefill-worker baton-decode-worker)
preset=release
workers=()
if [ "$device" = cuda ]; then
  preset=cuda
  targets+=(baton_cuda_kernels)
  workers=(--worker-argument=--device=cuda --worker-argument=--kv-cache-mib=1024)  # two workers share the GPU
fi
scripts/build.sh --native "$preset" "${targets[@]}"
bin=build/$preset/bin

serving=()
if $serve; then serving=(--http-address "$http_address"); fi
step "4/5 start: router, prefill worker, decode worker"
log=$(mktemp -t baton-quickstart.XXXXXX.log)
ready=$(mktemp -t baton-quickstart.XXXXXX.ready)
"$bin/baton" up --model "$model" --prefill-workers 1 --decode-workers 1 --router-address "$address" "${serving[@]}" \
  "${workers[@]}" \
  >"$ready" 2>"$log" &
up=$!
stop() {
  kill -INT "$up" 2>/dev/null || true
  wait "$up" 2>/dev/null || true
  rm -f "$ready"
}
trap stop EXIT
until grep -q '^ready ' "$ready"; do
  if ! kill -0 "$up" 2>/dev/null; then
    echo "quickstart: the service did not start. Its log:" >&2
    cat "$log" >&2
    exit 1
  fi
  sleep 0.05
done
router=$(sed -n 's/^ready //p' "$ready" | head -n 1)
echo "ready at $router (log: $log)" >&2

step "5/5 ask: $question"
"$bin/baton" generate --router "$router" --chat "$question" --max-tokens 128 --temperature 0

if $serve; then
  until grep -q '^http ' "$ready"; do sleep 0.05; done
  step "OpenAI's API at http://$(sed -n 's/^http //p' "$ready")/v1; README.md shows how to call it"
  step "serving at $router; ask with: $bin/baton generate --router $router --chat \"…\" (Ctrl-C ends it)"
  trap 'stop; exit 0' INT TERM
  wait "$up"
fi
