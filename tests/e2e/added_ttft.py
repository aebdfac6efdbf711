#!/usr/bin/env python3
"""Measures how much later the first token comes through a service than in one process, and in which stage.

  added_ttft.py --bin build/release/bin [--model M.gguf] [--requests 200] [--prompt-words 24] [--prefill-workers 0] [--no-stages]

Each request goes to `baton run` and, over HTTP, to a service with one decode worker. They take turns, with equal prompts that neither
has cached. The time of `baton run` is tokenize_us + first_token_us of its ledger. The service's time is the client's: from the first
byte sent to the first token received on an open connection. A pair's difference is one sample.

The last line is a JSON object with two figures:

  added_ttft_us        median of the differences
  added_ttft_edges_us  the same without the engines' own times, so without the noise of computing a prompt twice

The stages come from the spans that the service sends to a collector of this script. The packages for that come from PyPI, into
--packages. Without them, or with --no-stages, only added_ttft_us is measured. Exit code 1 if a request failed.
"""

import argparse
import contextlib
import json
import pathlib
import random
import socket
import statistics
import subprocess
import time

from cluster import Cluster, default_model, load_condition, wait_until
from otlp_collector import DEFAULT_FOLDER, Collector, needs_packages

LIMIT_US = 300
WARM_UP = 10
SPANS_S = 30
SPANS = {"text_completion", "tokenize", "route", "queue", "prefill", "decode"}
WORDS = "river stone light winter garden music paper engine window morning forest silver letter bridge ocean story".split()


class OneProcess:
    """`baton run`, which answers a job at a time."""

    def __init__(self, stack, options):
        command = [str(pathlib.Path(options.bin) / "baton"), "run", "--model", options.model, "--jobs", "-", "--json",
                   f"--threads={options.threads}", "--kv-blocks=1024"]
        self.process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                                            stderr=subprocess.DEVNULL, text=True, bufsize=1))
        stack.callback(self.process.stdin.close)

    def ask(self, job):
        """Returns the microseconds of tokenising and of the engine."""
        self.process.stdin.write(json.dumps({"id": "it", **job}) + "\n")
        ledger = json.loads(self.process.stdout.readline())["ledger"]
        return ledger["tokenize_us"], ledger["first_token_us"]


class Client:
    """One HTTP connection. All times are those of time.time_ns()."""

    def __init__(self, stack, address):
        host, port = address.rsplit(":", 1)
        self.socket = stack.enter_context(socket.create_connection((host, int(port))))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.host = address

    def ask(self, job, trace):
        """Returns the times at which the request was sent and the first token was there."""
        body = json.dumps({**job, "stream": True}).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
                f"traceparent: 00-{trace}-{'1' * 16}-01\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        sent = time.time_ns()
        self.socket.sendall(head + body)
        answer, first = b"", None
        while b"data: [DONE]" not in answer or not answer.endswith(b"\r\n0\r\n\r\n"):
            part = self.socket.recv(65536)
            now = time.time_ns()
            answer += part
            if not part or not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"the answer is {answer.decode(errors='replace')}")
            if first is None and b"data: {" in answer:
                first = now
        return sent, first


def stages_of(sent, first, spans):
    """Returns {stage: microseconds}; all together are the client's time."""
    root = spans["text_completion"]
    token = root.begin + 1000 * root.attributes["baton.first_token_us"]
    edges = {"client to router": (sent, root.begin),
             "tokenise": (root.begin, spans["tokenize"].end),
             "route": (spans["tokenize"].end, spans["route"].end),
             "router to worker": (spans["route"].end, spans["queue"].begin),
             "worker: queue": (spans["queue"].begin, spans["queue"].end),
             "worker: prefill": (spans["prefill"].begin, spans["prefill"].end),
             "worker: hand over": (spans["prefill"].end, spans["decode"].begin),
             "worker to router": (spans["decode"].begin, token),
             "router to client": (token, first)}
    return {name: (end - begin) / 1000 for name, (begin, end) in edges.items()}


def print_stages(service, local):
    """`service` has the stages of each request, `local` the times of `baton run`."""
    print(f"{'stage, median µs':20} {'service':>9} {'run':>9}")
    runs = {"tokenise": [tokenize for tokenize, _ in local], "worker: prefill": [engine for _, engine in local]}
    for name in service[0]:
        run = f"{statistics.median(runs[name]):9.0f}" if name in runs else f"{'':9}"
        print(f"{name:20} {statistics.median(stages[name] for stages in service):9.0f} {run}")
    print("`run` has its engine's whole time beside the prefill of the service.")


def figure(name, samples):
    low, _, high = statistics.quantiles(samples, n=4)
    value = statistics.median(samples)
    print(f"{name:20} {value:9.0f} µs [{low:.0f}, {high:.0f}] of {len(samples)} pairs; at most {LIMIT_US} wanted")
    return {"name": name, "value": round(value, 1), "unit": "us", "limit": LIMIT_US, "low": round(low, 1), "high": round(high, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--prompt-words", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each engine")
    parser.add_argument("--prefill-workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-stages", action="store_true")
    parser.add_argument("--packages", type=pathlib.Path, default=DEFAULT_FOLDER)
    options = parser.parse_args()
    print(load_condition())
    why = "--no-stages" if options.no_stages else needs_packages(options.packages)
    rng = random.Random(options.seed)
    with contextlib.ExitStack() as stack:
        collector = None
        worker, router = [f"--threads={options.threads}", "--kv-blocks=1024"], []
        if why is None:
            collector = Collector()
            stack.callback(collector.close)
            router.append(f"--otlp-endpoint={collector.address}")
            worker += router
        cluster = stack.enter_context(Cluster(options.bin, options.model, options.prefill_workers, 1, worker, router,
                                              up_arguments=["--http-address", "127.0.0.1:0"]))
        client = Client(stack, cluster.says("http"))
        local = OneProcess(stack, options)
        runs, asked = [], {}
        for number in range(-WARM_UP, options.requests):
            job = {"prompt": " ".join(rng.choices(WORDS, k=options.prompt_words)), "max_tokens": options.max_tokens, "temperature": 0,
                   "seed": 1, "ignore_eos": True}
            trace = f"{rng.getrandbits(128) | 1:032x}"
            run = local.ask(job) if number % 2 else None
            times = client.ask(job, trace)
            run = run or local.ask(job)
            if number >= 0:
                runs.append(run)
                asked[trace] = times
        samples = [(first - sent) / 1000 - sum(run) for (sent, first), run in zip(asked.values(), runs)]
        figures = [figure("added_ttft_us", samples)]
        if collector is None:
            print(f"stages: not measured: {why}")
        elif options.prefill_workers:
            print("stages: not measured: they are those of a prompt that the decode worker computes")
        else:
            wait_until(lambda: all(len(collector.traces().get(trace, [])) >= len(SPANS) for trace in asked), SPANS_S, "the spans")
            spans = {trace: {span.name.split()[0]: span for span in found} for trace, found in collector.traces().items()}
            service = [stages_of(*times, spans[trace]) for trace, times in asked.items()]
            edges = [sum(us for name, us in stages.items() if name not in ("worker: queue", "worker: prefill")) - tokenize
                     for stages, (tokenize, _) in zip(service, runs)]
            figures.append(figure("added_ttft_edges_us", edges))
            print_stages(service, runs)
    print(json.dumps({"bench": "added_ttft", "seed": options.seed, "conditions": [load_condition()], "figures": figures}))


if __name__ == "__main__":
    main()
