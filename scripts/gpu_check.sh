#!/usr/bin/env bash
# Checks and measures the CUDA backend on a machine with a GPU. Such a machine is available only for minutes and has neither a
# network nor compilers. So a build machine makes a pack with everything that the check needs.
#   scripts/gpu_check.sh --pack                 builds for CUDA (needs nvcc) and packs into build/gpu-pack, which git ignores
#   scripts/gpu_check.sh --run [PART…]          runs the pack: the named parts, or all parts if none is named
# Options:
#   --device NAME   cuda (default), cuda:N, or cuda-emulated. The emulator rehearses the check with small sizes
#   --build DIR     for --pack: packs the finished build in DIR. By default, the script builds build/cuda
#   --to DIR        for --pack: writes the pack to DIR and deletes what was there. The default is build/gpu-pack
#   --part-size N   for --pack: the most bytes in a part of the model's file, as split --bytes takes them. The default is 48M
# The default model is larger than the pack. If scripts/fetch_model.sh has fetched it, --pack also cuts its file into parts, in a
# folder beside the pack whose name ends in "-model". A machine to which one transfer moves 64 MiB at most gets all of it so:
#   1. on the build machine: scripts/fetch_model.sh; scripts/gpu_check.sh --pack
#   2. one transfer for each part that --pack lists (build/gpu-pack-model/part-1, part-2 …), to the same path on the other machine
#   3. transfer of build/gpu-pack
#   4. there: build/gpu-pack/gpu_check.sh --run. It joins the parts in build/gpu-pack-model. If one is missing or damaged, it names
#      the part and runs without the model
# Before the parts of the check it prints what it finds: driver, GPU, kernel, Python with PyTorch, NCCL, compute-sanitizer.
# Parts (scripts/gpu_check_parts.sh), in this order. Each part runs in its own process with its own time limit. The limits add up to
# nine minutes:
#   conformance  compares mma.sync and wgmma with the emulator's bit model and with each other, 10^7 results for each type
#   ops          compares every op with the CPU's, bit for bit
#   model        compares the program's tokens and logits with those of --device cpu, in r1 and in the GPU's t1
#   decode       runs the engine with models of real shapes whose weights are made on the device: SmolLM2, Llama 8B, Qwen3 8B.
#                Requests alone, together, in small chunks and without graphs must have equal tokens and logits. Also measures the
#                engine's decode loop and the device's gap between steps
#   exactness    checks that no setting changes a token or a logit, in r1 and in the GPU's t1
#   services     checks the answers of three processes: router, prefill worker, decode worker, in r1 and in the GPU's t1
#   nccl         moves bytes between two NCCL ranks in two processes on one GPU, if NCCL permits it; measures no bandwidth
#   bench        measures the device's limits, kernels, a decode step and a prefill chunk with the shapes of Llama 8B, and our
#                products against cuBLASLt's best algorithms
#   peers        measures the same shapes with PyTorch (cuBLAS, FlashAttention, cuDNN, Triton), if it is installed, and computes
#                the cost of exactness
#   sanitizer    runs compute-sanitizer over small shapes, if it is installed
# After a failed part, the other parts still run. The table at the end shows each part. The last line is a JSON object. The
# object and the log also go to $OUT, or to a temporary folder. They are written after each part, so a run that is ended early
# keeps what it has. The exit code is 1 if a part failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
all_parts=(conformance ops model decode exactness services nccl bench peers sanitizer)
programs=(baton baton-router baton-prefill-worker baton-decode-worker cuda_bench cuda_tests)
models=(tiny-q4_1 tiny-f16 tiny-k-types tiny-window-q4_0 tiny-q8_0 tiny-bf16)
most_pack_mib=48
most_seconds=525  # of a run, so that all of it ends within nine minutes

model_file=SmolLM2-135M-Instruct.Q4_1.gguf  # as in scripts/fetch_model.sh

action='' device=cuda build='' to='' part_size=48M parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --run) action=${1#--} ;;
    --device | --build | --to) declare "${1#--}=${2:?"$1 needs a value"}"; shift ;;
    --part-size) part_size=${2:?"$1 needs a value"}; shift ;;
    -*) sed -n '2,37s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
    *) parts+=("$1") ;;
  esac
  shift
done

fail() { echo "gpu_check: $*" >&2; exit 1; }

# ---- pack ---------------------------------------------------------------------------------------

# Prints the shared libraries of the given files, except for glibc's: those must be the machine's own, as its driver's are. Our
# libraries stay beside the programs.
libraries_of() {
  ldd "$@" | sed -nE 's/.* => (\/[^ ]+) .*/\1/p' | grep -vE '/((ld-linux|libc|libm|libdl|librt|libpthread|libresolv)[.-]|libbaton_)' | sort -u
}

