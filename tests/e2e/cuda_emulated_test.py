#!/usr/bin/env python3
"""Checks that the CUDA backend, on the GPU emulator, gives the tokens and the logits of the CPU.

    cuda_emulated_test.py --baton build/release/bin/baton [--models MODEL…] [--t1-models MODEL…] [--sm80-models MODEL…] [--seed N]

The backend is the real one: engine, driver calls, graphs and kernels. The emulator beside the program takes the place of the
driver and runs the kernels. Every configuration answers the same prompts. Its token ids, and a hash over all sampled rows of
logits, must equal those of `--device cpu`. Prints a line for every difference; then the exit code is 1. Standard library only.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import time

from exactness import Runner, compare

MODELS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models"
# One model for each kind of weight, one with sliding windows.
DEFAULT_MODELS = ("tiny-q4_1", "tiny-f16", "tiny-k-types", "tiny-window-q4_0")
COMMON = {"--kv-blocks": "96", "--block-size": "16"}
FIRST_ID, LAST_ID = 10, 250  # byte tokens only, so that no control token ends an answer
LENGTHS = (1, 2, 15, 16, 17, 33, 70)
# Of t1: weights that tensor cores multiply, and quantised ones. The path of the last one begins at the build's folder.
T1_MODELS = ("tiny-bf16", "tiny-f16", "testdata/tiny.gguf")
SM80_MODELS = ("tiny-bf16",)
# Flags of configurations, and whether every model runs them.
R1_CONFIGURATIONS = (
    ([], True),
    (["--steps-in-flight", "1", "--concurrency", "4", "--max-chunk-tokens", "16"], True),
    (["--no-graph", "--kv-layout", "layer-major", "--block-size", "8"], False),
    (["--kv-type", "int8", "--concurrency", "3"], False),
    (["--kv-type", "fp8", "--concurrency", "3", "--transport", "tcp"], False),
    (["--kv-type", "bf16", "--block-size", "64", "--kv-blocks", "24"], False),
    (["--kv-type", "f32", "--no-paged"], False),
    (["--kv-cache-max-mib", "16"], False),
    (["--transport", "tcp", "--max-chunk-tokens", "16"], False),
    (["--transport", "shm", "--kv-type", "int8", "--max-chunk-tokens", "16", "--prefill-block-size", "8"], False),
    (["--transport", "loopback", "--prefill-block-size", "32", "--layer-pieces", "7"], False),
)
T1_CONFIGURATIONS = (
    ([], True),
    (["--steps-in-flight", "1", "--concurrency", "4", "--max-chunk-tokens", "16"], True),
    (["--kv-type", "int8", "--concurrency", "3"], False),
    (["--kv-type", "fp8", "--concurrency", "3"], False),
    (["--kv-type", "bf16", "--no-graph", "--block-size", "64", "--kv-blocks", "24"], False),
    (["--kv-type", "f32"], False),
    (["--transport", "loopback", "--prefill-block-size", "32", "--layer-pieces", "7"], False),
)


def with_common(*flags):
    """Returns `flags`, and those of COMMON that are not among them."""
    return [*flags, *(word for name, value in COMMON.items() if name not in flags for word in (name, value))]


def jobs_of(rng):
    jobs = []
    for index, length in enumerate(LENGTHS):
        job = {"id": f"p{length}", "prompt_token_ids": [rng.randint(FIRST_ID, LAST_ID) for _ in range(length)],
               "max_tokens": 6, "temperature": 0, "ignore_eos": True}
        if index % 3 == 1:  # the device samples
            job |= {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.02, "seed": 4321 + index}
        elif index % 3 == 2:  # penalties need the host
            job |= {"temperature": 0.8, "top_p": 0.95, "seed": 1234 + index, "repetition_penalty": 1.1}
        jobs.append(job)
    return jobs


def check_missing_driver(baton, model):
    """Without a driver, `--device cuda` names what is missing, in every program that has a device. Returns a list of failures."""
    programs = pathlib.Path(baton).parent
    commands = [[baton, "run", "--model", model, "--prompt", "a"],
                [programs / "baton-prefill-worker", "--model", model, "--listen", "127.0.0.1:0"],
                [programs / "baton-decode-worker", "--model", model, "--listen", "127.0.0.1:0"]]
    failures = []
    for command in commands:
        for device in ("cuda", "cuda:7"):
            process = subprocess.run([*command, "--device", device], capture_output=True, text=True, timeout=60)
            if process.returncode == 0:
                return []  # this machine has a GPU
            if process.returncode != 1 or f'device is "{device}": ' not in process.stderr:
                failures.append(f"{command[0]} --device {device}: exit code {process.returncode}, {process.stderr!r}")
    return failures


def check_faults(baton, model, jobs, answers, failures):
    """A GPU that fails in the middle of the work ends it with errors. It never gives a token that the CPU would not give."""
    failed = 0
    for kernels in (0, 3, 20, 90, 200, 400):
        for steps in ("1", "2"):
            process = subprocess.run(
                [baton, "run", "--model", model, "--jobs", "-", "--json", "--device", "cuda-emulated", "--numerics", "r1",
                 "--steps-in-flight", steps, "--concurrency", "3", *with_common()], input="\n".join(json.dumps(job) for job in jobs), capture_output=True, text=True,
                env=os.environ | {"BATON_GPU_EMULATOR_FAIL_AFTER": str(kernels)}, timeout=300)
            for line in process.stdout.splitlines():
                result = json.loads(line)
                tokens, wanted = result.get("token_ids", []), answers[result["id"]][0]
                failed += "error" in result
                if tokens != wanted[:len(tokens)] or ("error" not in result and tokens != wanted):
                    failures.append(f"fault after {kernels} kernels: {result} instead of {wanted}")
            if process.returncode not in (0, 1):
                failures.append(f"fault after {kernels} kernels: exit code {process.returncode}, {process.stderr[-500:]!r}")
    if failed == 0:
        failures.append("no planted fault failed a job")
    print(f"  planted faults: {failed} failed jobs", flush=True)


def check_model(args, model, numerics, configurations, jobs, failures):
    """Compares the answers of every configuration with the CPU's. Returns the CPU's answers for each KV type."""
    runner = Runner(args.baton, model, numerics)
    wanted = {}
    for index, flags in enumerate(configurations):
        kv_type = flags[flags.index("--kv-type") + 1] if "--kv-type" in flags else "f16"
        if kv_type not in wanted:
            wanted[kv_type], _, _ = runner.run(jobs, with_common("--device", "cpu", "--kv-type", kv_type))
        os.environ["BATON_GPU_EMULATOR_SEED"] = str(index)
        begin = time.time()
        got, _, _ = runner.run(jobs, with_common("--device", "cuda-emulated", *flags))
        name = f"{numerics} {pathlib.Path(model).stem} {' '.join(flags) or 'as it is'}"
        compare(name, got, wanted[kv_type], failures)
        print(f"  {name}: {len(got)} answers, {time.time() - begin:.1f} s", flush=True)
    if len({json.dumps(sorted(answers.items())) for answers in wanted.values()}) < len(wanted):
        failures.append(f"two of the KV types {list(wanted)} gave the same logits everywhere")
    return wanted


def check_auto(args, model, numerics, jobs, wanted, failures):
    """`--numerics auto` is the t1 of the GPU's compute capability."""
    got, _, _ = Runner(args.baton, model, "auto").run(jobs, with_common("--device", "cuda-emulated"))
    compare(f"--numerics auto, {numerics}", got, wanted, failures)


