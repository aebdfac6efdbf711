#!/usr/bin/env python3
"""Compares a prefill and a decode worker on the same CPUs with one worker that does both: tokens per second under equal load.

  colocated.py --bin build/release/bin [--model M.gguf] [--rounds 5] [--requests 96] [--clients 16] [--seed N]

Both services run all the time and take turns. In each round, each service answers the same requests, and no prompt is cached.
The client runs on the same CPUs; its work is small. Prints `name value` lines. `colocated_share` is the median of split / one
over the rounds. Standard library only.
"""

import argparse
import random
import statistics
import sys
import time

from cluster import Cluster, default_model, load_condition

VOCABULARY = 49_000  # every model that the tests use has these ids


def jobs(options, rng, turn):
    return [{"id": f"{turn}-{i}", "prompt_token_ids": [rng.randrange(100, VOCABULARY) for _ in range(options.prompt_tokens)],
             "max_tokens": options.answer_tokens, "temperature": 0, "ignore_eos": True} for i in range(options.requests)]


def tokens_per_s(cluster, placement, options, work):
    begin = time.monotonic()
    results, code = cluster.generate(work, "--placement", placement, concurrency=options.clients)
    seconds = time.monotonic() - begin
    if code != 0:
        raise RuntimeError(next(result["error"] for result in results.values() if "error" in result))
    return options.requests * (options.prompt_tokens + options.answer_tokens) / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=96, help="requests per round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--answer-tokens", type=int, default=64)
    parser.add_argument("--worker-argument", action="append", default=[], help="for every worker, as --worker-argument=--threads=2")
    parser.add_argument("--split-argument", action="append", default=[],
                        help="for both workers of the split service, as --split-argument=--threads=1")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(load_condition())
    with (Cluster(options.bin, options.model, 1, 1, options.worker_argument + options.split_argument) as split,
          Cluster(options.bin, options.model, 0, 1, options.worker_argument) as one):
        rounds = []
        for turn in range(options.rounds + 1):
            work = jobs(options, rng, turn)
            rounds.append((tokens_per_s(split, "remote", options, work), tokens_per_s(one, "local", options, work)))
        rounds = rounds[1:]  # the first round is a warm-up
    for name, values in (("split_tokens_per_s", [split for split, _ in rounds]), ("one_tokens_per_s", [one for _, one in rounds]),
                         ("colocated_share", [split / one for split, one in rounds])):
        print(f"{name} {statistics.median(values):.3f}  ({', '.join(f'{value:.3f}' for value in sorted(values))})")
    print(f"seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
