#!/usr/bin/env python3
"""Checks bit-exactness: the configuration must not change a request's token ids and logits.

Every configuration answers the same prompts. Its token ids, and a chained hash over all sampled rows of logits, must equal those
of the reference configuration with the same KV type. The reference is one process, one request at a time, without a prefix cache.

  exactness.py --baton build/release/bin/baton --model M.gguf           a selection that covers every factor (CI)
  exactness.py ... --all                                                the whole matrix (hours)
  exactness.py ... --sample 40 --seed 7                                 a random part of it

Prints a line for every difference; then the exit code is 1. Standard library only.
"""

import argparse
import itertools
import json
import os
import random
import re
import subprocess
import sys
import time

CHUNK = 64
BLOCK = 16
SEGMENT = 256  # of attention
LONGEST = 700  # crosses two segments; in fewer configurations than the others
MAX_TOKENS = 12
PREEMPTION_ATTEMPTS = 5  # a busy machine may end some sequences before others are there


def default_model():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = os.environ.get("BATON_MODEL_DIR") or f"{cache}/baton/models"
    return os.environ.get("BATON_TEST_MODEL") or f"{directory}/SmolLM2-135M-Instruct.Q4_1.gguf"


def prompt_lengths(context):
    """Returns lengths of a block or chunk boundary -1, 0 and +1, one of exactly 5 blocks, and a long one at the end."""
    lengths = [1, 2]
    for edge in (BLOCK, CHUNK, 2 * CHUNK, SEGMENT):
        lengths += [edge - 1, edge, edge + 1]
    return lengths + [300, 5 * BLOCK, min(LONGEST, context - MAX_TOKENS - 1)]


