"""Measures Dynamo's radix tree (PyPI: ai-dynamo-runtime) on the operations that `index_bench --dump-operations` wrote.

The tree is called through its Python binding, one call at a time, so the figures include the binding's cost. That cost is measured too: a
match that finds nothing, and parsing an event's JSON in Python. Events are in Dynamo's own format and are made before the clock runs.
There are two differences from Baton's index. Dynamo's hashes have 64 bits: a block's own hash is the high half of ours, its chained hash the
low half. Dynamo refuses an event with an unknown parent; the script counts these. It prints a table, then a JSON line. With --beside FILE, the
JSON line starts with the figures of FILE's last line.

    python dynamo_peer.py --operations operations.jsonl [--beside output_of_index_bench]
"""

import argparse
import collections
import importlib.metadata
import json
import time

from dynamo._core import RadixTree


def read_operations(path):
    """Returns a list of ("match", None, hashes, blocks) or (kind, worker, event as JSON, blocks)."""
    made = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            operation = json.loads(line)
            kind, hashes = operation["kind"], operation["hashes"]
            if kind == "match":
                made.append((kind, None, [own for _, own in hashes], len(hashes)))
                continue
            if kind == "stored":
                parent = operation["parent"]
                data = {"parent_hash": parent and parent[0],
                        "blocks": [{"block_hash": chained, "tokens_hash": own} for chained, own in hashes]}
            else:
                data = {"block_hashes": [chained for chained, _ in hashes]}
            text = json.dumps({"event_id": len(made), "data": {kind: data}, "dp_rank": 0})
            made.append((kind, operation["worker"], text.encode(), len(hashes)))
    return made


def seconds_of(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", required=True)
    parser.add_argument("--beside", help="output of index_bench, whose figures come first in the JSON line")
    options = parser.parse_args()
    made = read_operations(options.operations)

    tree = RadixTree()
    spent = collections.Counter()
    blocks = collections.Counter()
    match_us = []
    found = refused = 0
    for kind, worker, what, count in made:
        begin = time.perf_counter()
        if kind == "match":
            answer = tree.find_matches(what)
            took = time.perf_counter() - begin
            match_us.append(took * 1e6)
            found += max(answer.scores.values(), default=0)
        else:
            try:
                tree.apply_event(worker, what)
            except RuntimeError:
                refused += 1
            took = time.perf_counter() - begin
        spent[kind] += took
        blocks[kind] += count
    match_us.sort()
    matches = len(match_us)
    nothing = seconds_of(lambda: [tree.find_matches([1]) for _ in range(matches)]) / matches
    parsing = sum(seconds_of(lambda: json.loads(what)) for kind, _, what, _ in made if kind != "match")

    seconds = sum(spent.values())
    changed = blocks["stored"] + blocks["removed"]
    figures = [("peer_block_ops_per_s", (blocks["match"] + changed) / seconds, "1/s"),
               ("peer_found_block_ops_per_s", (found + changed) / seconds, "1/s"),
               ("peer_match_p50_us", match_us[matches // 2], "us"),
               ("peer_match_p99_us", match_us[matches * 99 // 100], "us"),
               *((f"peer_{kind}_ns_per_block", spent[kind] / blocks[kind] * 1e9, "ns")
                 for kind in ("match", "stored", "removed") if blocks[kind]),
               ("peer_found_blocks", found, "blocks"),
               ("peer_refused_events", refused, "events"),
               ("peer_empty_match_us", nothing * 1e6, "us"),
               # Share of the time that parsing the events' JSON in Python takes.
               ("peer_json_share", parsing / (spent["stored"] + spent["removed"]), "share")]

    print(f"ai-dynamo-runtime {importlib.metadata.version('ai-dynamo-runtime')}, {len(made)} operations, from Python")
    condition = "Dynamo's tree and the operations are in one Python process; every call crosses the binding."
    print(condition)
    for name, value, unit in figures:
        print(f"{name:32} {value:14.4g} {unit}")
    line = {"bench": "index_peer", "seed": None, "figures": []}
    if options.beside:
        with open(options.beside, encoding="utf-8") as file:
            line = json.loads(file.readlines()[-1])
    line["conditions"] = [*line.get("conditions", []), condition]
    line["figures"] += [{"name": name, "value": value, "unit": unit, "limit": None, "ratio": None}
                        for name, value, unit in figures]
    print(json.dumps(line))


if __name__ == "__main__":
    main()
