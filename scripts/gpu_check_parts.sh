#!/usr/bin/env bash
# Runs one part of scripts/gpu_check.sh in the folder of the unpacked pack. gpu_check.sh starts it; the parts are described there.
#   gpu_check_parts.sh PART DEVICE SECONDS
# The last line of output is the part's note in the table. Exit code 77: the machine lacks what the part needs.
set -euo pipefail
part=$1 device=$2
part_end=$((SECONDS + $3 - 2))  # before gpu_check.sh ends this process, so that the part can say what it did
exec 9>&1                       # the part's log, also where a command's output goes elsewhere

emulated() { [ "$device" = cuda-emulated ]; }
# Packed programs find the packed libraries first, then the machine's own. The driver may be found only by its folder.
libraries=$PWD/lib:${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/nvidia/lib64
ours=(env "LD_LIBRARY_PATH=$libraries")
rm -f failures                  # of an earlier part
jobs_at_once=4
if emulated; then jobs_at_once=1; fi  # the rehearsal shares its machine

# check NAME SECONDS COMMAND…: runs a program with a time limit of its own, at most the time that the part has left. Prints how it
# ended. Returns its exit code, or 124 if time ran out.
check() {
  local name=$1 most=$2 start=$SECONDS code=0 outcome=passed
  shift 2
  if emulated; then most=$((4 * most)); fi
  if [ "$most" -gt $((part_end - start)) ]; then most=$((part_end - start)); fi
  if [ "$most" -le 0 ]; then
    echo "$name: timed out (the part has no time left)" >&9
    return 124
  fi
  timeout -k 2 "$most" "$@" || code=$?
  case $code in
    0) ;;
    124 | 137) outcome="timed out" code=124 ;;
    *) outcome="failed with exit code $code" ;;
  esac
  echo "$name: $outcome ($((SECONDS - start)) s)" >&9
  return $code
}

# background FUNCTION ARGUMENT…: runs a function beside others, which are at most jobs_at_once. Its output appears when it ends. If
# it fails, its first argument gets a line in the file `failures`.
background() {
  while [ "$(jobs -rp | wc -l)" -ge $jobs_at_once ]; do wait -n || true; done
  {
    local log
    log=$(mktemp -p .)
    "$@" > "$log" 2>&1 9>&1 || echo "$2" >> failures
    cat "$log" >&9
  } &
}

# Waits for the background and prints `failed: …`. Returns 1 if anything failed.
wait_for_background() {
  wait
  [ ! -s failures ] || { echo "failed: $(sort failures | paste -sd ';' | sed 's/;/; /g')"; return 1; }
}

# ---- conformance, ops ---------------------------------------------------------------------------

# run_tests NAME SECONDS FILTER: runs tests of cuda_tests on the device.
run_tests() {
  check "$1" "$2" "${ours[@]}" BATON_TEST_DEVICE="$device" bin/cuda_tests --gtest_brief=1 --gtest_filter="$3"
}

# Each kind runs in its own process, because an instruction that the GPU lacks ends its process.
part_conformance() {
  export BATON_CONFORMANCE_RESULTS=10000000
  if emulated; then BATON_CONFORMANCE_RESULTS=3000; fi
  background run_tests "operands" 20 'MmaConformanceOperands.*'
  background run_tests "mma s8" 40 'MmaConformanceOfBytes.*'
  background run_tests "mma bf16" 40 '*/MmaConformance.*/bf16'
  background run_tests "mma f16" 40 '*/MmaConformance.*/f16'
  background run_tests "wgmma bf16" 40 '*/WgmmaConformance.EveryBit*/bf16'
  background run_tests "wgmma f16" 40 '*/WgmmaConformance.EveryBit*/f16'
  background run_tests "mma and wgmma" 30 '*/WgmmaConformance.EqualsMma*'
  wait_for_background
  echo "$BATON_CONFORMANCE_RESULTS results of mma.sync and wgmma for each type are those of the model, and equal"
}

# Each suite runs in its own process, because a fault or a hang ends its process.
part_ops() {
  local suite suites=()
  mapfile -t suites < suites
  if emulated; then suites=(CudaRope CudaCopies); fi
  for suite in "${suites[@]}"; do background run_tests "$suite" 95 "$suite.*:*/$suite.*"; done
  wait_for_background
  echo "${#suites[@]} suites"
}

# ---- model, decode, exactness, services -----------------------------------------------------------------

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

# run_model FILE NAME MODEL DEVICE [FLAG…]: writes the answers of `baton run` to jobs.jsonl to FILE, and its messages to FILE.log. A
# run that fails leaves fewer answers, which the comparison finds.
run_model() {
  local file=$1 name=$2 model=$3 on=$4
  shift 4
  check "$name on $on" "${seconds_of_run:-15}" "${ours[@]}" bin/baton run --model "$model" --device "$on" --jobs jobs.jsonl --json --hash-logits "$@" \
    > "$file.json" 2> "$file.log" || true
  answers < "$file.json" > "$file"
}