# The folder where scripts/fetch_model.sh puts the model, by the same rule.
model_folder() {
  local cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  echo "${BATON_MODEL_DIR:-${cache:-/tmp}/baton/models}"
}

# cut_model FOLDER LIST: cuts the model's file into parts in FOLDER. Writes their checksums to LIST, that of the whole file first.
cut_model() {
  local folder=$1 list=$2 file
  file=$(model_folder)/$model_file
  rm -rf "$folder"
  if [ ! -f "$file" ]; then
    echo "no parts of the model: $file is missing; scripts/fetch_model.sh fetches it"
    return
  fi
  mkdir -p "$folder"
  split --bytes="$part_size" --numeric-suffixes=1 --suffix-length=1 "$file" "$folder/part-"
  sha256sum < "$file" | sed 's/ .*/ whole/' > "$list"
  (cd "$folder" && sha256sum part-*) >> "$list"
  (cd "$folder" && find . -type f -printf "%10s $folder/%P\n" | sort -k2)
}

pack() {
  cd "$here/.."
  to=${to:-build/gpu-pack}
  if [ -z "$build" ]; then
    build=build/cuda
    cmake --preset cuda > /dev/null
    cmake --build build/cuda --target "${programs[@]}" baton_gpu_emulator baton_emulated_nccl baton_cuda_kernels \
      baton_cuda_test_kernels
  fi
  staging=$(mktemp -d)
  trap 'rm -rf "$staging"' EXIT
  mkdir -p "$staging"/{bin,lib,models}
  local program library
  for program in "${programs[@]}"; do
    local file=$build/bin/$program
    [ -x "$file" ] || fail "$file is missing; build it first"
    cp "$file" "$staging/bin/"
  done
  for library in libbaton_{gpu_emulator,emulated_nccl,cuda_test_kernels}.so; do
    if [ -f "$build/bin/$library" ]; then cp "$build/bin/$library" "$staging/bin/"; fi
  done
  libraries_of "$staging"/bin/* | while read -r library; do cp -L "$library" "$staging/lib/"; done
  strip --strip-unneeded "$staging"/bin/* "$staging"/lib/*
  # The tests' library has all kernels of the product's. They are too many bytes to travel twice.
  if [ -f "$staging/bin/libbaton_cuda_test_kernels.so" ]; then
    ln -s libbaton_cuda_test_kernels.so "$staging/bin/libbaton_cuda_kernels.so"
  fi
  cp bench/gpu_peers.py bench/exactness_cost.py scripts/gpu_check_parts.sh "$staging/"
  for model in "${models[@]}"; do cp "tests/testdata/models/$model.gguf" "$staging/models/"; done
  cut_model "$to-model" "$staging/model.parts"
  # The suites of tests whose kernels run on a chosen device.
  sed -nE 's/^TEST(_[FP])?\((Cuda[A-Za-z0-9]*), .*/\2/p' tests/cuda/launch_*_test.cc | sort -u > "$staging/suites"
  git describe --always --dirty > "$staging/version" 2> /dev/null || echo unknown > "$staging/version"
  # The newest version of glibc that a file needs.
  objdump -T "$staging"/bin/* "$staging"/lib/* 2> /dev/null | sed -nE 's/.*\(?GLIBC_([0-9.]+)\)? .*/\1/p' | sort -Vu | tail -1 > "$staging/glibc"
  # A library outside the pack would be missing on the other machine.
  local outside
  outside=$(LD_LIBRARY_PATH=$staging/lib libraries_of "$staging"/bin/* | grep -v "^$staging/lib/" || true)
  [ -z "$outside" ] || fail "these libraries are not in the pack: $outside"

  rm -rf "$to"
  mkdir -p "$to"
  tar -C "$staging" -czf "$to/files.tar.gz" .
  cp "${BASH_SOURCE[0]}" "$to/gpu_check.sh"
  (cd "$staging" && find . ! -type d -printf '%10s %P\n' | sort -k2) > "$to/contents"
  cat "$to/contents"
  local mib=$((($(du -sb "$to" | cut -f1) + (1 << 20) - 1) >> 20))
  echo "$to: $mib MiB, version $(cat "$staging/version"), needs glibc $(cat "$staging/glibc") and a driver for CUDA 13"
  [ "$mib" -le $most_pack_mib ] || fail "the pack has $mib MiB, more than $most_pack_mib"
}

# ---- run ----------------------------------------------------------------------------------------

emulated() { [ "$device" = cuda-emulated ]; }
ours() { LD_LIBRARY_PATH=$work/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64 "$@"; }  # as in the parts

limit_of() {  # seconds; a rehearsal may share its machine with other work
  local seconds
  case $1 in
    conformance) seconds=35 ;;
    model | exactness | services) seconds=40 ;;
    ops) seconds=80 ;;
    decode) seconds=90 ;;
    nccl) seconds=20 ;;
    bench) seconds=100 ;;
    peers) seconds=55 ;;
    sanitizer) seconds=40 ;;
  esac
  if emulated; then seconds=$((6 * seconds)); fi
  echo $seconds
}

# Prints `name: answer` for what decides whether the parts can run. Nothing here is an error.
probe() {
  local folder found='' tool
  for folder in $(tr ':' ' ' <<< "${LD_LIBRARY_PATH:-}") /usr/local/nvidia/lib64 /usr/lib64 /usr/lib/x86_64-linux-gnu; do
    if [ -e "$folder/libcuda.so.1" ]; then found+="$folder/libcuda.so.1 "; fi
  done
  found+=$({ ldconfig -p || /sbin/ldconfig -p; } 2> /dev/null | sed -n 's/.*libcuda\.so\.1.* => //p' | head -1) || true
  echo "libcuda.so.1: ${found:-not found}"
  echo "LD_LIBRARY_PATH: ${LD_LIBRARY_PATH:-empty}"
  echo "kernel: $(head -1 /proc/version)"
  echo "processors: $(nproc), memory: $(awk '/MemTotal/ {print int($2 / 1024)}' /proc/meminfo) MiB"
  tool=$(PATH=$PATH:/usr/local/nvidia/bin command -v nvidia-smi) || tool=
  if [ -n "$tool" ]; then
    timeout -k 2 10 "$tool" -L 2>&1 | head -8 || true
    echo "driver: $(timeout -k 2 10 "$tool" --query-gpu=driver_version,clocks.max.sm,power.limit --format=csv,noheader 2>&1 | head -1 || true)"
  else
    echo "nvidia-smi: not found"
  fi
  echo "python3: $(command -v python3 || echo not found)"
  for tool in torch nvidia.nccl; do
    echo "$tool: $(timeout 10 python3 -c "import importlib.util as u; s = u.find_spec('$tool'); print(list(s.submodule_search_locations)[0])" 2> /dev/null || echo not found)"
  done
  echo "compute-sanitizer: $(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer || echo not found)"
}

# Prints the figures of a file's JSON lines, each followed by a comma.
figures_of() {
  [ -f "$1" ] || return 0
  sed -nE '/^\{"bench"/s/.*"figures": ?\[(.+)\].*/\1,/p' "$1" | tr -d '\n'
}

# Writes result.json with the parts that have ended, and the figures of parts that failed later. A reader never sees half a file.
write_result() {
  local figures file
  figures=$outcomes
  for file in decode bench peers exactness_cost; do figures+=$(figures_of "$work/$file.txt"); done
  echo "{\"bench\":\"gpu_check\",\"seed\":16,\"conditions\":[$conditions],\"figures\":[${figures%,}]}" > "$work/result.json"
  cp "$work/result.json" "$logs/.result.json"
  mv "$logs/.result.json" "$logs/result.json"
}

# Prints texts as JSON strings.
json_strings() {
  local text list=
  for text in "$@"; do
    text=${text//\\/\\\\}
    list+=",\"${text//\"/\\\"}\""
  done
  echo "${list:1}"
}

# Opens the device, and sets `conditions`. A device that refuses is no reason to run no part: the parts say more. The first start of
# a driver may take long, so there is a second try. Without device.txt, the parts would not know the device's t1.
describe_device() {
  local start=$EPOCHREALTIME attempt
  for attempt in first second; do
    if ours timeout -k 2 20 "$work/bin/cuda_bench" --device "$device" --describe > "$work/device.txt" 2> "$work/device.log"; then break; fi
    cat "$work/device.txt" "$work/device.log"
    echo "the device does not open at the $attempt try"
    echo "the device does not open" > "$work/device.txt"
  done
  cat "$work/device.txt"
  echo "the first process took $((((${EPOCHREALTIME/./} - ${start/./}) + 500) / 1000)) ms to open the device"
  conditions=$(json_strings "$(head -1 "$work/device.txt")" "version $(cat "$work/version")" "$(date -u '+%Y-%m-%d %H:%M UTC')" \
    "kernel $(uname -r)")
}

# Joins the parts of the model's file to $work/real.gguf. Without them the check runs without the model, and says why.
join_model() {
  local folder=$here-model list=$work/model.parts sum name bad=()
  [ -f "$here/files.tar.gz" ] || folder=$here/../build/gpu-pack-model
  if [ ! -f "$list" ]; then echo "model: the pack was made without it"; return; fi
  while read -r sum name; do
    [ "$name" != whole ] || continue
    if [ ! -f "$folder/$name" ]; then
      bad+=("$name is missing")
    elif ! echo "$sum  $folder/$name" | sha256sum --check --status; then
      bad+=("$name is damaged")
    else
      cat "$folder/$name" >> "$work/real.gguf"
    fi
  done < "$list"
  if [ ${#bad[@]} -gt 0 ]; then
    rm -f "$work/real.gguf"
    echo "model: not run: in $folder, $(printf '%s, ' "${bad[@]}" | sed 's/, $//')"
  elif ! echo "$(sed -n 's/ whole$//p' "$list")  $work/real.gguf" | sha256sum --check --status; then
    rm -f "$work/real.gguf"
    echo "model: not run: the parts are right, but the joined file has another checksum"
  elif emulated && [ "$(stat -c %s "$work/real.gguf")" -gt 4000000 ]; then
    rm -f "$work/real.gguf"
    echo "model: not run: the emulator is too slow for it"
  else
    echo "model: $(stat -c %s "$work/real.gguf") bytes from $(($(wc -l < "$list") - 1)) parts"
  fi
}

run_part() {
  local part=$1 most start=$SECONDS code=0 result note seconds ratio
  most=$(limit_of "$part")
  if ! emulated && [ "$most" -gt $((most_seconds - SECONDS)) ]; then most=$((most_seconds - SECONDS)); fi
  echo "== $part"
  if [ "$most" -lt 5 ]; then
    echo "no time left" > "$work/part.log"
    code=124
  else
    (cd "$work" && timeout -k 2 "$most" bash gpu_check_parts.sh "$part" "$device" "$most") > "$work/part.log" 2>&1 || code=$?
  fi
  seconds=$((SECONDS - start))
  case $code in
    0) result=passed ;;
    77) result="not run" ;;
    124 | 137) result="timed out" failed=1 ;;
    *) result=failed failed=1 ;;
  esac
  if [ "$result" = passed ]; then tail -3 "$work/part.log"; else tail -40 "$work/part.log"; fi
  note=$(tail -1 "$work/part.log" | cut -c1-90)
  { echo "== $part: $result"; cat "$work/part.log"; } >> "$logs/gpu_check.log"
  table+=$(printf '%-12s %-10s %4d s  %s' "$part" "$result" "$seconds" "$note")$'\n'
  ratio=$(awk "BEGIN { printf \"%.3f\", $seconds / $(limit_of "$part") }")
  outcomes+="{\"name\":\"part.$part\",\"value\":$seconds,\"unit\":\"s\",\"limit\":$(limit_of "$part"),\"ratio\":$ratio,"
  outcomes+="\"outcome\":\"$result\"},"
}

