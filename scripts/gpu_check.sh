#!/usr/bin/env bash
# Checks and measures the CUDA backend on a machine with a GPU. Such a machine is available only for minutes and has neither a
# network nor compilers. So a build machine makes a pack with everything that the check needs.
#   scripts/gpu_check.sh --pack                 builds for CUDA (needs nvcc) and packs into build/gpu-pack, which git ignores
#   scripts/gpu_check.sh --run [PART…]          runs the pack: the named parts, or all parts if none is named
# Options:
#   --device NAME   cuda (default), cuda:N, or cuda-emulated. The emulator rehearses the check with small sizes
#   --build DIR     for --pack: packs the finished build in DIR. By default, the script builds build/cuda
#   --to DIR        for --pack: writes the pack to DIR and deletes what was there. The default is build/gpu-pack
# Parts, in this order. Each part runs in its own process with its own time limit; the limits add up to nine minutes:
#   conformance  compares mma.sync and wgmma with the emulator's bit model, 10^7 results for each type
#   ops          compares every op with the CPU's, bit for bit
#   model        compares the program's tokens and logits with those of --device cpu
#   exactness    checks that no setting changes a token or a logit
#   services     checks the answers of three processes: router, prefill worker, decode worker
#   nccl         moves bytes between two NCCL ranks in two processes on one GPU, if NCCL permits it; measures no bandwidth
#   bench        measures the device's bandwidth, kernels, a decode step and a prefill chunk with the shapes of Llama 8B
#   peers        measures the same shapes with PyTorch (cuBLAS, FlashAttention, cuDNN, Triton), if it is installed
#   sanitizer    runs compute-sanitizer over small shapes, if it is installed
# After a failed part, the other parts still run. The table at the end shows each part. The last line is a JSON object. The
# object and the log also go to $OUT, or to a temporary folder. The exit code is 1 if a part failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
all_parts=(conformance ops model exactness services nccl bench peers sanitizer)
programs=(baton baton-router baton-prefill-worker baton-decode-worker cuda_bench cuda_tests)
models=(tiny-q4_1 tiny-f16 tiny-k-types tiny-window-q4_0 tiny-q8_0 tiny-bf16)
most_pack_mib=48

