#!/usr/bin/env python3
"""Measures how much of a KV transfer is left after its prompt is computed, with real worker processes.

  exposed_transfer.py --bin build/release/bin [--model M.gguf] [--requests 15] [--chunk 256] [--pieces 8] [--transport shm]

Three services run all the time and take turns: without layer-wise streaming (`--layer-pieces 1`), with the last chunk in
`--pieces` pieces, and with the default. Every prompt has four chunks and is not cached.

The figure is the ledger's `kv_exposed_us`. It starts when the last chunk is computed and ends when the decode worker has all KV.
Over TCP the two workers may have different clocks, so it ends when the prefill worker gets the confirmation.

Pools are small, so that the warm-up writes to every block: the first access to a page of a virtual machine is much slower.

The limit is the time of the last piece alone, measured in the same run without overlap:
- `chunk_alone`: a prompt of one chunk.
- `piece_alone`: a prompt with as many tokens as one piece has bytes for.
- `nothing_alone`: a prompt of one token, which shows the fixed cost of a transfer.

Prints `name median (limit, ratio) [quartiles, least and most]` lines. Exit code 1 if a request failed; a slow time is no failure.
Standard library only.
"""

import argparse
import contextlib
import random
import statistics
import sys

from cluster import Cluster, default_model, load_condition

VOCABULARY = 49_000  # every model that the tests use has these ids
CHUNKS = 4
BLOCK = 16  # tokens
WARM_UP = 4  # turns that open the connections and touch the whole pool


def exposed_us(cluster, rng, tokens):
    """Returns `kv_exposed_us` of one new prompt."""
    job = {"id": "it", "prompt_token_ids": [rng.randrange(100, VOCABULARY) for _ in range(tokens)], "max_tokens": 8,
           "temperature": 0, "ignore_eos": True}
    results, code = cluster.generate([job], "--placement", "remote")
    if code != 0:
        raise RuntimeError(results["it"]["error"])
    return results["it"]["ledger"]["kv_exposed_us"]


def measure(options, transport, rng):
    piece_tokens = max(1, options.chunk // options.pieces)
    prompt = CHUNKS * options.chunk
    services = {"chunks": 1, "layers": options.pieces, "default": 0}
    figures = {name: [] for name in (*services, "chunk_alone", "piece_alone", "nothing_alone")}
    with contextlib.ExitStack() as stack:
        clusters = {name: stack.enter_context(Cluster(options.bin, options.model, 1, 1, [
            f"--transport={transport}", f"--layer-pieces={pieces}", f"--max-chunk-tokens={options.chunk}",
            f"--kv-blocks={2 * prompt // BLOCK}",
            *options.worker_argument])) for name, pieces in services.items()}
        for turn in range(options.requests + WARM_UP):
            came = {name: exposed_us(cluster, rng, prompt) for name, cluster in clusters.items()}
            came["chunk_alone"] = exposed_us(clusters["chunks"], rng, options.chunk)
            came["piece_alone"] = exposed_us(clusters["chunks"], rng, piece_tokens)
            came["nothing_alone"] = exposed_us(clusters["chunks"], rng, 1)
            if turn < WARM_UP:
                continue
            for name, value in came.items():
                figures[name].append(value)
    for name, values in figures.items():
        limit = statistics.median(figures["chunk_alone" if name == "chunks" else "piece_alone"])
        first, median, third = statistics.quantiles(values, n=4)
        beside = "" if name.endswith("_alone") or name == "default" else f"  (limit {limit:.0f}, ratio {median / limit:.2f})"
        print(f"exposed_us.{transport}.{name} {median:.0f}{beside}  "
              f"[{first:.0f} to {third:.0f}, {min(values)} to {max(values)}]", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    parser.add_argument("--requests", type=int, default=15)
    parser.add_argument("--chunk", type=int, default=256, help="tokens")
    parser.add_argument("--pieces", type=int, default=8, help="pieces of the last chunk; at most --chunk")
    parser.add_argument("--transport", action="append", help="shm or tcp; default: both")
    parser.add_argument("--worker-argument", action="append", default=[], help="for every worker, as --worker-argument=--threads=1")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(load_condition())
    for transport in options.transport or ("shm", "tcp"):
        measure(options, transport, rng)
    print(f"seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
