#!/usr/bin/env bash
# Compares engine_bench with llama.cpp. They alternate in one run, on the same file with the same threads, prompts and batches.
# Shows for each figure the best value of all rounds, its limit (the combined roofline of that round), and the best value of
# any peer in any of its modes. decode_Nx512 is compared with the peer's best batch of any size. The last line is one JSON
# object. Peers are not part of Baton: they are built in ${XDG_CACHE_HOME:-~/.cache}/baton/peers.
#   scripts/engine_peer.sh [--model FILE] [--threads N] [--rounds N] [--batches 1,4,16] [--peer-bin DIR]…
#   --peer-bin DIR   folder with llama-bench and llama-batched-bench of llama.cpp or a fork such as ik_llama.cpp. Repeatable.
#                    Default: llama.cpp from the PyPI source package llama-cpp-python, built once (takes some minutes).
set -euo pipefail
cd "$(dirname "$0")/.."

model=
threads=$(nproc)
rounds=2
batches=1,4,16
peers=()
while [ $# -gt 0 ]; do
  case $1 in
    --model) model=$2 ;;
    --threads) threads=$2 ;;
    --rounds) rounds=$2 ;;
    --batches) batches=$2 ;;
    --peer-bin) peers+=("$2") ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 1 ;;
  esac
  shift 2
done
[ -n "$model" ] || model=$(scripts/fetch_model.sh)

version=0.3.36
build_llama_cpp() {  # builds llama.cpp if needed; appends its directory to `peers`
  local home=${XDG_CACHE_HOME:-$HOME/.cache}/baton/peers/llama-cpp-python-$version
  peers+=("$home/build/bin")
  if ! [ -x "$home/build/bin/llama-batched-bench" ]; then
    echo "engine_peer: building llama.cpp in $home …" >&2
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
      --dest "$home" "llama-cpp-python==$version" >&2
    tar xzf "$home/llama_cpp_python-$version.tar.gz" -C "$home"
    cmake -S "$home/llama_cpp_python-$version/vendor/llama.cpp" -B "$home/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_CURL=OFF > "$home/build.log" 2>&1
    nice cmake --build "$home/build" --target llama-bench llama-batched-bench >> "$home/build.log" 2>&1
  fi
}
[ ${#peers[@]} -gt 0 ] || build_llama_cpp
scripts/build.sh release engine_bench

scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
largest=$(tr , '\n' <<< "$batches" | sort -n | tail -1)

# run_peer DIR NAME [FLAG VALUE]…: runs a peer in one mode. llama-bench takes flags with values, llama-batched-bench only flags.
run_peer() {
  local directory=$1 name=$2
  shift 2
  "$directory/llama-bench" -m "$model" -t "$threads" -p 512,2048 -n 64 -r 3 "$@" -o json \
    > "$scratch/$name.single" 2> "$scratch/$name.log" || echo "engine_peer: $name: llama-bench failed" >&2
  local flags=()
  while [ $# -gt 0 ]; do flags+=("$1"); shift 2; done
  "$directory/llama-batched-bench" -m "$model" -t "$threads" -c $((largest * 544)) -b 2048 -ub 512 -npp 512 -ntg 32 \
    -npl "$batches" "${flags[@]}" > "$scratch/$name.batched" 2>&1 || echo "engine_peer: $name: llama-batched-bench failed" >&2
}

for ((round = 1; round <= rounds; ++round)); do
  for index in "${!peers[@]}"; do
    figures=(decode_1_ prefill_512 prefill_2048)
    for batch in ${batches//,/ }; do figures+=("decode_${batch}x512"); done
    build/release/bin/engine_bench --model "$model" --threads "$threads" --only "$(IFS=,; echo "${figures[*]}")" \
      | tail -1 >> "$scratch/ours"
    run_peer "${peers[$index]}" "peer$index.$round"
    if "${peers[$index]}/llama-bench" --help 2>&1 | grep -q run-time-repack; then  # a mode of ik_llama.cpp
      run_peer "${peers[$index]}" "peer$index.$round.repack" -rtr 1 -thp 1
    fi
  done
done

python3 - "$scratch" "${peers[@]}" << 'EOF'
import json
import pathlib
import sys

scratch, peers = pathlib.Path(sys.argv[1]), sys.argv[2:]
best = {}  # our figures
for line in (scratch / "ours").read_text().splitlines():
    for figure in json.loads(line)["figures"]:
        if figure["ratio"] > best.get(figure["name"], {"ratio": 0})["ratio"]:
            best[figure["name"]] = figure
of_peer = {}  # figure -> (tokens/s, name of the peer)


def take(name, value, peer):
    of_peer[name] = max(of_peer.get(name, (0, "")), (value, peer))


for path in sorted(scratch.glob("peer*.single")):
    index, mode = path.name.split(".")[0][4:], " repacked" if ".repack" in path.name else ""
    peer = peers[int(index)] + mode
    for run in json.loads(path.read_text() or "[]"):
        prompt = run["n_prompt"]
        take(f"prefill_{prompt}_tokens_per_s" if prompt else "decode_1_tokens_per_s", run["avg_ts"], peer)
    for line in path.with_suffix(".batched").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 8 and cells[1].isdigit():  # PP TG B N_KV T_PP S_PP T_TG S_TG …
            take("batch", float(cells[8]), f"{peer}, batch {cells[3]}")

print(f"{'figure':32} {'value':>10} {'limit':>10} {'ratio':>7} {'peer':>10} {'to_peer':>8}  peer's best")
figures = []
for name, figure in best.items():
    value, peer = of_peer.get("batch" if "x512" in name else name, (0, "none"))
    to_peer = figure["value"] / value if value else None
    shown = f"{to_peer:8.2f}" if value else f"{'-':>8}"
    print(f"{name:32} {figure['value']:10.1f} {figure['limit']:10.1f} {figure['ratio']:7.3f} {value:10.1f} {shown}  {peer}")
    figures.append({**figure, "peer": value, "to_peer": to_peer, "peer_name": peer})
print(json.dumps({"bench": "engine_peer", "seed": 0, "figures": figures}))
EOF
