"""Dynamo's radix tree (PyPI: ai-dynamo-runtime) as a peer of the global index, on the trace that index_bench replays.

Mock workers with LRU caches take the requests in turn; match, store and remove come mixed, as events of Dynamo's own format. The tree is called
through its Python binding, one call at a time, so the figures hold the binding's cost, which is measured too: a match that finds nothing, and
what parsing an event's JSON in Python costs beside it. Prints `name value unit` lines.

    python dynamo_peer.py --trace mooncake_conversation.jsonl --workers 16
"""

import argparse
import collections
import importlib.metadata
import json
import time

from dynamo._core import RadixTree

WORD = (1 << 64) - 1
STORED_KEYS = 1 << 40  # a block's own hash and its chained one differ


def mix(x):
    """A 64-bit finaliser (splitmix64's): ids of the trace are small and dense."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
    return x ^ (x >> 31)


def operations(trace, workers, capacity):
    """[("match", None, hashes, blocks) or (kind, worker, event as JSON, blocks)]."""
    made = []
    caches = [collections.OrderedDict() for _ in range(workers)]

    def event(kind, worker, data, blocks):
        text = json.dumps({"event_id": len(made), "data": {kind: data}, "dp_rank": 0})
        made.append((kind, worker, text.encode(), blocks))

    for number, ids in enumerate(trace):
        worker = number % workers
        cache = caches[worker]
        local = [mix(i + 1) for i in ids]
        chained = [mix(i + STORED_KEYS) for i in ids]
        made.append(("match", None, local, len(ids)))
        known = 0
        while known < len(ids) and ids[known] in cache:
            known += 1
        if known < len(ids):
            event("stored", worker,
                  {"parent_hash": chained[known - 1] if known else None,
                   "blocks": [{"block_hash": chained[i], "tokens_hash": local[i]} for i in range(known, len(ids))]},
                  len(ids) - known)
        for i in reversed(ids):
            cache[i] = True
            cache.move_to_end(i)
        gone = [cache.popitem(last=False)[0] for _ in range(max(0, len(cache) - capacity))]
        if gone:
            event("removed", worker, {"block_hashes": [mix(i + STORED_KEYS) for i in gone]}, len(gone))
    return made


def seconds_of(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--capacity", type=int, default=16384, help="blocks of a worker's cache")
    options = parser.parse_args()
    with open(options.trace, encoding="utf-8") as file:
        trace = [json.loads(line)["hash_ids"] for line in file]
    made = operations(trace, options.workers, options.capacity)

    tree = RadixTree()
    spent = collections.Counter()
    blocks = collections.Counter()
    match_us = []
    for kind, worker, what, count in made:
        if kind == "match":
            took = seconds_of(lambda: tree.find_matches(what))
            match_us.append(took * 1e6)
        else:
            took = seconds_of(lambda: tree.apply_event(worker, what))
        spent[kind] += took
        blocks[kind] += count
    match_us.sort()
    nothing = seconds_of(lambda: [tree.find_matches([1]) for _ in trace]) / len(trace)
    parsing = sum(seconds_of(lambda: json.loads(what)) for kind, _, what, _ in made if kind != "match")

    print(f"ai-dynamo-runtime {importlib.metadata.version('ai-dynamo-runtime')}, {options.workers} workers, "
          f"{len(trace)} requests once, round robin, from Python")
    print(f"peer_block_ops_per_s {sum(blocks.values()) / sum(spent.values()):.4g} 1/s")
    print(f"peer_match_p50_us {match_us[len(match_us) // 2]:.2f} us")
    print(f"peer_match_p99_us {match_us[len(match_us) * 99 // 100]:.2f} us")
    for kind in ("match", "stored", "removed"):
        if blocks[kind]:
            print(f"peer_{kind}_ns_per_block {spent[kind] / blocks[kind] * 1e9:.0f} ns")
    print(f"peer_empty_match_us {nothing * 1e6:.2f} us")
    print(f"peer_json_share {parsing / (spent['stored'] + spent['removed']):.2f} (the events' JSON parsed in Python, beside the calls)")


if __name__ == "__main__":
    main()