run() {
  local archive=$here/files.tar.gz
  [ -f "$archive" ] || archive=$here/../build/gpu-pack/files.tar.gz
  [ -f "$archive" ] || fail "there is no pack; scripts/gpu_check.sh --pack makes it"
  [ ${#parts[@]} -gt 0 ] || parts=("${all_parts[@]}")
  local part
  for part in "${parts[@]}"; do
    [[ " ${all_parts[*]} " == *" $part "* ]] || fail "there is no part \"$part\"; the parts are: ${all_parts[*]}"
  done
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  logs=${OUT:-$(mktemp -d)}
  tar -C "$work" -xzf "$archive"
  local glibc
  glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
  [ "$(printf '%s\n' "$glibc" "$(cat "$work/glibc")" | sort -V | head -1)" = "$(cat "$work/glibc")" ] ||
    fail "the pack needs glibc $(cat "$work/glibc"), but this machine has $glibc"
  # While a process has the device open, the driver stays initialized, and the next process starts faster.
  # shellcheck disable=SC2034  # nothing reads the descriptor
  if [ -r /dev/nvidia0 ]; then { exec {held}< /dev/nvidia0; } 2> /dev/null || true; fi
  { probe; join_model; describe_device; } > "$logs/gpu_check.log" 2>&1
  cat "$logs/gpu_check.log"

  table='' outcomes='' failed=0
  for part in "${parts[@]}"; do
    run_part "$part"
    write_result
  done
  echo
  echo "version $(cat "$work/version"), device $device, log in $logs/gpu_check.log"
  printf '%s' "$table"
  cat "$work/result.json"
  return $failed
}

case $action in
  pack) pack ;;
  run) run ;;
  *) sed -n '2,37s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
