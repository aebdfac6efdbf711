#!/usr/bin/env python3
"""Checks that no configuration of the CUDA backend changes a token id or a logit. The backend runs on the GPU emulator.

  exactness_cuda.py --baton build/release/bin/baton --model build/release/testdata/tiny.gguf     every value of every factor
  exactness_cuda.py ... --pairs                                                  every pair of values of two factors (minutes)
  exactness_cuda.py ... --all                                                    the whole matrix (days)

Every configuration answers the same prompts with `baton run --device cuda-emulated`. Its token ids, and a chained hash over all
sampled rows of logits, must equal those of `--device cpu` with the same KV type and numerics: one process, one request at a time, no
prefix cache. With a transport, every prompt's KV must have come from the other engine; with nccl, NCCL's stand-in must have moved it.
The emulator's seed differs in each configuration.

Prints a line for every difference; then the exit code is 1. Standard library only.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time

from exactness import compare

FIRST_ID, LAST_ID = 10, 250  # byte tokens only, so that no control token ends an answer
LENGTHS = (1, 15, 16, 17, 33, 70, 128)  # around the boundaries of blocks and chunks
MAX_TOKENS = 6  # every answer crosses a boundary of small blocks
SLOTS = 1536  # tokens that the pool has room for

# Factor → values. The first value is the reference's.
FACTORS = {
    "transport": ["none", "loopback", "tcp", "shm", "nccl"],
    "kv-type": ["f16", "bf16", "int8", "fp8", "f32"],
    "numerics": ["r1", "t1-sm90"],
    "block-size": ["16", "1", "8", "32", "128"],
    "max-chunk-tokens": ["65536", "16", "40"],
    "prefill-block-size": ["same", "32"],  # of the engine that prefills; NCCL needs equal sizes
    "kv-layout": ["block-major", "layer-major"],
    "paged": ["true", "false"],
    "graph": ["true", "false"],
    "steps-in-flight": ["1", "2"],
    "concurrency": ["1", "4"],
    "prefix-cache": ["false", "true"],
    "pool": ["fixed", "resizable"],
}
# Faults of NCCL's stand-in: an operation is late, fails, dies halfway, changes a byte, or never ends. KV then comes over TCP, or
# the engine that decodes computes it. (tests/kvtransfer/fake_nccl.h)
NCCL_FAULTS = ("1.polls_per_operation=5", "0.polls_per_operation=5", "0.fails_at_operation=1", "1.dies_at_operation=2",
               "0.spoils_at_operation=0", "0.hangs_at_operation=1")


def is_possible(configuration):
    """Contiguous mode is layer-major and has no prefix cache. Different block sizes need a transport that allows them."""
    c = configuration
    if c["paged"] == "false" and (c["prefix-cache"] == "true" or c["kv-layout"] != "layer-major" or c["transport"] != "none"):
        return False
    return c["prefill-block-size"] == "same" or c["transport"] in ("loopback", "tcp", "shm")


def matrix():
    for values in itertools.product(*FACTORS.values()):
        configuration = dict(zip(FACTORS, values))
        if is_possible(configuration):
            yield configuration


def covering(strength, rng):
    """Returns configurations in which every possible combination of values of `strength` factors occurs. Greedy."""
    def combinations(configuration):
        return itertools.combinations(configuration.items(), strength)

    missing = {combination for configuration in matrix() for combination in combinations(configuration)}
    chosen = []
    while missing:
        best, gain = None, 0
        for _ in range(200):
            # Starts from something that is missing, so that every round gains.
            candidate = dict(rng.choice(sorted(missing)))
            candidate |= {name: rng.choice(values) for name, values in FACTORS.items() if name not in candidate}
            if not is_possible(candidate):
                continue
            candidate = {name: candidate[name] for name in FACTORS}
            found = sum(combination in missing for combination in combinations(candidate))
            if found > gain:
                best, gain = candidate, found
        if best is not None:
            chosen.append(best)
            missing.difference_update(combinations(best))
    return chosen


def flags_of(configuration, device):
    blocks = SLOTS // int(configuration["block-size"])
    flags = ["--device", device, "--kv-blocks", str(blocks)]
    for name, value in configuration.items():
        if name in ("paged", "graph", "prefix-cache"):
            flags.append(f"--{name}" if value == "true" else f"--no-{name}")
        elif name == "pool":
            flags += ["--kv-cache-max-mib", "16"] if value == "resizable" else []
        elif value != "same":
            flags += [f"--{name}", value]
    return flags


def make_jobs(rng):
    jobs = []
    for index, length in enumerate(LENGTHS):
        job = {"id": f"p{length}", "prompt_token_ids": [rng.randint(FIRST_ID, LAST_ID) for _ in range(length)],
               "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
        if index % 3 == 1:  # the device samples
            job |= {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "min_p": 0.02, "seed": 4321 + index}
        elif index % 3 == 2:  # penalties need the host
            job |= {"temperature": 0.8, "top_p": 0.95, "seed": 1234 + index, "repetition_penalty": 1.1}
        jobs.append(job)
    jobs[3] |= {"n": 3, "temperature": 1.1, "seed": 90}  # choices fork at a part-full block
    return jobs


class Runner:
    def __init__(self, baton, model):
        self.baton, self.model = baton, model

    def run(self, jobs, flags, repeat=1, **variables):
        """Runs the jobs `repeat` times in one process. Returns the last round as {id: result line}, and the bytes that NCCL's
        stand-in received."""
        lines = [json.dumps(job | {"id": f"{job['id']}#{round_number}"}) for round_number in range(repeat) for job in jobs]
        with tempfile.NamedTemporaryFile("r") as report:
            process = subprocess.run(
                [self.baton, "run", "--model", self.model, "--jobs", "-", "--json", "--hash-logits", *flags],
                input="\n".join(lines), capture_output=True, text=True,
                env=os.environ | {"BATON_FAKE_NCCL_REPORT": report.name} | variables)
            received = sum(int(line.split()[3]) for line in report)
        results = {}
        for line in process.stdout.splitlines():
            result = json.loads(line)
            if "error" in result:
                raise RuntimeError(f"{flags}: {result}")
            name, round_number = result["id"].rsplit("#", 1)
            if int(round_number) == repeat - 1:
                results[f"{name}/{result['choice']}" if "choice" in result else name] = result
        if len(results) != sum(job.get("n", 1) for job in jobs):
            raise RuntimeError(f"{flags}: {len(results)} of {len(jobs)} answers; {process.stderr[-2000:]}")
        return results, received


def answers(results):
    return {name: (result["token_ids"], result["logits_hash"]) for name, result in results.items()}


def check_transfers(name, configuration, results, received, failures):
    """The KV of every prompt came from the other engine, over the transport that was asked for."""
    if configuration["transport"] == "none":
        return
    if configuration["prefix-cache"] == "false":
        failures += [f"{name}: {job} has no KV from the other engine" for job, result in results.items()
                     if result["ledger"]["kv_bytes"] == 0]
    if (received > 0) != (configuration["transport"] == "nccl"):
        failures.append(f"{name}: NCCL's stand-in received {received} bytes")


def check_nccl_faults(runner, jobs, want, reference, failures):
    configuration = reference | {"transport": "nccl", "max-chunk-tokens": "16", "block-size": "8", "concurrency": "4"}
    for fault in NCCL_FAULTS:
        begin = time.time()
        got, received = runner.run(jobs, flags_of(configuration, "cuda-emulated"), BATON_FAKE_NCCL=fault)
        compare(f"NCCL's stand-in with {fault}", answers(got), want, failures)
        print(f"  NCCL's stand-in with {fault}: {len(got)} answers, {received} bytes received, {time.time() - begin:.1f} s",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--model", required=True, help="GGUF file of a tiny model with byte tokens")
    parser.add_argument("--pairs", action="store_true", help="every pair of values, and faults of NCCL's stand-in")
    parser.add_argument("--all", action="store_true", help="the whole matrix")
    parser.add_argument("--seed", type=int, default=1, help="of the prompts and of the choice of configurations")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    jobs = make_jobs(rng)
    configurations = list(matrix()) if args.all else covering(2 if args.pairs else 1, rng)
    runner = Runner(args.baton, args.model)
    reference = {name: values[0] for name, values in FACTORS.items()}
    print(f"seed {args.seed}, {len(configurations)} configurations of {sum(1 for _ in matrix())}", flush=True)
    failures, wanted, begin = [], {}, time.time()
    for index, configuration in enumerate(configurations):
        kind = {name: configuration[name] for name in ("kv-type", "numerics")}
        key = tuple(kind.values())
        if key not in wanted:
            wanted[key] = answers(runner.run(jobs, flags_of(reference | kind, "cpu"))[0])
        name = " ".join(f"{k}={v}" for k, v in configuration.items() if v != reference[k]) or "reference"
        repeat = 2 if configuration["prefix-cache"] == "true" else 1
        started = time.time()
        results, received = runner.run(jobs, flags_of(configuration, "cuda-emulated"), repeat, BATON_GPU_EMULATOR_SEED=str(index))
        compare(name, answers(results), wanted[key], failures)
        check_transfers(name, configuration, results, received, failures)
        print(f"  {name}: {len(results)} answers, {time.time() - started:.1f} s", flush=True)
    if args.pairs or args.all:
        check_nccl_faults(runner, jobs, wanted["f16", "r1"], reference, failures)
    if len({json.dumps(sorted(want.items())) for want in wanted.values()}) < len(wanted):
        failures.append(f"two of these KV types and numerics gave the same logits everywhere: {list(wanted)}")
    for failure in failures:
        print("FAILED", failure)
    print(f"{len(configurations)} configurations x {len(jobs)} prompts, {len(failures)} differences, {time.time() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
