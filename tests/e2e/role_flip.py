#!/usr/bin/env python3
"""Measures how soon two workers whose roles were swapped serve a request of their new kinds, with real processes under load.

  role_flip.py --bin build/release/bin [--model M.gguf] [--flips 20] [--clients 4] [--seed N]

One of two workers prefills, the other decodes. Each flip swaps their roles with `Worker.SetRole` (`baton set-role`, with the start
of its processes). `role_flip_ms` is the time from the first call until the answer came to a request that the one worker prefilled
and the other decoded in their new roles. Meanwhile other clients keep both workers busy.

Prints a table, then one JSON object. Exit code 1 if a request failed; a slow time is no failure. Standard library only.
"""

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time

from cluster import Cluster, default_model, load_condition

LIMIT_MS = 1500
TOKENS = 200  # byte tokens, which every model of the tests has


def ask(address, rng, prompt_tokens, answer_tokens):
    """Sends a completion over HTTP. Returns its first choice; raises RuntimeError if the request failed."""
    body = {"prompt": [rng.randrange(3, TOKENS) for _ in range(prompt_tokens)], "max_tokens": answer_tokens, "temperature": 0,
            "ignore_eos": True, "return_ledger": True}
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{response.status}: {text}")
    return json.loads(text)["choices"][0]


class Load:
    """Clients that send requests until the end. `failed` has their errors."""

    def __init__(self, address, clients, seed):
        self.ended = threading.Event()
        self.failed = []
        self.threads = [threading.Thread(target=self.run, args=(address, random.Random(seed + i))) for i in range(clients)]

    def run(self, address, rng):
        while not self.ended.is_set():
            try:
                ask(address, rng, 120, 24)
            except RuntimeError as error:
                self.failed.append(str(error))

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


def swap_ms(cluster, address, prefills, decodes, rng):
    """Gives the workers these roles, and asks until an answer names them in these roles. Returns milliseconds."""
    begin = time.monotonic()
    set_role(cluster, prefills, "both")  # so that some worker decodes at any time
    set_role(cluster, decodes, "decode")
    set_role(cluster, prefills, "prefill")
    while True:
        choice = ask(address, rng, 100, 1)
        if (choice.get("prefill_worker"), choice.get("decode_worker")) == (prefills, decodes):
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
    # Decode workers then compute no prompts themselves.
    remote = ["--local-prefill-tokens=0", "--local-prefill-penalty=1000"]
    with Cluster(options.bin, options.model, 0, 0, ["--threads=1", "--kv-blocks=512"], remote,
                 up_arguments=["--both-workers=2", "--http-address=127.0.0.1:0"]) as cluster:
        address = cluster.process.stdout.readline().split()[1]
        names = ["both-0", "both-1"]
        with Load(address, options.clients, options.seed) as load:
            times = [swap_ms(cluster, address, names[i % 2], names[(i + 1) % 2], rng) for i in range(options.flips)]
    worst = max(times)
    print(f"role_flip_ms most {worst:.0f}, median {statistics.median(times):.0f}, of {len(times)} flips (limit {LIMIT_MS})")
    print(f"failed requests: {len(load.failed)}")
    print(json.dumps({"bench": "role_flip", "seed": options.seed, "figures": [
        {"name": "role_flip_ms", "value": round(worst, 1), "unit": "ms", "limit": LIMIT_MS, "ratio": round(worst / LIMIT_MS, 3)}]}))
    for error in load.failed[:3]:
        print(error, file=sys.stderr)
    return 1 if load.failed else 0


if __name__ == "__main__":
    sys.exit(main())
