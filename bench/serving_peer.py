#!/usr/bin/env python3
"""Compares a Baton service with llama-server under load. scripts/serving_peer.sh builds both and calls this.

    serving_peer.py --baton FILE --server FILE --model FILE [--threads N] [--rounds 3] [--clients 1,4,16,64] [--requests N]
                    [--trace FILE] [--policies NAME,…] [--flash on,off]

`baton bench` sends the same requests to both over HTTP: token ids, answers of planned length. One service runs at a time, with all
threads; a round measures both, and the next round begins with the other. The figure of a case is the median over the rounds of

    to_peer_output_tokens = output tokens/s of Baton / output tokens/s of llama-server,

where only the tokens of answers count whose first token came within the objective, which is the same for both. The cases:

    N clients      each sends its next request when its answer has ended; the objective is 500 + 250 N ms
    trace          --trace, a Mooncake trace, in its own order and spacing at --trace-rate; prompts shrink to a 32nd
    trace, POLICY  the same with two decode workers, which share the threads, under each routing policy of --policies

llama-server runs with one slot for each client, enough HTTP threads, and flash attention on and off; the better one counts. --flash
leaves one out, which saves time.
Baton runs as `baton up` with --prefill-workers and --decode-workers. Services and load generator share the processors.
The last line of the output is a JSON object. Standard library only.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from llama_server import LlamaServer

CLIENT_GOALS = {1: 1.5, 4: 3, 16: 3, 64: 3}
TRACE_BLOCK_TOKENS = 16  # of 512
TRACE_SLOTS = 16
BENCH_S = 3600


class BatonUp:
    """`baton up` with HTTP. `address` is http://HOST:PORT."""

    def __init__(self, options, prefill, decode, router_arguments=()):
        threads = max(1, options.threads // max(1, decode))
        command = [str(options.baton), "up", "--model", str(options.model), "--router-address", "127.0.0.1:0", "--http-address",
                   "127.0.0.1:0", "--exit-on-failure", "--prefill-workers", str(prefill), "--decode-workers", str(decode),
                   f"--worker-argument=--threads={threads}"]
        command += [f"--router-argument={argument}" for argument in router_arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.process.stdout:
            if line.startswith("http "):
                self.address = f"http://{line.split()[1]}"
                return
        raise SystemExit("serving_peer: baton up did not start")

    def close(self):
        self.process.terminate()
        self.process.communicate()


class Case:
    """A load, its objective, and the services that take it."""

    def __init__(self, name, bench, ttft_ms, slots, context, goal=None, shape=None, router_arguments=()):
        self.name, self.bench, self.ttft_ms, self.slots, self.context, self.goal = name, bench, ttft_ms, slots, context, goal
        self.shape, self.router_arguments = shape, router_arguments

    def figure(self):
        return "to_peer_output_tokens_" + self.name.replace(" clients", "").replace(" client", "").replace(", ", "_").replace("-", "_")


def cases_of(options):
    cases = []
    for clients in options.clients:
        bench = ["--arrivals", "closed", "--concurrency", str(clients), "--requests", str(options.requests * clients), "--prompt-tokens",
                 str(options.prompt_tokens), "--output-tokens", str(options.output_tokens), "--length-spread", "0.5"]
        context = 2 * (options.prompt_tokens + options.output_tokens)
        cases.append(Case(f"{clients} client{'s' if clients > 1 else ''}", bench, 500 + 250 * clients, clients, context,
                          CLIENT_GOALS.get(clients)))
    if options.trace:
        bench = ["--workload", "mooncake", "--trace", str(options.trace), "--trace-block-tokens", str(TRACE_BLOCK_TOKENS), "--requests",
                 str(options.trace_requests), "--rate", str(options.trace_rate), "--context-length", str(options.trace_context)]
        for policy in (None, *options.policies):
            cases.append(Case(f"trace, {policy}" if policy else "trace", bench, options.trace_ttft_ms, TRACE_SLOTS, options.trace_context,
                              shape=(0, 2) if policy else None, router_arguments=[f"--routing-policy={policy}"] if policy else ()))
    return cases


def measure(options, case, address, seed):
    """Runs the load. Returns (tokens/s of answers in time, median time to the first token in ms, requests that failed)."""
    with tempfile.TemporaryDirectory() as folder:
        records, report = pathlib.Path(folder) / "records", pathlib.Path(folder) / "report"
        subprocess.run([str(options.baton), "bench", "--target", f"{address}/v1", *case.bench, "--seed", str(seed), "--records", records,
                        "--json", report], check=True, stdout=subprocess.DEVNULL, timeout=BENCH_S)
        rows = [json.loads(line) for line in records.read_text().splitlines()]
        took_s = json.loads(report.read_text())["duration_s"]
    good = [row for row in rows if row["outcome"] == "ok"]
    tokens = sum(row["output_tokens"] for row in good if row["ttft_ms"] <= case.ttft_ms)
    return tokens / took_s, statistics.median(row["ttft_ms"] for row in good) if good else 0.0, len(rows) - len(good)


def measure_ours(options, case, seed):
    service = BatonUp(options, *(case.shape or (options.prefill_workers, options.decode_workers)), case.router_arguments)
    try:
        return measure(options, case, service.address, seed)
    finally:
        service.close()


def measure_peer(options, case, flash, seed):
    server = LlamaServer(options.server, options.model, options.threads,
                         ["-np", str(case.slots), "-c", str(case.slots * case.context), "-fa", flash, "--threads-http", str(case.slots + 4)])
    try:
        return measure(options, case, server.address, seed)
    finally:
        server.close()


def compare(options, case):
    """Measures a case in alternation. Returns its figure."""
    ours, peers = [], {mode: [] for mode in options.flash}
    for number in range(options.rounds):
        seed = options.seed + number
        turns = [lambda: ours.append(measure_ours(options, case, seed))]
        turns += [lambda flash=flash: peers[flash].append(measure_peer(options, case, flash, seed)) for flash in peers]
        for turn in turns if number % 2 == 0 else turns[::-1]:
            turn()
        print(f"{case.name}: round {number + 1} of {options.rounds}", file=sys.stderr)
    flash = max(peers, key=lambda mode: statistics.median(rate for rate, _, _ in peers[mode]))
    peer = peers[flash]
    ratios = [mine[0] / other[0] if other[0] else None for mine, other in zip(ours, peer)]
    known = [ratio for ratio in ratios if ratio is not None]
    ratio = statistics.median(known) if len(known) == len(ratios) else None
    middle = [statistics.median(run[i] for run in runs) for runs in (ours, peer) for i in range(3)]
    shown = f"{ratio:7.2f} {min(known):7.2f} {max(known):7.2f}" if ratio else "   (llama-server had no answer in time)"
    print(f"{case.name:26} {case.ttft_ms:9} {middle[0]:12.1f} {middle[3]:12.1f} {middle[1]:11.0f} {middle[4]:11.0f} {middle[2]:5.0f} "
          f"{middle[5]:5.0f} {shown}  flash attention {flash}", flush=True)
    return {"name": case.figure(), "value": ratio, "unit": "ratio", "limit": case.goal,
            "ratio": ratio / case.goal if ratio and case.goal else None, "low": min(known, default=None), "high": max(known, default=None),
            "runs": len(ratios), "ttft_objective_ms": case.ttft_ms, "ours_tokens_per_s": middle[0], "peer_tokens_per_s": middle[3],
            "ours_ttft_p50_ms": middle[1], "peer_ttft_p50_ms": middle[4], "ours_failed": middle[2], "peer_failed": middle[5],
            "peer_name": f"llama-server -np {case.slots} -fa {flash}"}


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("--baton", "--server", "--model"):
        parser.add_argument(name, required=True, type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=lambda text: [int(part) for part in text.split(",") if part], default=[1, 4, 16, 64])
    parser.add_argument("--requests", type=int, default=4, help="of each client")
    parser.add_argument("--prompt-tokens", type=int, default=256, help="mean; uniform from half to one and a half")
    parser.add_argument("--output-tokens", type=int, default=64, help="likewise")
    parser.add_argument("--prefill-workers", type=int, default=0)
    parser.add_argument("--decode-workers", type=int, default=1)
    parser.add_argument("--trace", type=pathlib.Path, help="Mooncake trace; without it, no trace is played")
    parser.add_argument("--trace-requests", type=int, default=60)
    parser.add_argument("--trace-rate", type=float, default=1.0, help="requests per second")
    parser.add_argument("--trace-ttft-ms", type=int, default=2000)
    parser.add_argument("--trace-context", type=int, default=4096, help="tokens that a prompt and its answer may have")
    parser.add_argument("--policies", type=lambda text: [part for part in text.split(",") if part], default=[], help="with --trace")
    parser.add_argument("--flash", type=lambda text: text.split(","), default=["on", "off"], help="of llama-server: on, off, or both")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    if not set(options.flash) <= {"on", "off"}:
        parser.error("--flash must be on, off, or on,off")
    if options.rounds < 1 or options.requests < 1 or any(clients < 1 for clients in options.clients):
        parser.error("--rounds, --requests and every number of --clients must be 1 or more")
    load = " ".join(map(str, os.getloadavg()))
    print(f"{'case':26} {'TTFT ≤ ms':>9} {'Baton tok/s':>12} {'peer tok/s':>12} {'Baton TTFT':>11} {'peer TTFT':>11} {'failed':>11} "
          f"{'ratio':>7} {'least':>7} {'largest':>7}", flush=True)
    figures = [compare(options, case) for case in cases_of(options)]
    conditions = [f"{options.threads} threads; the services and the load generator share the processors.",
                  f"{options.rounds} rounds; requests of {options.prompt_tokens} and {options.output_tokens} tokens, {options.requests} a client.",
                  f"llama-server: flash attention {' and '.join(options.flash)}.",
                  f"baton up: {options.prefill_workers} prefill and {options.decode_workers} decode workers.",
                  f"Load of the machine at the start, at the end: {load}, {' '.join(map(str, os.getloadavg()))}"]
    print("\n".join(conditions))
    print(json.dumps({"bench": "serving_peer", "seed": options.seed, "conditions": conditions, "figures": figures}))


if __name__ == "__main__":
    main()
