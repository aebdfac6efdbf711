#!/usr/bin/env python3
"""Measures how soon a worker whose role was changed serves a request of its new kind, with real processes under load.

  role_flip.py --bin build/release/bin [--model M.gguf] [--flips 20] [--clients 4] [--seed N]

Three workers serve; two of them keep the roles prefill and decode. The third one changes between both. `role_flip_ms` is the time
from the call of `Worker.SetRole` (`baton set-role`, with the start of its process) until the first answer came to which the worker
contributed in its new role. Meanwhile other clients keep all workers busy.

Prints a table, then one JSON object. Exit code 1 if a request failed; a slow time is no failure. Standard library only.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import threading
import time

from cluster import Cluster, default_model, load_condition

LIMIT_MS = 1500
ROLE_FIELD = {"prefill": "prefill_worker", "decode": "decode_worker"}
TOKENS = 200  # byte tokens, which every model of the tests has


def job(rng, prompt_tokens, answer_tokens):
    return {"id": "it", "prompt_token_ids": [rng.randrange(3, TOKENS) for _ in range(prompt_tokens)], "max_tokens": answer_tokens,
            "temperature": 0, "ignore_eos": True}


class Load:
    """Clients that send requests until the end. `failed` has their errors."""

    def __init__(self, cluster, clients, seed):
        self.ended = threading.Event()
        self.failed = []
        self.threads = [threading.Thread(target=self.run, args=(cluster, random.Random(seed + i))) for i in range(clients)]

    def run(self, cluster, rng):
        while not self.ended.is_set():
            results, code = cluster.generate([job(rng, 120, 24)])
            if code != 0:
                self.failed.append(results["it"]["error"])

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def set_role(cluster, worker, role):
    subprocess.run([cluster.baton, "set-role", "--worker", worker, "--role", role, "--router", cluster.router], check=True,
                   capture_output=True, timeout=60)


def flip_ms(cluster, worker, role, rng):
    """Flips the worker, and probes until an answer names it in its new role. Returns milliseconds."""
    begin = time.monotonic()
    set_role(cluster, worker, role)
    while True:
        results, code = cluster.generate([job(rng, 100, 1)], "--placement", "remote")
        if code != 0:
            raise RuntimeError(results["it"]["error"])
        if results["it"][ROLE_FIELD[role]] == worker:
            return (time.monotonic() - begin) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    parser.add_argument("--flips", type=int, default=20)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(load_condition())
    with Cluster(options.bin, options.model, 1, 1, ["--threads=1", "--kv-blocks=512"], up_arguments=["--both-workers=1"]) as cluster:
        with Load(cluster, options.clients, options.seed) as load:
            times = {role: [] for role in ROLE_FIELD}
            for i in range(options.flips):
                role = ("prefill", "decode")[i % 2]
                times[role].append(flip_ms(cluster, "both-0", role, rng))
    figures = []
    for name, values in (("role_flip_ms", times["prefill"] + times["decode"]), ("role_flip_to_prefill_ms", times["prefill"]),
                         ("role_flip_to_decode_ms", times["decode"])):
        worst = max(values)
        print(f"{name} most {worst:.0f}, median {statistics.median(values):.0f}, of {len(values)} flips (limit {LIMIT_MS})")
        figures.append({"name": name, "value": round(worst, 1), "unit": "ms", "limit": LIMIT_MS, "ratio": round(worst / LIMIT_MS, 3)})
    print(f"failed requests: {len(load.failed)}")
    print(json.dumps({"bench": "role_flip", "seed": options.seed, "figures": figures}))
    for error in load.failed[:3]:
        print(error, file=sys.stderr)
    return 1 if load.failed else 0


if __name__ == "__main__":
    sys.exit(main())
