#!/usr/bin/env python3
"""Measures what observing a service costs, in CPU seconds for each generated token.

  observe_cost.py --bin build/release/bin [--without OTHER/bin] [--model M.gguf] [--rounds 12] [--scrape-ms 1000]

Two services run all the time and take turns with the same requests. One serves its metrics and is scraped at all of its programs.
The other is not observed. Its programs come from --without, for example a build of a commit without metrics; by default they are the
same programs, which then count but serve nothing.

The CPU time is that of the router and the workers together. A scraper that asks is not part of it, answering is.

Prints a line for each round, then the median of the rounds' ratios with its quartiles and its 95 % interval, and as the last line one
JSON object with the figure `observe_cost_share`: that median minus 1. A negative share means that the cost is below the noise.
`scrape_cpu_ms` is the CPU time of one scrape of all programs, besides what they use at rest. Exit code 1 if a request failed.
Standard library only.
"""

import argparse
import contextlib
import json
import random
import statistics
import threading
import time
import urllib.request

from cluster import Cluster, children_of, cpu_seconds, default_model, load_condition

VOCABULARY = 49_000  # every model that the tests use has these ids


class Observed:
    """A service with the processes whose time counts, and a scraper if it serves metrics."""

    def __init__(self, stack, options, bin_dir, observed):
        up = ["--metrics-address", "127.0.0.1:0"] if observed else []
        self.cluster = stack.enter_context(Cluster(bin_dir, options.model, 1, 1, [f"--threads={options.threads}", "--kv-blocks=1024"],
                                                   up_arguments=up))
        self.pids = [pid for pid in children_of(self.cluster.process.pid)]
        self.addresses = []
        self.scrapes = 0
        if observed:
            router = self.cluster.says("metrics")
            entries = json.load(urllib.request.urlopen(f"http://{router}/targets"))
            self.addresses = [entry["targets"][0] for entry in entries]

    @contextlib.contextmanager
    def scraped(self, interval_s):
        stop = threading.Event()

        def scrape():
            while self.addresses and not stop.wait(interval_s):
                for address in self.addresses:
                    urllib.request.urlopen(f"http://{address}/metrics").read()
                self.scrapes += 1

        thread = threading.Thread(target=scrape)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def cost_of_scrape(self, count=500):
        """CPU seconds of one scrape of all programs, without what they use at rest in the same time."""
        before, begin = cpu_seconds(self.pids), time.monotonic()
        for _ in range(count):
            for address in self.addresses:
                urllib.request.urlopen(f"http://{address}/metrics").read()
            time.sleep(0.02)
        spent, seconds = cpu_seconds(self.pids) - before, time.monotonic() - begin
        before = cpu_seconds(self.pids)
        time.sleep(seconds)
        return (spent - (cpu_seconds(self.pids) - before)) / count

    def cost_per_token(self, jobs, options):
        """Runs the jobs; returns CPU seconds for each token."""
        with self.scraped(options.scrape_ms / 1000):
            before = cpu_seconds(self.pids)
            results, code = self.cluster.generate(jobs, concurrency=options.concurrency)
            self.cluster.wait_at_rest()
            spent = cpu_seconds(self.pids) - before
        if code != 0:
            raise RuntimeError(next(result for result in results.values() if "error" in result))
        return spent / sum(result["usage"]["completion_tokens"] for result in results.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--without", help="programs of the service that is not observed")
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--scrape-ms", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(load_condition())
    rng = random.Random(options.seed)
    ratios = []
    with contextlib.ExitStack() as stack:
        observed = Observed(stack, options, options.bin, True)
        plain = Observed(stack, options, options.without or options.bin, False)
        for turn in range(options.rounds + 1):  # the first one warms up
            jobs = [{"id": str(i), "prompt_token_ids": [rng.randrange(100, VOCABULARY) for _ in range(options.prompt_tokens)],
                     "max_tokens": options.max_tokens, "temperature": 0, "ignore_eos": True} for i in range(options.requests)]
            services = [observed, plain] if turn % 2 == 0 else [plain, observed]
            cost = {service: service.cost_per_token(jobs, options) for service in services}
            if turn == 0:
                continue
            ratios.append(cost[observed] / cost[plain])
            print(f"round {turn}: observed {1e6 * cost[observed]:.1f}, plain {1e6 * cost[plain]:.1f} CPU µs a token, "
                  f"ratio {ratios[-1]:.4f}", flush=True)
        scrape_ms = 1e3 * observed.cost_of_scrape()
    quartiles = statistics.quantiles(ratios, n=4)
    median = statistics.median(ratios)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    print(f"ratio {median:.4f} of {len(ratios)} rounds, quartiles {quartiles[0]:.4f} and {quartiles[2]:.4f}, 95 % interval of the median "
          f"{medians[50]:.4f} to {medians[1949]:.4f}; {observed.scrapes} scrapes of {len(observed.addresses)} programs")
    print(json.dumps({"bench": "observe_cost", "seed": options.seed,
                      "figures": [{"name": "observe_cost_share", "value": round(median - 1, 4), "unit": "ratio", "limit": 0.01},
                                  {"name": "scrape_cpu_ms", "value": round(scrape_ms, 3), "unit": "ms"}]}))


if __name__ == "__main__":
    main()