action='' device=cuda build='' to='' parts=()
while [ $# -gt 0 ]; do
  case $1 in
    --pack | --run | --part) action=${1#--} ;;
    --device | --build | --to) declare "${1#--}=${2:?"$1 needs a value"}"; shift ;;
    -*) sed -n '2,24s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
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
  for library in libbaton_{gpu_emulator,emulated_nccl,cuda_kernels,cuda_test_kernels}.so; do
    if [ -f "$build/bin/$library" ]; then cp "$build/bin/$library" "$staging/bin/"; fi
  done
  libraries_of "$staging"/bin/* | while read -r library; do cp -L "$library" "$staging/lib/"; done
  strip --strip-unneeded "$staging"/bin/* "$staging"/lib/*
  cp bench/gpu_peers.py "$staging/"
  for model in "${models[@]}"; do cp "tests/testdata/models/$model.gguf" "$staging/models/"; done
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
  (cd "$staging" && find . -type f -printf '%10s %P\n' | sort -k2) > "$to/contents"
  cat "$to/contents"
  local mib=$((($(du -sb "$to" | cut -f1) + (1 << 20) - 1) >> 20))
  echo "$to: $mib MiB, version $(cat "$staging/version"), needs glibc $(cat "$staging/glibc") and a driver for CUDA 13"
  [ "$mib" -le $most_pack_mib ] || fail "the pack has $mib MiB, more than $most_pack_mib"
}

# ---- parts --------------------------------------------------------------------------------------
# Each runs in the unpacked folder. Its last line of output is its note in the table. Exit code 77: not run on this machine.

emulated() { [ "$device" = cuda-emulated ]; }
ours() { LD_LIBRARY_PATH=$PWD/lib "$@"; }  # runs a packed program

limit_of() {  # seconds; a rehearsal may share its machine with other work
  local seconds
  case $1 in
    conformance) seconds=45 ;;
    ops) seconds=115 ;;
    model | exactness) seconds=40 ;;
    services | nccl) seconds=45 ;;
    bench | peers) seconds=80 ;;
    sanitizer) seconds=50 ;;
  esac
  if emulated; then seconds=$((4 * seconds)); fi
  echo $seconds
}

part_conformance() {
  local results=10000000
  if emulated; then results=3000; fi
  BATON_TEST_DEVICE=$device BATON_CONFORMANCE_RESULTS=$results ours bin/cuda_tests --gtest_brief=1 --gtest_filter='*MmaConformance*:*WgmmaConformance*'
  echo "$results results of mma.sync and wgmma for each type are those of the model"
}

# Each suite runs in its own process, because a fault ends its process.
part_ops() {
  local suite failures=() suites=()
  mapfile -t suites < suites
  if emulated; then suites=(CudaRope CudaCopies); fi
  for suite in "${suites[@]}"; do
    BATON_TEST_DEVICE=$device ours bin/cuda_tests --gtest_brief=1 --gtest_filter="$suite.*:*/$suite.*" || failures+=("$suite")
  done
  if [ ${#failures[@]} -gt 0 ]; then
    echo "failed: ${failures[*]}"
    return 1
  fi
  echo "${#suites[@]} suites"
}

# write_jobs COUNT: prints prompts around the borders of blocks. Every third job samples on the device, and every third on the host.
write_jobs() {
  local index=0 length i state=12345 ids sampling
  for length in 1 2 15 16 17 33 70; do
    [ $index -lt "$1" ] || break
    ids=
    for ((i = 0; i < length; ++i)); do
      state=$(((state * 1103515245 + 12345) & 0x7fffffff))
      ids+=${ids:+,}$((10 + (state >> 8) % 240))
    done
    case $((index % 3)) in
      0) sampling='"temperature":0' ;;
      1) sampling='"temperature":0.9,"top_p":0.9,"top_k":40,"min_p":0.02,"seed":4321' ;;
      2) sampling='"temperature":0.8,"top_p":0.95,"seed":1234,"repetition_penalty":1.1' ;;
    esac
    echo "{\"id\":\"p$length\",\"prompt_token_ids\":[$ids],\"max_tokens\":6,\"ignore_eos\":true,$sampling}"
    index=$((index + 1))
  done
}

# Reads results, prints `id [token ids] hash of the logits` sorted by id. An error stays as it is.
answers() {
  sed -E 's/^\{"id":"([^"]*)".*"token_ids":(\[[^]]*\])(.*"logits_hash":"?([^",}]*))?.*/\1 \2 \4/' | sort
}

# run_model FILE DEVICE [FLAG…]: answers of `baton run` to the jobs on standard input.
run_model() {
  local model=$1 on=$2
  shift 2
  ours bin/baton run --model "$model" --device "$on" --jobs - --json --hash-logits "$@" 2>> program.log | answers
}

# Prints the t1 of the device's tensor cores, if it has one. Devices refuse the others by name.
t1_of_device() {
  local numerics
  for numerics in t1-sm90 t1-sm80; do
    if echo '{"id":"one","prompt_token_ids":[11],"max_tokens":1}' |
      ours bin/baton run --model models/tiny-bf16.gguf --device "$device" --numerics $numerics --jobs - --json > t1.log 2>&1 ||
      ! grep -q 'needs compute capability' t1.log; then
      echo $numerics
      return
    fi
  done
}

# expect_equal NAME WANTED GOT: compares files of answers.
expect_equal() {
  if [ -s "$2" ] && cmp -s "$2" "$3"; then
    echo "  equal: $1"
  else
    echo "  DIFFERENT: $1"
    diff "$2" "$3" | head -20 || true
    tail -5 program.log
    return 1
  fi
}

