#!/usr/bin/env python3
"""Measures the time from a client's death until its blocks are free, with real processes.

  cancelled_blocks.py --bin build/release/bin [--bin OTHER/bin …] [--model M.gguf] [--requests 15] [--tokens 3000]
                      [--device cpu-async --steps-in-flight 2 as --worker-argument …]

Each service gets a long prompt. The script kills the client while a worker computes the prompt.

- `cancel_to_free_ms` is the time from the kill until `baton inspect worker` shows, for every worker, no block that is owned, in
  flight or held by a step. It includes the time of the questions.
- `question_ms` is the time of the questions alone. It is the lower limit of the first figure.

The services of all --bin directories run all the time and take turns. Prints `name median [quartiles]` lines. Exit code 1 if a
block was not freed within 60 s; a slow time is no failure. Standard library only.
"""

import argparse
import contextlib
import random
import re
import statistics
import subprocess
import sys
import time

from cluster import Cluster, default_model, wait_until

VOCABULARY = 49_000  # every model that the tests use has these ids


def at_rest(cluster):
    """True if no worker holds a block for a request. Asks the engines directly; the router only knows the last heartbeat."""
    for address in cluster.worker_addresses:
        said = subprocess.run([cluster.baton, "inspect", "worker", "--worker", address], capture_output=True, text=True,
                              check=True).stdout
        if any(int(count) != 0 for count in re.findall(r"(\d+) (?:owned|in flight|of steps)\b", said)):
            return False
    return True


def cancelled_ms(cluster, rng, tokens, placement):
    """Sends a prompt, kills the client when a worker holds blocks for it, and returns the time until all blocks are free."""
    prompt = ",".join(str(rng.randrange(100, VOCABULARY)) for _ in range(tokens))
    job = f'{{"id": "it", "prompt_token_ids": [{prompt}], "max_tokens": 64, "ignore_eos": true}}'
    client = subprocess.Popen(cluster.generate_command("--jobs", "-", "--placement", placement), stdin=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True)
    client.stdin.write(job + "\n")
    client.stdin.close()
    wait_until(lambda: not at_rest(cluster), 30, "the prompt at a worker")
    time.sleep(rng.uniform(0.0, 0.3))  # strike at a random moment of a step
    if client.poll() is not None:
        raise RuntimeError("the prompt was answered before its client could be killed: use more --tokens")
    client.kill()
    begin = time.monotonic()
    client.wait()
    wait_until_at_rest(cluster)
    return (time.monotonic() - begin) * 1000


def wait_until_at_rest(cluster):
    end = time.monotonic() + 60
    while not at_rest(cluster):
        if time.monotonic() > end:
            raise TimeoutError("blocks are still held 60 s after the client's death")


def question_ms(cluster):
    begin = time.monotonic()
    at_rest(cluster)
    return (time.monotonic() - begin) * 1000


def line(name, values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{name} {middle:.1f} [{low:.1f} {high:.1f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", action="append", required=True)
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--requests", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker-argument", action="append", default=[])
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with contextlib.ExitStack() as stack:
        clusters = [stack.enter_context(Cluster(directory, options.model, 1, 1, options.worker_argument))
                    for directory in options.bin]
        for cluster in clusters:
            cluster.worker_addresses = [worker["address"] for worker in cluster.workers().values()]
        for placement in ("local", "remote"):
            times = [[] for _ in clusters]
            for _ in range(options.requests):
                for cluster, figures in zip(clusters, times):
                    figures.append(cancelled_ms(cluster, rng, options.tokens, placement))
            for directory, figures in zip(options.bin, times):
                print(line(f"{placement} cancel_to_free_ms {directory}", figures), flush=True)
        for directory, cluster in zip(options.bin, clusters):
            print(line(f"question_ms {directory}", [question_ms(cluster) for _ in range(options.requests)]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (RuntimeError, TimeoutError) as error:
        print(f"cancelled_blocks: {error}", file=sys.stderr)
        sys.exit(1)
