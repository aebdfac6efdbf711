#!/usr/bin/env python3
"""What is left of a KV transfer when its prompt is computed, between real worker processes.

  exposed_transfer.py --bin build/release/bin [--model M.gguf] [--requests 15] [--chunk 256] [--pieces 8] [--transport shm]

Three services run all the time and take turns: without layer-wise streaming (`--layer-pieces 1`), with the last chunk in
`--pieces` pieces, and as it is by default. Every prompt has four chunks and is in no cache. The figure is the ledger's
`kv_exposed_us`: from the last chunk's end until the decode worker has everything; over TCP, whose ends need not have one
clock, until the prefill worker has heard of it.

Pools are so small that every block was written to before the first request that counts: a virtual machine's memory is much
slower the first time.

Its limit is what the last piece takes alone, in the same run and told in the same way: prompts of one chunk, and of as many
tokens as a chunk's piece has bytes for, where nothing overlaps. `nothing_alone` is a prompt of one token: what the way costs
when next to nothing is moved. Prints `name value (limit, ratio) [quartiles, least and most]` lines, medians; exit code 1 when
a request failed, never for a time. Standard library only.
"""

import argparse
import contextlib
import random
import statistics
import sys

from cluster import Cluster, default_model

VOCABULARY = 49_000  # ids that every model here has
CHUNKS = 4
BLOCK = 16  # tokens
WARM_UP = 4  # turns: connections open, all of the pool is touched


def exposed_us(cluster, rng, tokens):
    """Of one new prompt."""
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
    parser.add_argument("--pieces", type=int, default=8, help="of the last chunk; a chunk has at least as many tokens")
    parser.add_argument("--transport", action="append", help="shm, tcp; both when none is named")
    parser.add_argument("--worker-argument", action="append", default=[], help="for every worker, as --worker-argument=--threads=1")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for transport in options.transport or ("shm", "tcp"):
        measure(options, transport, rng)
    print(f"seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
