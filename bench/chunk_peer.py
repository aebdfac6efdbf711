#!/usr/bin/env python3
"""Compares reused prompt chunks with `llama-server --cache-reuse`. scripts/chunk_peer.sh builds both and calls this.

    chunk_peer.py --baton FILE --server FILE --model FILE [--threads N] [--rounds 7] [--chunks 8] [--chunk-tokens 512]

Both answer prompts of equal token ids: a system part, chunks and a new question. llama-server reuses the chunks that its slot
holds in rising order, and moves their keys. The cases:

    dropped    the slot holds the prompt; the next prompt lacks its first chunk
    reversed   the slot holds the prompt; the next prompt has the chunks in reverse order

Each round has chunks of its own, because llama-server also keeps whole earlier prompts in host memory. In each round, both first
compute the whole prompt. Then both answer the case, Baton in both modes of positions.
The time is that to the first token: `timings.prompt_ms` of the server, without its HTTP and its sampling, which favours it;
`first_token_us` of Baton's ledger. A figure is the median of the rounds' ratios, server / Baton. The server runs with flash
attention off and on; the faster one counts. The last line of the output is a JSON object. Standard library only.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import urllib.request

from llama_server import LlamaServer

SYSTEM_TOKENS, QUESTION_TOKENS = 64, 32
FIRST_TOKEN, LAST_TOKEN = 100, 40_000  # of SmolLM2: no control tokens
CASES = {"dropped": lambda chunks: chunks[1:], "reversed": lambda chunks: chunks[::-1]}
GOALS = {"dropped": 1.5, "reversed": 20}
REQUEST_S = 600


class Server(LlamaServer):
    """A running llama-server with one slot."""

    def __init__(self, options, flash):
        super().__init__(options.server, options.model, options.threads,
                         ["-c", str(options.context), "-np", "1", "--cache-reuse", "64", "-fa", flash])

    def ask(self, tokens):
        """Returns (milliseconds to the first token, tokens found in the slot)."""
        body = {"prompt": tokens, "n_predict": 1, "cache_prompt": True, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(self.address + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            timings = json.load(answer)["timings"]
        return timings["prompt_ms"], timings["cache_n"]


class Baton:
    """`baton run` that answers one job after the other."""

    def __init__(self, options):
        self.process = subprocess.Popen(
            [str(options.baton), "run", "--model", str(options.model), "--threads", str(options.threads), "--jobs", "-", "--json",
             "--concurrency", "1", "--chunk-cache-share", "0.5"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, system, chunks, question, positions):
        """Returns (milliseconds to the first token, chunks found in the cache)."""
        job = {"id": "a", "system": system, "chunks": chunks, "question": question, "chunk_positions": positions,
               "temperature": 0, "max_tokens": 1, "ignore_eos": True}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        result = json.loads(line) if line else {"error": "baton run ended"}
        if "error" in result:
            raise SystemExit(f"chunk_peer: {result['error']}")
        return result["ledger"]["first_token_us"] / 1000, result["ledger"]["chunk_hits"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Prompts:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.system = self.tokens(SYSTEM_TOKENS)

    def tokens(self, count):
        return [self.random.randrange(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]

    def question(self):
        return self.tokens(QUESTION_TOKENS)

    def chunks(self):
        return [self.tokens(self.options.chunk_tokens) for _ in range(self.options.chunks)]

    def flat(self, chunks):
        """Returns the ordinary prompt of these chunks, with a new question."""
        return self.system + [token for chunk in chunks for token in chunk] + self.question()


def measure(options, flash, prompts, baton):
    """Returns {case: {"peer": [ms], "overlap": [ms], "sequential": [ms], "peer_found": tokens}}."""
    found = {case: {"peer": [], "overlap": [], "sequential": [], "peer_found": 0} for case in CASES}
    server = Server(options, flash)
    try:
        for round_number in range(options.rounds):
            for case, change in list(CASES.items())[::1 if round_number % 2 == 0 else -1]:
                first = prompts.chunks()
                chunks = change(first)
                server.ask(prompts.flat(first))
                baton.ask(prompts.system, first, prompts.question(), "overlap")
                peer_ms, cached = server.ask(prompts.flat(chunks))
                found[case]["peer"].append(peer_ms)
                found[case]["peer_found"] = cached
                for positions in ("overlap", "sequential"):
                    ours_ms, hits = baton.ask(prompts.system, chunks, prompts.question(), positions)
                    if hits != len(chunks):
                        raise SystemExit(f"chunk_peer: Baton found {hits} of {len(chunks)} chunks")
                    found[case][positions].append(ours_ms)
            print(f"flash attention {flash}: round {round_number + 1} of {options.rounds}", file=sys.stderr)
    finally:
        server.close()
    return found


def compare(by_flash):
    """Returns the figures. Each takes the server's faster mode."""
    figures = []
    print(f"{'case':10} {'positions':11} {'server ms':>10} {'found':>6} {'Baton ms':>9} {'ratio':>7} {'least':>7} {'largest':>8}  server's mode")
    for case in CASES:
        flash = min(by_flash, key=lambda mode: statistics.median(by_flash[mode][case]["peer"]))
        best = by_flash[flash][case]
        for positions in ("overlap", "sequential"):
            ratios = [peer / ours for peer, ours in zip(best["peer"], best[positions])]
            ratio = statistics.median(ratios)
            print(f"{case:10} {positions:11} {statistics.median(best['peer']):10.1f} {best['peer_found']:6} "
                  f"{statistics.median(best[positions]):9.1f} {ratio:7.2f} {min(ratios):7.2f} {max(ratios):8.2f}  flash attention {flash}")
            name = f"first_token_to_peer_{case}" + ("" if positions == "overlap" else "_sequential")
            goal = GOALS[case] if positions == "overlap" else None
            figures.append({"name": name, "value": ratio, "unit": "ratio", "limit": goal, "ratio": ratio / goal if goal else None,
                            "low": min(ratios), "high": max(ratios), "runs": len(ratios),
                            "peer_ms": statistics.median(best["peer"]), "ours_ms": statistics.median(best[positions]),
                            "peer_name": f"llama-server --cache-reuse 64 -fa {flash}"})
    return figures


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--baton", "--server", "--model"):
        parser.add_argument(name, required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--chunks", type=int, default=8)
    parser.add_argument("--chunk-tokens", type=int, default=512)
    parser.add_argument("--context", type=int, default=8192, help="tokens of the server's context")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.chunks < 2:
        parser.error("--rounds must be 1 or more, --chunks 2 or more")
    prompts, baton = Prompts(options), Baton(options)
    load = " ".join(map(str, os.getloadavg()))
    figures = compare({flash: measure(options, flash, prompts, baton) for flash in ("off", "on")})
    baton.close()
    conditions = [f"{options.threads} threads each, {options.chunks} chunks of {options.chunk_tokens} tokens, {options.rounds} rounds.",
                  f"Load of the machine at the start, at the end: {load}, {' '.join(map(str, os.getloadavg()))}"]
    print("\n".join(conditions))
    print(json.dumps({"bench": "chunk_peer", "seed": options.seed, "conditions": conditions, "figures": figures}))


if __name__ == "__main__":
    main()