def check_t1(args, numerics, capability, models, rng, failures):
    """Checks one t1 on an emulated GPU of its compute capability."""
    os.environ["BATON_GPU_EMULATOR_CAPABILITY"] = str(capability)
    for number, model in enumerate(path_of(model, args.baton) for model in models):
        jobs = jobs_of(rng)
        t1 = check_model(args, model, numerics, [flags for flags, all_models in T1_CONFIGURATIONS if all_models or number == 0], jobs, failures)
        if number == 0:
            check_auto(args, model, numerics, jobs, t1["f16"], failures)


def path_of(model, baton):
    if os.path.exists(model):
        return model
    return str(pathlib.Path(baton).resolve().parent.parent / model) if "/" in model else str(MODELS / f"{model}.gguf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--models", nargs="+", default=DEFAULT_MODELS)
    parser.add_argument("--t1-models", nargs="+", default=T1_MODELS, help="of t1-sm90")
    parser.add_argument("--sm80-models", nargs="+", default=SM80_MODELS, help="of t1-sm80")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts; the emulator's seed differs in each configuration")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    models = [path_of(model, args.baton) for model in args.models]
    failures = check_missing_driver(args.baton, models[0])
    for number, model in enumerate(models):
        jobs = jobs_of(rng)
        r1 = check_model(args, model, "r1", [flags for flags, all_models in R1_CONFIGURATIONS if all_models or number == 0], jobs, failures)
        if number == 0:
            check_faults(args.baton, model, jobs, r1["f16"], failures)
    check_t1(args, "t1-sm90", 90, args.t1_models, rng, failures)
    check_t1(args, "t1-sm80", 80, args.sm80_models, rng, failures)
    for failure in failures:
        print("FAILED", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
