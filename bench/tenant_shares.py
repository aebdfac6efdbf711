#!/usr/bin/env python3
"""Measures what tenants of one fleet do to each other. Prints a table; the last line is one JSON object with the figures.

  tenant_shares.py --bin BUILD/bin [--model M.gguf] [--pairs 600] [--seconds 30] [--only shares,timing,hits]

fair_goodput_share   Tenant B sends within its share while tenant A sends ten times as much: tokens of B per second, divided by those
                     of B alone. Both have the weight 1. fair_ttft_ratio: the same for its 99 % quantile of the time to first token.
tenant_timing_auc    Time to first token of prompts that another tenant has sent before, against that of new prompts, in pairs that
                     alternate: the probability that the first is shorter (area under the curve). 0.5: nothing can be told.
tenant_timing_auc_control  The same for prompts that the same tenant has sent before.

kv_share_hits        Cached prompt tokens of B while A floods a small KV pool of one worker, divided by those of B alone. B has a kv_share of
                     half of it, which its prefixes fit into. kv_share_hits_without: the same without the share.

The services and the load generator share this machine's processors. Standard library only.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e"))
from cluster import default_model, load_condition  # noqa: E402
from fleet import Process  # noqa: E402

ANSWER_S = 300


class Fleet:
    def __init__(self, options, folder, roles=("prefill", "decode"), pool=("--kv-cache-mib", "512"), kv_share=0):
        tenants = pathlib.Path(folder, "tenants.jsonl")
        tenants.write_text(f'{{"tenant": "a"}}\n{{"tenant": "b", "kv_share": {kv_share}}}\n')
        self.processes = [Process([os.path.join(options.bin, "baton-router"), "--listen", "127.0.0.1:0", "--http-listen",
                                   "127.0.0.1:0", "--tenants", str(tenants), "--tenant-window=1", f"--min-prefill-workers={roles.count('prefill')}"],
                                  "listening")]
        router = self.processes[0]
        for role in roles:
            self.processes.append(Process([os.path.join(options.bin, f"baton-{role}-worker"), "--model", options.model, "--router",
                                           router.address, "--worker-id", role, "--threads", "1", *pool], "ready"))
        assert router.popen.stdout.readline().split()[0] == "ready"
        self.http = router.popen.stdout.readline().split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.close()

    def ask(self, tenant, prompt, max_tokens):
        """Returns (seconds to the first token, tokens)."""
        connection = http.client.HTTPConnection(self.http, timeout=ANSWER_S)
        begun = time.perf_counter()
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": prompt, "max_tokens": max_tokens, "min_tokens": max_tokens, "temperature": 0,
                                       "tenant": tenant, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(answer.read().decode())
        while not answer.readline().startswith(b"data: "):
            pass
        first_s = time.perf_counter() - begun
        answer.read()
        connection.close()
        return first_s, max_tokens


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def send(fleet, options, flood_clients):
    """Tenant B sends at its rate, tenant A with `flood_clients`. Returns B's (tokens a second, times to first token)."""
    stopping = threading.Event()
    lock = threading.Lock()
    times, tokens, threads = [], 0, []

    def flood(seed):
        draw = random.Random(seed)
        while not stopping.is_set():
            fleet.ask("a", [draw.randrange(100, 1000) for _ in range(options.prompt_tokens)], options.answer_tokens)

    def one(seed):
        nonlocal tokens
        draw = random.Random(seed)
        first_s, count = fleet.ask("b", [draw.randrange(100, 1000) for _ in range(options.prompt_tokens)], options.answer_tokens)
        with lock:
            times.append(first_s)
            tokens += count

    floods = [threading.Thread(target=flood, args=(1000 + i,)) for i in range(flood_clients)]
    for thread in floods:
        thread.start()
    if floods:
        time.sleep(3)
    begun = time.perf_counter()
    requests = int(options.seconds * options.rate)
    for i in range(requests):
        wait_s = begun + i / options.rate - time.perf_counter()
        time.sleep(max(0, wait_s))
        threads.append(threading.Thread(target=one, args=(i,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - begun
    stopping.set()
    for thread in floods:
        thread.join()
    return tokens / took_s, times


def shares(fleet, options):
    alone, alone_times = send(fleet, options, 0)
    shared, shared_times = send(fleet, options, options.flood)
    ratio = quantile(shared_times, 0.99) / quantile(alone_times, 0.99)
    print(f"B alone: {alone:.1f} tokens/s, p99 to first token {1000 * quantile(alone_times, 0.99):.0f} ms")
    print(f"B beside {options.flood} clients of A: {shared:.1f} tokens/s, p99 {1000 * quantile(shared_times, 0.99):.0f} ms")
    return [{"name": "fair_goodput_share", "value": round(shared / alone, 4), "unit": "ratio", "limit": 1},
            {"name": "fair_ttft_ratio", "value": round(ratio, 3), "unit": "ratio"}]


def area(shorter, longer):
    """The probability that a value of `shorter` is smaller than one of `longer`."""
    ordered = sorted([(value, 1) for value in shorter] + [(value, 0) for value in longer])
    wins, seen = 0, 0
    for _, is_short in ordered:
        if is_short:
            seen += 1
        else:
            wins += seen
    return wins / (len(shorter) * len(longer))


def timing(fleet, options):
    draw = random.Random(options.seed)
    figures = []
    for name, warmer in (("tenant_timing_auc", "a"), ("tenant_timing_auc_control", "b")):
        warm, cold = [], []
        for pair in range(options.pairs if name == "tenant_timing_auc" else max(50, options.pairs // 6)):
            prompts = [[draw.randrange(100, 1000) for _ in range(options.prompt_tokens)] for _ in range(2)]
            fleet.ask(warmer, prompts[0], 1)
            order = [(prompts[0], warm), (prompts[1], cold)]
            if pair % 2:
                order.reverse()
            for prompt, times in order:
                times.append(fleet.ask("b", prompt, 1)[0])
        value = area(warm, cold)
        print(f"{name}: {value:.4f}; medians {1000 * quantile(warm, 0.5):.1f} ms warmed, {1000 * quantile(cold, 0.5):.1f} ms new, "
              f"{len(warm)} pairs")
        figures.append({"name": name, "value": round(value, 4), "unit": "probability"})
    return figures


def cached_tokens(fleet, tenant, prompt, answer_tokens):
    connection = http.client.HTTPConnection(fleet.http, timeout=ANSWER_S)
    connection.request("POST", "/v1/completions",
                       json.dumps({"prompt": prompt, "max_tokens": answer_tokens, "temperature": 0, "tenant": tenant}),
                       {"Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def hits_of(options, kv_share):
    """Returns the cached prompt tokens of B (alone, while A floods). B repeats prompts that need a quarter of the pool."""
    draw = random.Random(options.seed)

    def prompt():
        return [draw.randrange(100, 1000) for _ in range(options.prompt_tokens)]

    blocks_of_one = options.prompt_tokens // 16 + 2
    pool = ("--block-size", "16", "--kv-blocks", str(16 * blocks_of_one))
    with tempfile.TemporaryDirectory() as folder, Fleet(options, folder, ("decode",), pool, kv_share) as fleet:
        prompts = [prompt() for _ in range(4)]
        for one in prompts:
            cached_tokens(fleet, "b", one, 1)
        counts = []
        for flooded in (False, True):
            count = 0
            for _ in range(options.rounds):
                for one in prompts:
                    for _ in range(8 if flooded else 0):
                        cached_tokens(fleet, "a", prompt(), 1)
                    count += cached_tokens(fleet, "b", one, 1)
            counts.append(count)
    return counts


def hits(options):
    figures = []
    for name, kv_share in (("kv_share_hits", 0.5), ("kv_share_hits_without", 0)):
        alone, flooded = hits_of(options, kv_share)
        print(f"{name}: {flooded} cached tokens of B while A floods, {alone} alone; kv_share {kv_share}")
        figures.append({"name": name, "value": round(flooded / alone, 4), "unit": "ratio", "limit": 1})
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--pairs", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=float, default=0.5, help="requests of B per second")
    parser.add_argument("--flood", type=int, default=10, help="clients of A that send without a pause")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--answer-tokens", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="for kv_share_hits: how often B repeats its 4 prompts")
    parser.add_argument("--only", default="shares,timing,hits")
    options = parser.parse_args()
    figures = []
    print(load_condition())
    wanted = options.only.split(",")
    if {"shares", "timing"} & set(wanted):
        with tempfile.TemporaryDirectory() as folder, Fleet(options, folder) as fleet:
            for name, measure in (("shares", shares), ("timing", timing)):
                if name in wanted:
                    figures += measure(fleet, options)
    if "hits" in wanted:
        figures += hits(options)
    print(json.dumps({"bench": "tenant_shares", "seed": options.seed, "figures": figures}))


main()
