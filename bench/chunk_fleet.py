#!/usr/bin/env python3
"""Measures chunked prompts in a fleet of real processes. Prints each round; the last line is one JSON object with the figures.

  chunk_fleet.py --bin BUILD/bin [--model M.gguf] [--rounds 5] [--chunks 8] [--chunk-tokens 512] [--only cached,pull]

ttft_full_over_cached_fleet  A router, a prefill worker and a decode worker: time to the first token of an ordinary prompt, divided by that
                             of a prompt of equal length whose chunks are cached. The question is new each time.
pull_over_compute            A router and two workers with both roles, which take turns: time in which one computes the chunks, divided by
                             the time in which the other one pulls them.

A figure is the median of the rounds' ratios; low and high are the least and the largest. Exit code 1 if a request failed or did not take
the way that it should. The services and the load generator share this machine's processors. Standard library only.
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e"))
from cluster import Cluster, default_model, load_condition  # noqa: E402

SYSTEM_TOKENS, QUESTION_TOKENS = 64, 32
TOKEN_IDS = range(1000, 40_000)  # no control tokens
ANSWER_S = 600


class Fleet:
    def __init__(self, stack, options, prefill, decode, *arguments):
        pool = 4 * (options.chunks * options.chunk_tokens + 1024) // 16
        self.cluster = stack.enter_context(Cluster(
            options.bin, options.model, prefill, decode, up_arguments=("--http-address", "127.0.0.1:0", *arguments),
            worker_arguments=("--threads=1", "--block-size=16", f"--kv-blocks={pool}", "--chunk-cache-share=0.5")))
        self.http = self.cluster.says("http")
        self.random = random.Random(options.seed)

    def tokens(self, count):
        return self.random.choices(TOKEN_IDS, k=count)

    def parts(self, options):
        return {"system": self.tokens(SYSTEM_TOKENS), "chunks": [self.tokens(options.chunk_tokens) for _ in range(options.chunks)]}

    def ask(self, job):
        """Returns the seconds to the first token, and the ledger."""
        connection = http.client.HTTPConnection(self.http, timeout=ANSWER_S)
        body = json.dumps({"max_tokens": 2, "temperature": 0, "ignore_eos": True, "stream": True, "return_ledger": True, **job})
        begun, first, ledger = time.perf_counter(), None, None
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read().decode())
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.perf_counter() - begun
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(event["error"])
            ledger = next((choice["ledger"] for choice in event["choices"] if "ledger" in choice), ledger)
        connection.close()
        return first, ledger


def measure_cached(options):
    ratios = []
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, options, 1, 1)
        parts = fleet.parts(options)
        fleet.ask({**parts, "question": fleet.tokens(QUESTION_TOKENS)})
        for i in range(options.rounds):
            length = SYSTEM_TOKENS + options.chunks * options.chunk_tokens + QUESTION_TOKENS
            full, _ = fleet.ask({"prompt": fleet.tokens(length)})
            cached, ledger = fleet.ask({**parts, "question": fleet.tokens(QUESTION_TOKENS)})
            if int(ledger["chunk_hits"]) != options.chunks:
                raise RuntimeError(f"the chunks were not cached: {ledger}")
            ratios.append(full / cached)
            print(f"round {i + 1}: ordinary {1000 * full:.0f} ms, cached {1000 * cached:.0f} ms, ratio {ratios[-1]:.1f}", flush=True)
    return ratios


def measure_pull(options):
    ratios = []
    with contextlib.ExitStack() as stack:
        fleet = Fleet(stack, options, 0, 0, "--both-workers", "2", "--router-argument=--routing-policy=round-robin",
                      "--router-argument=--pull-prefixes=true")
        for i in range(options.rounds):
            parts = fleet.parts(options)
            _, computed = fleet.ask({**parts, "question": fleet.tokens(QUESTION_TOKENS)})
            _, pulled = fleet.ask({**parts, "question": fleet.tokens(QUESTION_TOKENS)})
            if int(pulled["chunk_pulled_bytes"]) == 0 or int(pulled["chunk_hits"]) != options.chunks:
                raise RuntimeError(f"the chunks were not pulled: {pulled}")
            ratios.append(int(computed["chunk_compute_us"]) / int(pulled["pull_us"]))
            print(f"round {i + 1}: computed in {int(computed['chunk_compute_us']) / 1000:.0f} ms, {int(pulled['chunk_pulled_bytes']) >> 20} MiB "
                  f"pulled in {int(pulled['pull_us']) / 1000:.1f} ms, ratio {ratios[-1]:.1f}", flush=True)
    return ratios


MEASUREMENTS = {"cached": ("ttft_full_over_cached_fleet", 20, measure_cached), "pull": ("pull_over_compute", 10, measure_pull)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(MEASUREMENTS))
    options = parser.parse_args()
    if unknown := [only for only in options.only.split(",") if only not in MEASUREMENTS]:
        parser.error(f"--only: is {unknown[0]}; must be one of {', '.join(MEASUREMENTS)}")
    print(load_condition())
    figures = []
    for only in options.only.split(","):
        name, goal, measure = MEASUREMENTS[only]
        ratios = measure(options)
        figures.append({"name": name, "value": round(statistics.median(ratios), 2), "unit": "ratio", "limit": goal,
                        "low": round(min(ratios), 2), "high": round(max(ratios), 2)})
    print(json.dumps({"figures": figures, "condition": load_condition()}))


if __name__ == "__main__":
    main()