# expect_equal NAME WANTED GOT: compares files of answers.
expect_equal() {
  if [ -s "$2" ] && cmp -s "$2" "$3"; then
    echo "  equal: $1"
  else
    echo "  DIFFERENT: $1"
    diff "$2" "$3" | head -20 || true
    local file
    for file in "$2" "$3"; do
      [ ! -s "$file.log" ] || { echo "  the end of $(basename "$file").log:"; tail -8 "$file.log"; }
    done
    return 1
  fi
}

# compare NAME MODEL CPU_FLAGS DEVICE_FLAGS: runs a model on the CPU and on the device, and compares the answers.
compare() {
  local name=$1 model=$2 of_cpu=$3 of_device=$4 folder
  folder=$(mktemp -d -p .)
  # shellcheck disable=SC2086  # one word for each flag
  run_model "$folder/wanted" "$name" "$model" cpu $of_cpu
  # shellcheck disable=SC2086
  run_model "$folder/got" "$name" "$model" "$device" $of_device
  expect_equal "$name" "$folder/wanted" "$folder/got"
}

# Prints r1, and the t1 of the device's tensor cores if it has one (device.txt is the device's description).
numerics_of_device() {
  echo r1
  grep -o 'numerics t1-sm[0-9]*' device.txt | cut -d' ' -f2 || true
}