def make_jobs(model_tokens, lengths, max_tokens, rng):
    jobs = []
    for index, length in enumerate(lengths):
        start = rng.randrange(0, len(model_tokens) - length)
        job = {"id": f"p{length}-{index}", "prompt_token_ids": model_tokens[start:start + length],
               "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        if index % 3 == 2:  # sampling depends only on (seed, position), so it is as exact as greedy
            job.update(temperature=0.8, top_p=0.95, top_k=50, seed=1234 + index, repetition_penalty=1.1)
        elif index % 6 == 1:  # penalties need the host; without them the device samples
            job.update(temperature=0.9, top_p=0.9, min_p=0.02, seed=4321 + index)
        jobs.append(job)
    return jobs


class Runner:
    def __init__(self, baton, model, numerics):
        self.baton, self.model, self.numerics = baton, model, numerics

    def run(self, jobs, flags, repeat=1):
        """Runs the jobs `repeat` times in one process. Returns the last round as {id: (token_ids, hash)}, the last round's
        cached tokens, and the preemptions of all rounds."""
        lines = []
        for round_number in range(repeat):
            lines += [dict(job, id=f"{job['id']}#{round_number}") for job in jobs]
        process = subprocess.run(
            [self.baton, "run", "--model", self.model, "--jobs", "-", "--json", "--hash-logits",
             "--numerics", self.numerics, *flags],
            input="\n".join(json.dumps(line) for line in lines), capture_output=True, text=True)
        results, cached, preempted = {}, 0, 0
        for line in process.stdout.splitlines():
            result = json.loads(line)
            if "error" in result:
                raise RuntimeError(f"{flags}: {result}")
            name, round_number = result["id"].rsplit("#", 1)
            if "choice" in result:
                name += f"/{result['choice']}"
            preempted += result["ledger"].get("preemptions", 0)
            if int(round_number) == repeat - 1:
                results[name] = (result["token_ids"], result["logits_hash"])
                cached += result["usage"]["cached_tokens"]
        if len(results) != sum(job.get("n", 1) for job in jobs):
            raise RuntimeError(f"{flags}: {len(results)} of {len(jobs)} answers; {process.stderr[-2000:]}")
        return results, cached, preempted


# Factor → values. The first value is the reference's.
FACTORS = {
    "transport": ["none", "loopback", "tcp", "shm"],
    "max-chunk-tokens": ["65536", "16", "64", "256"],
    "block-size": ["16", "1", "8", "32", "128"],
    "kv-layout": ["block-major", "layer-major"],
    "paged": ["true", "false"],
    "threads": ["1", "2"],
    "instruction-set": [],  # main() fills in the machine's instruction sets
    "mixed-prompt-tokens": ["128", "5"],
    "graph": ["true", "false"],
    "concurrency": ["1", "16"],
    "steps-in-flight": ["1", "2"],  # 2 needs the asynchronous device
    "tensor-parallel": ["1"],  # main() adds a rank for each KV head of the model
    "prefix-cache": ["false", "true"],
    "kv-type": ["f16", "int8", "fp8", "bf16", "f32"],
}


def flags_of(configuration):
    flags = ["--kv-cache-mib", "256", "--token-budget", "1024"]
    for name, value in configuration.items():
        if name in ("paged", "graph", "prefix-cache"):
            flags.append(f"--{name}" if value == "true" else f"--no-{name}")
        elif name == "steps-in-flight" and value == "1":
            continue
        elif name == "steps-in-flight":
            flags += ["--device", "cpu-async", "--steps-in-flight", value]
        else:
            flags += [f"--{name}", value]
    return flags


def takes_longest(configuration, reference):
    """One factor away from the reference, or in small chunks over TCP."""
    away = [name for name, value in configuration.items() if value != reference.get(name)]
    return len(away) <= 1 or (configuration["transport"], configuration["max-chunk-tokens"]) == ("tcp", "16")


def model_numbers(baton, model):
    """Returns the context length and the number of KV heads."""
    shown = subprocess.run([baton, "inspect", "model", "--model", model], capture_output=True, text=True, check=True).stdout
    return (int(re.search(pattern, shown).group(1)) for pattern in (r"\bcontext (\d+)", r"\band (\d+) KV heads"))


def compare(name, got, want, failures):
    for job, (tokens, digest) in got.items():
        if (tokens, digest) != want[job]:
            first = next((i for i, (a, b) in enumerate(zip(tokens, want[job][0])) if a != b), None)
            failures.append(f"{name}: {job} differs"
                            + (f" from token {first} on" if first is not None else " in its logits alone"))


def instruction_sets():
    flags = open("/proc/cpuinfo").read()
    sets = ["auto"]
    if "avx2" in flags:
        sets.append("avx2")
    if all(f"avx512{part}" in flags for part in ("f", "bw", "vl", "dq")):
        sets.append("avx512-no-vnni")
    if "avx512_vnni" in flags:
        sets.append("avx512")
    return sets + ["plain"]


def selection(reference):
    """Yields configurations with one factor different from the reference, then combinations of several factors."""
    ranks = FACTORS["tensor-parallel"][-1]
    for factor, values in FACTORS.items():
        for value in values[1:]:
            if factor != "kv-type":
                yield {**reference, factor: value}
    mixed = {**reference, "concurrency": "16", "prefix-cache": "true", "threads": "2"}
    yield {**mixed, "device": "cpu-async"}  # with one step in flight
    yield {**mixed, "transport": "tcp", "max-chunk-tokens": "16", "block-size": "8"}
    yield {**mixed, "transport": "loopback", "max-chunk-tokens": "64", "kv-layout": "layer-major"}
    yield {**mixed, "transport": "tcp", "block-size": "128", "graph": "false", "layer-pieces": "1"}
    yield {**mixed, "transport": "shm", "max-chunk-tokens": "16", "block-size": "8", "kv-layout": "layer-major",
           "layer-pieces": "30"}
    yield {**mixed, "transport": "shm", "kv-type": "int8", "max-chunk-tokens": "64"}
    yield {**mixed, "paged": "false", "prefix-cache": "false", "max-chunk-tokens": "64"}
    yield {**mixed, "instruction-set": "avx2" if "avx2" in FACTORS["instruction-set"] else "plain",
           "block-size": "1", "max-chunk-tokens": "64"}
    two = {**mixed, "steps-in-flight": "2"}
    yield {**two, "max-chunk-tokens": "16", "block-size": "8"}
    yield {**two, "transport": "tcp", "max-chunk-tokens": "64", "layer-pieces": "30"}
    yield {**two, "transport": "shm", "max-chunk-tokens": "16", "kv-layout": "layer-major", "graph": "false"}
    yield {**two, "transport": "loopback", "kv-type": "int8", "max-chunk-tokens": "64", "block-size": "32",
           "prefill-block-size": "16"}
    yield {**two, "paged": "false", "prefix-cache": "false", "max-chunk-tokens": "64"}
    for set_name in FACTORS["instruction-set"][1:]:
        yield {**mixed, "kv-type": "int8", "instruction-set": set_name, "max-chunk-tokens": "64",
               "transport": "none" if set_name == "plain" else "tcp", "block-size": "8"}
        yield {**mixed, "kv-type": "fp8", "instruction-set": set_name, "max-chunk-tokens": "64",
               "transport": "none" if set_name == "plain" else "tcp", "block-size": "32"}
    yield {**mixed, "kv-type": "fp8", "transport": "shm", "max-chunk-tokens": "16", "block-size": "32", "prefill-block-size": "8",
           "prefill-kv-layout": "layer-major", "steps-in-flight": "2"}
    yield {**mixed, "kv-type": "fp8", "transport": "tcp", "prefill-tensor-parallel": ranks, "max-chunk-tokens": "64",
           "layer-pieces": "7"}
    yield {**mixed, "kv-type": "int8", "transport": "loopback", "kv-layout": "layer-major", "max-chunk-tokens": "16"}
    # Sender and receiver have different block sizes or layouts. With shared prefixes, a hit can end inside a sender's block.
    yield {**reference, "transport": "tcp", "prefill-block-size": "32", "prefill-kv-layout": "layer-major"}
    yield {**mixed, "transport": "tcp", "max-chunk-tokens": "64", "block-size": "32", "prefill-block-size": "16",
           "prefill-kv-layout": "layer-major"}
    yield {**mixed, "transport": "shm", "max-chunk-tokens": "16", "block-size": "32", "kv-layout": "layer-major",
           "prefill-block-size": "16", "prefill-kv-layout": "block-major"}
    yield {**mixed, "transport": "shm", "max-chunk-tokens": "64", "block-size": "8", "prefill-block-size": "128",
           "layer-pieces": "7"}
    yield {**mixed, "transport": "loopback", "max-chunk-tokens": "16", "block-size": "64", "prefill-block-size": "1"}
    yield {**mixed, "kv-type": "int8", "transport": "tcp", "block-size": "16", "prefill-block-size": "32",
           "prefill-kv-layout": "layer-major", "layer-pieces": "30"}
    yield {**mixed, "kv-type": "int8", "paged": "false", "prefix-cache": "false", "threads": "1"}
    # Each rank computes one KV head. Engines with several ranks and with one exchange KV in both directions.
    several = {**mixed, "tensor-parallel": ranks}
    yield {**several, "steps-in-flight": "2", "max-chunk-tokens": "64", "kv-type": "int8"}
    yield {**several, "transport": "shm", "prefill-tensor-parallel": "1", "block-size": "8", "prefill-block-size": "32"}
    yield {**mixed, "transport": "tcp", "prefill-tensor-parallel": ranks, "max-chunk-tokens": "64", "kv-layout": "layer-major"}
    yield {**mixed, "transport": "loopback", "prefill-tensor-parallel": ranks, "kv-type": "int8", "block-size": "32",
           "prefill-block-size": "16"}


def matrix(reference):
    names = list(FACTORS)
    for values in itertools.product(*(FACTORS[name] for name in names)):
        configuration = dict(zip(names, values))
        if configuration["paged"] == "false" and (
                configuration["prefix-cache"] == "true" or configuration["kv-layout"] != "layer-major"):
            continue  # contiguous mode is layer-major and has no prefix cache
        if configuration["instruction-set"] == "plain" and configuration["concurrency"] != "1":
            continue  # other configurations cover this; plain kernels are slow
        yield configuration


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--model", default=default_model(), help="GGUF file; default: $BATON_TEST_MODEL, else the default model")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--sample", type=int, default=0, help="number of random configurations of the whole matrix")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numerics", default="auto", help="of all configurations; t1-sm90 is slow on a CPU")
    parser.add_argument("--plain-all", action="store_true",
                        help="every prompt with plain kernels too, which compute ten tokens a second on the default model")
    args = parser.parse_args()
    FACTORS["instruction-set"] = instruction_sets()
    rng = random.Random(args.seed)
    print(f"seed {args.seed}, instruction sets {FACTORS['instruction-set'][1:]}", flush=True)
    runner = Runner(args.baton, args.model, args.numerics)
    text = open(__file__).read()
    ids = json.loads(subprocess.run([args.baton, "inspect", "tokens", "--model", args.model],
                                    input=json.dumps({"text": text}), capture_output=True, text=True,
                                    check=True).stdout)["ids"]
    context, kv_heads = model_numbers(args.baton, args.model)
    FACTORS["tensor-parallel"].append(str(kv_heads))
    jobs = make_jobs(ids, prompt_lengths(context), MAX_TOKENS, rng)
    slow = jobs if args.plain_all else jobs[:4] + [job for job in jobs if len(job["prompt_token_ids"]) == CHUNK + 1]
    reference = {name: values[0] for name, values in FACTORS.items()}
    begin = time.time()
    wanted = {}  # KV type → reference answers
    failures, count = [], 0
    configurations = list(selection(reference))
    if args.all or args.sample:
        configurations = list(matrix(reference))
    if args.sample:
        configurations = rng.sample(configurations, min(args.sample, len(configurations)))
    for configuration in configurations:
        plain = configuration["instruction-set"] == "plain"
        use = slow if plain else jobs if takes_longest(configuration, reference) else jobs[:-1]
        repeat = 2 if configuration["prefix-cache"] == "true" and not plain else 1
        kv_type = configuration["kv-type"]
        if kv_type not in wanted:
            wanted[kv_type], _, _ = runner.run(jobs, flags_of({**reference, "kv-type": kv_type}))
        name = " ".join(f"{k}={v}" for k, v in configuration.items() if v != reference.get(k)) or "reference"
        got, cached, _ = runner.run(use, flags_of(configuration), repeat)
        # With concurrency the second round overlaps the first, so its cache hits depend on timing.
        if repeat == 2 and cached == 0 and configuration["concurrency"] == "1":
            failures.append(f"{name}: nothing was cached on the second round")
        compare(name, got, wanted[kv_type], failures)
        count += 1
        print(f"  {name}: {len(got)} answers, {cached} cached tokens", flush=True)
    # A small pool runs out of blocks while sequences grow, so some sequences are preempted and recomputed.
    growing = [dict(job, max_tokens=64) for job in jobs if len(job["prompt_token_ids"]) <= 65]
    want, _, _ = runner.run(growing, flags_of(reference))
    for steps in FACTORS["steps-in-flight"]:
        device = flags_of({"steps-in-flight": steps})[4:]
        for _ in range(PREEMPTION_ATTEMPTS):
            got, _, preempted = runner.run(growing, ["--concurrency", "16", "--kv-blocks", "24", *device])
            compare(f"small pool, {steps} steps in flight", got, want, failures)
            if preempted > 0:
                break
        if preempted == 0:
            failures.append(f"small pool, {steps} steps in flight: nothing was preempted")
        print(f"  small pool, {steps} steps in flight: {len(got)} answers, {preempted} preemptions", flush=True)
    # Choice i of a job must equal the answer of a single request with seed + i.
    sampled = [dict(job, temperature=1.1, seed=90) for job in jobs if 14 < len(job["prompt_token_ids"]) < 130][:5]
    alone = [dict(job, id=f"{job['id']}/{i}", seed=job["seed"] + i) for job in sampled for i in range(4)]
    want, _, _ = runner.run(alone, flags_of(reference))
    for flags in (flags_of(reference), ["--transport", "tcp", "--max-chunk-tokens", "16", "--block-size", "8"],
                  ["--kv-blocks", "24", "--concurrency", "2"],
                  ["--kv-blocks", "30", "--concurrency", "2", "--device", "cpu-async", "--steps-in-flight", "2"],
                  ["--transport", "tcp", "--max-chunk-tokens", "16", "--block-size", "8", "--concurrency", "5",
                   "--device", "cpu-async", "--steps-in-flight", "2"],
                  flags_of({**reference, "paged": "false", "kv-layout": "layer-major"}),
                  ["--transport", "shm", "--kv-layout", "layer-major", "--concurrency", "5"]):
        got, _, _ = runner.run([dict(job, n=4) for job in sampled], flags)
        compare(f"choices {' '.join(flags)}", got, want, failures)
        print(f"  choices {' '.join(flags)}: {len(got)} answers", flush=True)
    if len({json.dumps(sorted(answers.items())) for answers in wanted.values()}) < len(wanted):
        failures.append(f"two of the KV types {list(wanted)} gave the same logits everywhere")
    for failure in failures:
        print("FAILED", failure)
    print(f"{count + 1} configurations x {len(jobs)} prompts at most, {len(failures)} differences, "
          f"{time.time() - begin:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
