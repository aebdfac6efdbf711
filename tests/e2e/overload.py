#!/usr/bin/env python3
"""Overload test: ten times the rate that the service sustains, clients that do not read, and many cancellations.

  scripts/overload.sh [--seconds 60] [--factor 10] [--seed N]      (makes the Python environment and runs this)

It has three phases. In each phase, some more clients do not read their answers.
1. peak: enough clients to saturate the service, each with one request at a time.
2. overload: requests at `factor` times the peak rate, without waiting for answers. Many are cancelled within 50 ms.
3. recovery: after a pause of 5 s, the clients of the first phase again.

Every request has a deadline. An answer counts as goodput if it is complete before the deadline.

Server and load generator share the machine. So the script prints the CPU use of the load (`…_load_cpus`) and prepares its
requests before it sends them.

Prints `name value` lines. Exit code 1 if
- a request ended with a code that is not allowed,
- a process grew too much,
- blocks or requests are left over,
- no request was refused,
- a phase has no answer, or
- a figure is outside BOUNDS, which are far from the usual values.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import math
import os
import pathlib
import random
import sys
import time

import grpc
from baton.v1 import inference_pb2 as pb
from baton.v1 import inference_pb2_grpc as pb_grpc

from cluster import Cluster, busy, children_of, default_model, load_condition

ANSWER_TOKENS = 16
PROMPT_TOKENS = 64
NON_READERS = 4
CANCEL_SHARE = 0.2
RECOVERY_PAUSE_S = 5
PROMPTS = 1024  # prepared requests, used in turn
MAX_GROWTH_MIB = 600  # of a router or worker; far less than one message for every refused request would take
# Usual values: at least 0.95, 6 ms, 1.
BOUNDS = {"overload_goodput_share_per_cpu": (0.5, math.inf), "refusal_p99_ms": (0, 1000), "recovered_share": (0.7, math.inf)}
ALLOWED = {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "CANCELLED"}


class NoAnswer(Exception):
    """Every request of a phase failed, so its figures mean nothing."""


class Tally:
    """Counts how the requests of a phase ended."""

    def __init__(self):
        self.ends = collections.Counter()
        self.details = {}
        self.refusals_ms = []

    def add(self, code, milliseconds, detail):
        self.ends[code] += 1
        self.details.setdefault(code, detail)
        if code == "RESOURCE_EXHAUSTED":
            self.refusals_ms.append(milliseconds)

    def refusal_ms(self, share):
        values = sorted(self.refusals_ms)
        return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


class Overload:
    def __init__(self, options, cluster):
        self.options, self.cluster = options, cluster
        self.rng = random.Random(options.seed)
        self.problems = []
        self.requests = None  # endless iterator of serialized requests

    def make_requests(self, vocabulary):
        def request():
            ids = [self.rng.randrange(100, vocabulary) for _ in range(PROMPT_TOKENS)]
            # A new salt for each turn, so that no request finds a cached prefix.
            return pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=ids), cache_salt="0000",
                                      sampling=pb.SamplingParams(max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True))
        made = [request() for _ in range(PROMPTS)]
        for turn in itertools.count():
            for one in made:
                one.cache_salt = f"{turn:04}"
                yield one.SerializeToString()

    async def ask(self, generate, tally, cancel_after_s=None):
        begin = time.monotonic()
        call = generate(next(self.requests), timeout=self.options.deadline_s)
        if cancel_after_s is not None:
            asyncio.get_running_loop().call_later(cancel_after_s, call.cancel)
        code, detail = "OK", ""
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            code, detail = error.code().name, error.details()
        except asyncio.CancelledError:
            code = "CANCELLED"
        tally.add(code, (time.monotonic() - begin) * 1000, detail)

    async def closed_loop(self, generate, seconds, phase):
        """Returns the answers per second of --clients clients, each with one request at a time. Raises NoAnswer if there is none."""
        tally, end = Tally(), time.monotonic() + seconds
        async def client():
            while time.monotonic() < end:
                await self.ask(generate, tally)
        begin = time.monotonic()
        await asyncio.gather(*(client() for _ in range(self.options.clients)))
        self.check(tally, {"OK"}, phase)
        if tally.ends["OK"] == 0:
            raise NoAnswer(f"{phase}: no request was answered within {self.options.deadline_s} s; is the machine busy with other work?")
        return tally.ends["OK"] / (time.monotonic() - begin)

    async def open_loop(self, generate, rate, seconds):
        tally, tasks, begin = Tally(), set(), time.monotonic()
        sent = 0
        while (elapsed := time.monotonic() - begin) < seconds:
            while sent < elapsed * rate:
                sent += 1
                storm = self.rng.random() < CANCEL_SHARE
                task = asyncio.ensure_future(self.ask(generate, tally, self.rng.uniform(0, 0.05) if storm else None))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.002)
        in_time = tally.ends["OK"] / (time.monotonic() - begin)
        await asyncio.gather(*tasks)
        self.check(tally, ALLOWED, "overload")
        return tally, sent / seconds, in_time

    async def beside_non_readers(self, phase):
        """Runs a phase beside clients that do not read their answers, and returns its result."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        request = pb.GenerateRequest(prompt_token_ids=pb.TokenIds(ids=[1]),
                                     sampling=pb.SamplingParams(max_tokens=2000, temperature=0, ignore_eos=True))
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(NON_READERS):
                channel = await stack.enter_async_context(grpc.aio.insecure_channel(self.cluster.router, options=options))
                stack.callback(pb_grpc.InferenceStub(channel).Generate(request).cancel)
            return await phase

    def check(self, tally, allowed, what):
        for code, count in tally.ends.items():
            if code not in allowed:
                self.problems.append(f"{what}: {count} requests ended with {code}: {tally.details[code]}")

    def resident_mib(self):
        def of(pid):
            return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
        return {f"{name}-{pid}": of(pid) for pid, name in children_of(self.cluster.process.pid).items()}

    async def watch_memory(self, most):
        while True:
            for name, mib in self.resident_mib().items():
                most[name] = max(most.get(name, 0), mib)
            await asyncio.sleep(0.5)

    async def run(self):
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self.cluster.router, options=options) as channel:
            stub = pb_grpc.InferenceStub(channel)
            self.requests = self.make_requests((await stub.GetModel(pb.GetModelRequest())).vocabulary)
            generate = channel.unary_stream("/baton.v1.Inference/Generate")
            await self.closed_loop(generate, 2, "warming up")
            cpu_s = time.process_time()
            peak = await self.beside_non_readers(self.closed_loop(generate, self.options.seconds, "peak"))
            yield "peak_goodput_per_s", peak
            peak_load_cpus = (time.process_time() - cpu_s) / self.options.seconds
            yield "peak_load_cpus", peak_load_cpus
            before, most = self.resident_mib(), {}
            watch = asyncio.ensure_future(self.watch_memory(most))
            cpu_s = time.process_time()
            tally, offered, kept = await self.beside_non_readers(
                self.open_loop(generate, self.options.factor * peak, self.options.seconds))
            load_cpus = (time.process_time() - cpu_s) / self.options.seconds
            yield "overload_load_cpus", load_cpus
            yield "offered_per_s", offered
            yield "overload_goodput_per_s", kept
            yield "overload_goodput_share", kept / peak
            # Goodput relative to the peak, both per CPU that the load leaves to the service.
            cpus = len(os.sched_getaffinity(0))
            yield "overload_goodput_share_per_cpu", kept / peak * (cpus - peak_load_cpus) / (cpus - load_cpus)
            for code in sorted(ALLOWED):
                yield f"overload_{code}", tally.ends[code]
            if not tally.refusals_ms:
                self.problems.append("no request was refused: the load was no overload")
            yield "refusal_p50_ms", tally.refusal_ms(0.5)
            yield "refusal_p99_ms", tally.refusal_ms(0.99)
            await asyncio.sleep(RECOVERY_PAUSE_S)
            recovered = await self.beside_non_readers(self.closed_loop(generate, self.options.seconds, "recovery"))
            yield "recovered_share", recovered / peak
            watch.cancel()
            for name, mib in before.items():
                yield f"{name}_growth_mib", most[name] - mib
                if most[name] - mib > MAX_GROWTH_MIB:
                    self.problems.append(f"{name} grew from {mib:.0f} to {most[name]:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    parser.add_argument("--seconds", type=int, default=60, help="duration of each phase")
    parser.add_argument("--factor", type=float, default=10, help="overload rate as a multiple of the peak rate")
    parser.add_argument("--clients", type=int, default=16, help="clients that saturate the service")
    parser.add_argument("--deadline-s", type=float, default=20, help="deadline of every request")
    parser.add_argument("--kv-blocks", type=int, default=2048, help="pool of each worker")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options = parser.parse_args()
    print(load_condition(), flush=True)
    with Cluster(options.bin, options.model, 1, 1, [f"--kv-blocks={options.kv_blocks}"]) as cluster:
        overload = Overload(options, cluster)
        async def play():
            async for name, value in overload.run():
                print(f"{name} {value:.2f}", flush=True)
                least, most = BOUNDS.get(name, (-math.inf, math.inf))
                if not least <= value <= most:
                    overload.problems.append(f"{name} is {value:.2f}, [{least}, {most}] is allowed")
        try:
            asyncio.run(play())
        except NoAnswer as nothing:
            overload.problems.append(str(nothing))
        for name, worker in cluster.wait_at_rest().items():
            if busy(worker):
                overload.problems.append(f"{name} still has {busy(worker)}")
    for problem in overload.problems:
        print(f"PROBLEM: {problem}")
    print(f"problems {len(overload.problems)}\nseed {options.seed}")
    sys.exit(1 if overload.problems else 0)


if __name__ == "__main__":
    main()