part_model() {
  local model numerics size count=7 models=(models/*.gguf) known runs=0
  if emulated; then count=3 models=(models/tiny-q4_1.gguf models/tiny-bf16.gguf); fi
  mapfile -t known < <(numerics_of_device)
  write_jobs $count > jobs.jsonl
  if [ -f real.gguf ]; then models+=(real.gguf); fi
  for numerics in "${known[@]}"; do
    for model in "${models[@]}"; do
      for size in 16 64; do
        if emulated && [ $size = 64 ] && [[ $model != *bf16* ]]; then continue; fi
      if emulated && [ "$model" = real.gguf ] && [ "$numerics" != r1 ]; then continue; fi
        background compare "$numerics, $model, blocks of $size" "$model" "--numerics $numerics --kv-blocks 96 --block-size 16" \
          "--numerics $numerics --kv-blocks 96 --block-size $size"
        runs=$((runs + 1))
      done
    done
  done
  wait
  # The default pool is 90 % of the free memory. So this run is alone on the device.
  local start=$EPOCHREALTIME seconds_of_run=30
  background compare "default KV pool" "${models[0]}" "--numerics ${known[-1]}" ""
  wait
  echo "default KV pool: both runs took $((((${EPOCHREALTIME/./} - ${start/./}) + 500) / 1000)) ms from start to end"
  wait_for_background
  echo "$runs runs, numerics ${known[*]}, $count prompts each, and one with the default KV pool"
}

# run_bench FILE NAME SECONDS FLAG…: runs cuda_bench and adds its output to FILE, as it comes. So a kernel that fails or hangs loses
# few figures.
run_bench() {
  local file=$1 name=$2 seconds=$3 code=0 flags=()
  shift 3
  if emulated; then flags=(--tiny); fi
  check "$name" "$seconds" "${ours[@]}" GLOG_v=1 bin/cuda_bench --device "$device" "$@" "${flags[@]}" > section.txt 2> section.log ||
    { code=$?; tail -8 section.log; }
  cat section.txt >> "$file"
  cat section.txt
  echo "kernels of $name: $(grep -oE 'first use of kernel [a-z0-9_]+' section.log | sed 's/.* //' | sort -u | tr '\n' ' ')"
  return $code
}

# note_of_bench FILE FAILURE…: prints what failed, or the number of figures.
note_of_bench() {
  local file=$1 text
  shift
  if [ $# -gt 0 ]; then
    printf -v text '%s, ' "$@"
    echo "failed: ${text%, }"
    return 1
  fi
  echo "$(grep -o '"name"' "$file" | wc -l) figures"
}

# Each model has its own process.
part_decode() {
  local failures=() model seconds numerics
  local runs="llama-8b:BF16 25
    smollm2:BF16 15
    llama-8b:Q4_K 20
    llama-8b:Q8_0 20
    qwen3-8b:BF16 25
    smollm2:Q8_0 15
    smollm2:BF16 15 r1"
  if emulated; then runs=$'tiny:BF16 60\ntiny:Q4_K 60 r1'; fi
  : > decode.txt
  while read -r model seconds numerics; do
    run_bench decode.txt "$model${numerics:+ $numerics}" "$seconds" --only engine --model "$model" --numerics "${numerics:-auto}" ||
      failures+=("$model${numerics:+ $numerics}")
  done <<< "$runs"
  note_of_bench decode.txt "${failures[@]}"
}

part_exactness() {
  local kv_type flags more count=0 number=7 numerics model models known index=0
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
  mapfile -t known < <(numerics_of_device)
  write_jobs $number > jobs.jsonl
  for flags in "${configurations[@]}"; do
    kv_type=${flags%% *} flags=${flags#* }
    # The later of two equal flags would be an error, so defaults come only where the configuration has none.
    more=
    [[ $flags == *--kv-blocks* ]] || more="--kv-blocks 96"
    for numerics in "${known[@]}"; do
      models=(models/tiny-q4_1.gguf)  # products of integers, or in t1 products of bf16 on tensor cores
      if [ "$numerics" != r1 ]; then models=(models/tiny-bf16.gguf); fi
      if [ -f real.gguf ] && [ $index -lt 3 ] && { ! emulated || [ "$numerics" = r1 ]; }; then models+=(real.gguf); fi
      for model in "${models[@]}"; do
        background compare "$numerics, $model, $kv_type $flags" "$model" "--numerics $numerics --kv-blocks 96 --kv-type $kv_type" \
          "--numerics $numerics --kv-type $kv_type $flags $more"
        count=$((count + 1))
      done
    done
    index=$((index + 1))
  done
  wait_for_background
  echo "$count settings, numerics ${known[*]}, $number prompts each"
}

# serve NUMERICS MODEL: compares the answers of router, prefill worker and decode worker with those of one process on the CPU, twice.
serve() {
  local numerics=$1 model=$2 folder address=
  folder=$(mktemp -d -p .)
  run_model "$folder/wanted.all" "$numerics, $model" "$model" cpu --kv-blocks 96 --numerics "$numerics"
  cut -d' ' -f1,2 "$folder/wanted.all" > "$folder/wanted"
  mkfifo "$folder/ready"
  "${ours[@]}" bin/baton up --model "$model" --router-address 127.0.0.1:0 --worker-argument=--device="$device" \
    --worker-argument=--numerics="$numerics" --worker-argument=--kv-blocks=96 --worker-argument=--block-size=16 \
    > "$folder/ready" 2> "$folder/got.log" &
  local up=$! time code=0
  exec 3< "$folder/ready"
  read -r -t 40 _ address <&3 || true
  if [ -z "$address" ]; then
    tail -20 "$folder/got.log"
    echo "$numerics, $model: the services were not ready"
    code=1
  fi
  for time in first second; do
    [ -n "$address" ] || break
    check "$numerics, $model, $time time" 15 "${ours[@]}" bin/baton generate --router "$address" --jobs jobs.jsonl --json \
      > "$folder/got.json" 2>> "$folder/got.log" || true
    answers < "$folder/got.json" | cut -d' ' -f1,2 > "$folder/got"
    expect_equal "$numerics, $model, router, prefill worker and decode worker, $time time" "$folder/wanted" "$folder/got" || code=1
  done
  kill $up 2> /dev/null || true
  wait $up || true
  return $code
}

part_services() {
  local count=7 numerics known
  if emulated; then count=3; fi
  mapfile -t known < <(numerics_of_device)
  write_jobs $count > jobs.jsonl
  if [ -f real.gguf ]; then background serve r1 real.gguf; fi
  for numerics in "${known[@]}"; do
    if emulated && [ "$numerics" = r1 ] && [ -f real.gguf ]; then continue; fi
    background serve "$numerics" models/tiny-bf16.gguf
  done
  wait_for_background
  echo "three processes, numerics ${known[*]}, $count prompts, twice$([ ! -f real.gguf ] || echo ', and the default model')"
}

# ---- nccl, bench, peers, sanitizer --------------------------------------------------------------

# PyTorch's packages may bring the only NCCL of the machine.
part_nccl() {
  local folder
  folder=$(python3 -c 'import os, nvidia.nccl; print(os.path.join(list(nvidia.nccl.__path__)[0], "lib"))' 2> /dev/null) || folder=
  ours=(env "LD_LIBRARY_PATH=$libraries${folder:+:$folder}")
  local code=0
  check "two ranks" 20 "${ours[@]}" BATON_TEST_DEVICE="$device" NCCL_DEBUG=WARN bin/cuda_tests --gtest_filter='NcclRanks.*' > nccl.txt 2>&1 ||
    code=$?
  cat nccl.txt
  [ $code = 0 ] || return $code
  grep '^not run: ' nccl.txt && return 77
  grep -q 'PASSED.* 1 test' nccl.txt || { echo "the program has no test of NCCL's ranks"; return 1; }
  echo "two ranks in two processes exchange bytes"
}

# Prints the folders of PyTorch's packages that may bring the machine's only cuBLASLt, each after a colon.
library_folders() {
  python3 -c 'import importlib.util, os, sys
for name in ("nvidia.cu13", "nvidia.cublas"):
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        continue
    for folder in spec.submodule_search_locations or [] if spec else []:
        sys.stdout.write(":" + os.path.join(folder, "lib"))' 2> /dev/null || true
}

# Each section has its own process.
part_bench() {
  local failures=() section seconds numerics
  ours=(env "LD_LIBRARY_PATH=$libraries$(library_folders)")
  : > bench.txt
  while read -r section seconds numerics; do
    run_bench bench.txt "$section${numerics:+ $numerics}" "$seconds" --only "$section" --numerics "${numerics:-auto}" \
      --model models/tiny-bf16.gguf || failures+=("$section${numerics:+ $numerics}")
  done <<< "bandwidth 12
    limits 10
    attention 15
    prefill 12
    decode 25
    chunk 15
    chunk 20 r1
    matmul 20
    exactness 25
    prefix 10
    handoff 10
    runner 10"
  # The same step if every kernel waits for the end of the one ahead (kernels/cuda/kernel_order.cuh). Its figures begin with `late.`.
  local code=0 of_early=("${ours[@]}")
  ours+=(BATON_EARLY_KERNELS=0)
  run_bench late.txt "decode, no kernel begins early" 25 --only decode > late.log || code=$?
  ours=("${of_early[@]}")
  [ $code = 0 ] || [ $code = 124 ] || failures+=("decode, no kernel begins early")  # for lack of time, only the comparison is missing
  sed -E 's/"name": ?"/&late./g; s/^[a-z]/late.&/' late.txt | tee -a bench.txt
  note_of_bench bench.txt "${failures[@]}"
}

# PyTorch is the machine's own. It gets none of the packed libraries.
part_peers() {
  command -v python3 > /dev/null || { echo "not run: this machine has no Python"; return 77; }
  local flags=(--device "$device" --seconds $((part_end - SECONDS - 10)))
  if emulated; then flags=(--device cpu --tiny --seconds 100); fi
  if [ -f bench.txt ]; then flags+=(--ours bench.txt); fi
  local code=0
  python3 -B gpu_peers.py "${flags[@]}" > peers.txt || code=$?
  cat peers.txt
  # Products have their peers in bench.txt. So this also says something without PyTorch.
  local files=(peers.txt)
  if [ -f bench.txt ]; then files+=(bench.txt); fi
  python3 -B exactness_cost.py "${files[@]}" > exactness_cost.txt || code=$?
  cat exactness_cost.txt
  [ $code = 0 ] || { grep '^not run: ' peers.txt; return $code; }
  echo "$(grep -c 'times as fast as the peer' peers.txt) figures beside those of PyTorch"
}

part_sanitizer() {
  local tool failures=() path=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer check_name
  if emulated; then path=$PATH; fi  # a rehearsal finds only a stand-in
  tool=$(PATH=$path command -v compute-sanitizer) || {
    echo "not run: this machine has no compute-sanitizer"
    return 77
  }
  # Only the program gets the packed libraries. The tool has its own. A look-up of a kernel asks every module, and the driver's
  # answer that a module lacks the kernel is no error of the program.
  local sanitize=("$tool" --target-processes all --error-exitcode 9 --print-limit 20 --report-api-errors no)
  local tests='CudaSample*:CudaCopies*:CudaAttentionSplit.LengthsAreReadWhenTheKernelRuns:CudaRows.Rms*'
  tests+=':CudaTensorCoreAttentionSplit.LengthsAreReadWhenTheKernelRuns'
  tests+=':Formats/CudaTensorMatMul.GatedProductsEqualTheTwin/BF16_sm90'
  if emulated; then tests='CudaCopies*'; fi
  write_jobs 3 > jobs.jsonl
  for check_name in memcheck initcheck; do
    check $check_name 15 "${sanitize[@]}" --tool $check_name "${ours[@]}" bin/baton run --model models/tiny-bf16.gguf \
      --device "$device" --kv-blocks 96 --jobs jobs.jsonl --json > $check_name.txt 2>&1 ||
      { tail -40 $check_name.txt; failures+=("$check_name"); }
  done
  for check_name in racecheck synccheck; do
    check $check_name 20 "${sanitize[@]}" --tool $check_name "${ours[@]}" BATON_TEST_DEVICE="$device" bin/cuda_tests \
      --gtest_brief=1 --gtest_filter="$tests" > $check_name.txt 2>&1 || { tail -40 $check_name.txt; failures+=("$check_name"); }
  done
  if [ ${#failures[@]} -gt 0 ]; then
    echo "failed: ${failures[*]}"
    return 1
  fi
  echo "memcheck, initcheck, racecheck, synccheck"
}

"part_$part"