part_model() {
  local model numerics failed=0 count=7 checked=("${models[@]}") known=(r1)
  if emulated; then count=3 checked=(tiny-q4_1); fi
  mapfile -t -O 1 known < <(t1_of_device)
  write_jobs $count > jobs.jsonl
  local files=("${checked[@]/#/models/}")
  files=("${files[@]/%/.gguf}")
  local real=${BATON_TEST_MODEL:-SmolLM2-135M-Instruct.Q4_1.gguf}
  if ! emulated && [ -f "$real" ]; then files+=("$real"); fi
  for model in "${files[@]}"; do
    for numerics in "${known[@]}"; do
      run_model "$model" cpu --numerics "$numerics" --kv-blocks 96 --block-size 16 < jobs.jsonl > wanted
      run_model "$model" "$device" --numerics "$numerics" --kv-blocks 96 --block-size 16 < jobs.jsonl > got
      expect_equal "$numerics $model" wanted got || failed=1
    done
  done
  [ $failed = 0 ] || return 1
  echo "${#files[@]} models, numerics ${known[*]}, $count prompts each"
}

part_exactness() {
  local model=models/tiny-q4_1.gguf kv_type flags failed=0 count=0 number=7
  local configurations=(
    "f16 --steps-in-flight 2 --concurrency 4 --max-chunk-tokens 16"
    "f16 --no-graph --kv-layout layer-major --block-size 8"
    "f16 --block-size 64 --kv-blocks 24 --concurrency 7"
    "f16 --block-size 1 --kv-blocks 600"
    "int8 --concurrency 3"
    "fp8 --concurrency 3"
    "bf16 --block-size 64 --kv-blocks 24"
    "f32 --no-paged")
  if emulated; then configurations=("${configurations[@]:0:1}") number=3; fi
  write_jobs $number > jobs.jsonl
  for flags in "${configurations[@]}"; do
    kv_type=${flags%% *} flags=${flags#* }
    run_model $model cpu --numerics r1 --kv-blocks 96 --kv-type "$kv_type" < jobs.jsonl > wanted
    # The later of two equal flags would be an error, so defaults come only where the configuration has none.
    [[ $flags == *--kv-blocks* ]] || flags+=" --kv-blocks 96"
    # shellcheck disable=SC2086  # one word for each flag
    run_model $model "$device" --numerics r1 --kv-type "$kv_type" $flags < jobs.jsonl > got
    expect_equal "$kv_type $flags" wanted got || failed=1
    count=$((count + 1))
  done
  [ $failed = 0 ] || return 1
  echo "$count settings, $number prompts each"
}

part_services() {
  local model=models/tiny-q4_1.gguf count=7 address=
  if emulated; then count=3; fi
  write_jobs $count > jobs.jsonl
  run_model $model cpu --kv-blocks 96 < jobs.jsonl | cut -d' ' -f1,2 > wanted
  mkfifo ready
  LD_LIBRARY_PATH=$PWD/lib bin/baton up --model $model --router-address 127.0.0.1:0 --worker-argument=--device="$device" \
    --worker-argument=--numerics=r1 --worker-argument=--kv-blocks=96 --worker-argument=--block-size=16 > ready 2>> program.log &
  local up=$!
  # shellcheck disable=SC2064  # $up has its value now
  trap "kill $up 2> /dev/null; wait $up" EXIT
  exec 3< ready
  read -r -t 40 _ address <&3 || { tail -20 program.log; echo "the services were not ready"; return 1; }
  ours bin/baton generate --router "$address" --jobs - --json < jobs.jsonl 2>> program.log | answers | cut -d' ' -f1,2 > got
  expect_equal "router, prefill worker and decode worker" wanted got || return 1
  local second
  second=$(ours bin/baton generate --router "$address" --jobs - --json < jobs.jsonl 2>> program.log | answers | cut -d' ' -f1,2)
  [ "$second" = "$(cat wanted)" ] || { echo "the second answers differ"; return 1; }
  echo "three processes, $count prompts, twice"
}

part_nccl() {
  BATON_TEST_DEVICE=$device ours bin/cuda_tests --gtest_filter='NcclRanks.*' > nccl.txt 2>&1 || { cat nccl.txt; return 1; }
  cat nccl.txt
  grep '^not run: ' nccl.txt && return 77
  grep -q 'PASSED.* 1 test' nccl.txt || { echo "the program has no test of NCCL's ranks"; return 1; }
  echo "two ranks in two processes exchange bytes"
}

part_bench() {
  local flags=()
  if emulated; then flags=(--tiny); fi
  ours bin/cuda_bench --device "$device" "${flags[@]}" > bench.txt || { cat bench.txt; return 1; }
  cat bench.txt
  echo "$(tail -1 bench.txt | grep -o '"name"' | wc -l) figures"
}

# PyTorch is the machine's own. It gets none of the packed libraries.
part_peers() {
  command -v python3 > /dev/null || { echo "not run: this machine has no Python"; return 77; }
  local flags=(--device "$device" --seconds 65)
  if emulated; then flags=(--device cpu --tiny); fi
  if [ -f bench.txt ]; then flags+=(--ours bench.txt); fi
  python3 -B gpu_peers.py "${flags[@]}" > peers.txt || { local code=$?; cat peers.txt; return $code; }
  cat peers.txt
  echo "$(grep -c 'times as fast as the peer' peers.txt) figures beside those of PyTorch"
}

part_sanitizer() {
  local tool check failures=()
  tool=$(PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer command -v compute-sanitizer) || {
    echo "not run: this machine has no compute-sanitizer"
    return 77
  }
  if emulated; then
    echo "not run: compute-sanitizer needs a GPU"
    return 77
  fi
  # Only the program gets the packed libraries. The tool has its own.
  local sanitize=("$tool" --target-processes all --error-exitcode 9 --print-limit 20)
  write_jobs 3 > jobs.jsonl
  for check in memcheck initcheck; do
    "${sanitize[@]}" --tool $check env LD_LIBRARY_PATH="$PWD/lib" bin/baton run --model models/tiny-q4_1.gguf --device "$device" \
      --kv-blocks 96 --jobs jobs.jsonl --json > $check.txt 2>&1 || { tail -40 $check.txt; failures+=("$check"); }
  done
  for check in racecheck synccheck; do
    "${sanitize[@]}" --tool $check env LD_LIBRARY_PATH="$PWD/lib" BATON_TEST_DEVICE="$device" bin/cuda_tests --gtest_brief=1 \
      --gtest_filter='CudaSample*:CudaCopies*:CudaAttentionSplit.LengthsAreReadWhenTheKernelRuns:CudaRows.Rms*' > $check.txt 2>&1 ||
      { tail -40 $check.txt; failures+=("$check"); }
  done
  if [ ${#failures[@]} -gt 0 ]; then
    echo "failed: ${failures[*]}"
    return 1
  fi
  echo "memcheck, initcheck, racecheck, synccheck"
}

# ---- run ----------------------------------------------------------------------------------------

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
  local logs=${OUT:-$(mktemp -d)}
  tar -C "$work" -xzf "$archive"
  : > "$logs/gpu_check.log"
  local glibc
  glibc=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
  [ "$(printf '%s\n' "$glibc" "$(cat "$work/glibc")" | sort -V | head -1)" = "$(cat "$work/glibc")" ] ||
    fail "the pack needs glibc $(cat "$work/glibc"), but this machine has $glibc"

  local table='' figures='' failed=0 result note seconds code
  for part in "${parts[@]}"; do
    echo "== $part"
    local start=$SECONDS
    code=0
    (cd "$work" && timeout -k 5 "$(limit_of "$part")" bash "$here/gpu_check.sh" --part "$part" --device "$device") \
      > "$work/part.log" 2>&1 || code=$?
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
    figures+="{\"name\":\"$part $result\",\"value\":$seconds,\"unit\":\"s\",\"limit\":$(limit_of "$part"),\"ratio\":null},"
  done
  local output
  for output in bench peers; do
    if [ -f "$work/$output.txt" ] && [[ $figures == *"\"$output passed\""* ]]; then
      figures+=$(tail -1 "$work/$output.txt" | sed -nE 's/.*"figures": ?\[(.*)\].*/\1/p'),
    fi
  done
  echo
  echo "version $(cat "$work/version"), device $device, log in $logs/gpu_check.log"
  printf '%s' "$table"
  echo "{\"bench\":\"gpu_check\",\"seed\":16,\"figures\":[${figures%,}]}" | tee "$logs/result.json"
  return $failed
}

case $action in
  pack) pack ;;
  run) run ;;
  part) "part_${parts[0]}" ;;
  *) sed -n '2,24s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
