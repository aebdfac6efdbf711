#!/usr/bin/env python3
"""Soak test: many clients for minutes, with mixed lengths, conversations, sampling, cancellations, deadlines and killed clients.

  scripts/soak.sh [--seconds 300] [--clients 32] [--seed N]       (makes the Python environment and runs this)

At the end:
- the only errors are those that the clients provoked,
- every worker is idle, and all its blocks are free or cached,
- memory outside the KV pools has not grown, and
- a random twentieth of the answers equals `baton run`'s.

Prints a table, then one JSON object. Exit code 1 if a check fails.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import random
import subprocess
import sys
import threading
import time

import grpc
from baton.v1 import inference_pb2 as pb
from baton.v1 import inference_pb2_grpc as pb_grpc

from cluster import Cluster, answer, busy, default_model, load_condition
from memory_watch import MemoryWatch

TEXTS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "texts"
MAX_GROWTH_MIB = 32  # growth of a process outside the KV pools, from its first to its last minute
CHECKED_SHARE = 0.05
QUESTIONS = ["And what else?", "Say that in one sentence.", "Why?", "Give me an example.",
             "Translate your answer to French.", "Are you sure? Explain step by step."]


@dataclasses.dataclass
class Outcome:
    """One request and how it ended. `wanted` is the end that its client intended: answer, cancel, deadline, disconnect or kill."""
    wanted: str
    ended: str  # the name of a gRPC status code, "KILLED", "UNFINISHED" or "exit code N"
    detail: str = ""
    first_token_s: float = math.nan
    gaps_s: list = dataclasses.field(default_factory=list)  # between tokens
    job: dict = None  # the job with which `baton run` can repeat the answer
    token_ids: list = dataclasses.field(default_factory=list)
    finished: pb.Finished = None

    def expected(self, refusals_allowed):
        if self.ended == "OK" or (refusals_allowed and self.refused()):
            return True  # the request may end before its client cancels it
        return {"cancel": "CANCELLED", "disconnect": "CANCELLED", "deadline": "DEADLINE_EXCEEDED",
                "kill": "KILLED"}.get(self.wanted) == self.ended

    def refused(self):
        return self.ended in ("RESOURCE_EXHAUSTED", "exit code 1")  # a client process that is refused ends with exit code 1


def log_uniform(rng, low, high):
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def random_sampling(rng):
    """Returns random sampling fields: greedy for half of the requests, random sampling for the rest."""
    fields = {"max_tokens": log_uniform(rng, 1, 200), "temperature": 0}
    if rng.random() < 0.5:
        fields |= {"temperature": round(rng.uniform(0.2, 1.5), 2), "seed": rng.getrandbits(63)}
        for name, value in (("top_k", rng.choice((5, 40, 200))), ("top_p", rng.choice((0.5, 0.9, 0.99))),
                            ("min_p", 0.05), ("repetition_penalty", 1.2), ("presence_penalty", 0.5),
                            ("frequency_penalty", -0.3)):
            if rng.random() < 0.3:
                fields[name] = value
    if rng.random() < 0.15:
        fields["stop"] = rng.choice(([". "], ["\n\n"], ["the", "and"]))
    if rng.random() < 0.15:
        fields["logprobs"] = rng.choice((0, 5, 20))
    if rng.random() < 0.2:
        fields["ignore_eos"] = True
    return fields


class Client(threading.Thread):
    """One user: sends single prompts and conversations, one after the other, until the time is over."""

    def __init__(self, soak, number):
        super().__init__(name=f"client-{number}", daemon=True)
        self.soak = soak
        self.rng = random.Random(soak.seed * 1000 + number)
        self.outcomes = []
        self.failure = None
        self.channel = None

    def run(self):
        try:
            self.connect()
            while time.monotonic() < self.soak.end:
                if self.rng.random() < 0.4:
                    self.converse()
                else:
                    self.ask(self.single_prompt())
        except Exception as error:  # a bug of this script must fail the soak, not shorten it
            self.failure = error
        finally:
            self.channel.close()

    def connect(self):
        if self.channel is not None:
            self.channel.close()
        self.channel = grpc.insecure_channel(self.soak.cluster.router,
                                             options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = pb_grpc.InferenceStub(self.channel)

    def some_ids(self, length):
        ids = self.soak.text_ids
        start = self.rng.randrange(len(ids))
        return [ids[(start + i) % len(ids)] for i in range(length)]

    def single_prompt(self):
        if self.rng.random() < 0.7:
            return {"prompt_token_ids": self.some_ids(log_uniform(self.rng, 1, 2000))}
        text = self.rng.choice(self.soak.texts)
        start = self.rng.randrange(len(text) - 1)
        return {"prompt": text[start:start + log_uniform(self.rng, 1, 2000)]}

    def converse(self):
        """Plays two to four turns. Each turn sends the whole conversation, as chat clients do."""
        topic = self.rng.choice(self.soak.texts)[:log_uniform(self.rng, 20, 1200)]
        messages = [{"role": "user", "content": topic}]
        if self.rng.random() < 0.5:
            messages.insert(0, {"role": "system", "content": "You are a helpful and brief assistant."})
        for _ in range(self.rng.randint(2, 4)):
            text = self.ask({"messages": messages})
            if text is None or time.monotonic() >= self.soak.end:
                return
            messages = messages + [{"role": "assistant", "content": text},
                                   {"role": "user", "content": self.rng.choice(QUESTIONS)}]

    def ask(self, prompt):
        """Sends one request, and in some cases cancels it or kills its client. Returns the text of a complete answer, else None."""
        job = prompt | random_sampling(self.rng)
        draw = self.rng.random()
        wanted = ("cancel" if draw < 0.15 else "deadline" if draw < 0.19 else
                  "disconnect" if draw < 0.22 else "kill" if draw < 0.24 else "answer")
        if wanted == "kill":
            self.outcomes.append(self.kill_a_client(job))
            return None
        outcome, text = self.stream(job, wanted)
        self.outcomes.append(outcome)
        if wanted == "disconnect":
            self.connect()
        return text if outcome.ended == "OK" else None

    def kill_a_client(self, job):
        """Starts a client process and kills it with SIGKILL at a random time. Returns the Outcome."""
        process = subprocess.Popen(self.soak.cluster.generate_command("--jobs", "-"), text=True,
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.close()
        time.sleep(self.rng.uniform(0, 3))
        process.kill()
        code = process.wait()
        return Outcome("kill", {-9: "KILLED", 0: "OK"}.get(code, f"exit code {code}"), detail=str(code))

    def stream(self, job, wanted):
        timeout = self.rng.uniform(0.05, 3) if wanted == "deadline" else 600
        outcome = Outcome(wanted, "OK", job=job)
        begin = last = time.monotonic()
        call = self.stub.Generate(self.request(job), timeout=timeout)
        timer = None
        if wanted in ("cancel", "disconnect"):
            give_up = call.cancel if wanted == "cancel" else self.channel.close
            timer = threading.Timer(log_uniform(self.rng, 1, 4000) / 1e3, give_up)
            timer.start()
        text = ""
        try:
            for response in call:
                now = time.monotonic()
                event = response.WhichOneof("event")
                if event == "started":
                    outcome.job = self.repeatable(job, response.started)
                elif event == "tokens":
                    count = len(response.tokens.token_ids)
                    if not outcome.token_ids:
                        outcome.first_token_s = now - begin
                    elif count > 0:
                        outcome.gaps_s += [(now - last) / count] * count
                    last = now
                    outcome.token_ids += response.tokens.token_ids
                    text += response.tokens.text
                elif event == "finished":
                    outcome.finished = response.finished
                    text += response.finished.text
            if outcome.finished is None:
                outcome.ended, outcome.detail = "UNFINISHED", "the stream ended without `finished`"
        except grpc.RpcError as error:
            outcome.ended, outcome.detail = error.code().name, error.details()
        finally:
            if timer is not None:
                timer.cancel()
                timer.join()
        return outcome, text

    def request(self, job):
        fields = {name: value for name, value in job.items()
                  if name not in ("prompt", "prompt_token_ids", "messages")}
        request = pb.GenerateRequest(sampling=pb.SamplingParams(**fields),
                                     include_prompt_token_ids=True)
        if "prompt" in job:
            request.prompt = job["prompt"]
        elif "messages" in job:
            request.messages.messages.extend(pb.ChatMessage(**message) for message in job["messages"])
        else:
            request.prompt_token_ids.ids.extend(job["prompt_token_ids"])
        return request

    def repeatable(self, job, started):
        fields = {name: value for name, value in job.items() if name not in ("prompt", "messages")}
        return fields | {"prompt_token_ids": list(started.prompt_token_ids), "seed": started.seed}


class Soak:
    def __init__(self, options):
        self.options = options
        self.seed = options.seed
        self.texts = [path.read_text() for path in sorted(TEXTS.glob("*.txt"))]
        self.text_ids = []
        self.problems = []

    def run(self):
        arguments = [f"--kv-blocks={self.options.kv_blocks}"]
        with Cluster(self.options.bin, self.options.model, 2, 2, arguments) as self.cluster:
            self.check_standard_services()
            self.tokenise()
            at_start = self.cluster.wait_at_rest()
            self.load()
            self.check_rest(at_start)
            code = self.cluster.end()
            if code != 0:
                self.problems.append(f"baton up ended with exit code {code}")
            if self.problems:
                self.problems.append(f"the service's log ends: {self.cluster.log()}")
        self.check_outcomes()
        self.check_answers()
        return self.report()

    def check_standard_services(self):
        """Checks gRPC health and reflection with raw wire bytes, which needs no further packages."""
        with grpc.insecure_channel(self.cluster.router) as channel:
            health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30)
            if health != b"\x08\x01":  # status = SERVING
                self.problems.append(f"the health check says {health}")
            reflect = channel.stream_stream(
                "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
            services = next(reflect(iter([b"\x3a\x00"]), timeout=30))  # list_services = ""
            if b"baton.v1.Inference" not in services:
                self.problems.append("reflection does not name baton.v1.Inference")

    def tokenise(self):
        with grpc.insecure_channel(self.cluster.router) as channel:
            stub = pb_grpc.InferenceStub(channel)
            for text in self.texts:
                self.text_ids += stub.Tokenize(pb.TokenizeRequest(text=text)).ids

    def load(self):
        begin = time.monotonic()
        self.end = begin + self.options.seconds
        self.memory = MemoryWatch(self.cluster)
        clients = [Client(self, number) for number in range(self.options.clients)]
        self.memory.start()
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            done = sum(len(client.outcomes) for client in clients)
            print(f"{time.monotonic() - begin:5.0f} s  {done} requests", file=sys.stderr)
            for client in clients:
                client.join(timeout=10 / len(clients))
        self.wall_s = time.monotonic() - begin
        self.memory.stopped.set()
        self.memory.join()
        self.outcomes = [outcome for client in clients for outcome in client.outcomes]
        self.problems += [f"{client.name}: {client.failure!r}" for client in clients if client.failure]

    def check_rest(self, at_start):
        try:
            at_end = self.cluster.wait_at_rest()
        except TimeoutError as error:
            self.problems.append(str(error))
            at_end = self.cluster.workers()
        if at_end.keys() != at_start.keys():
            self.problems.append(f"workers {sorted(at_start)} became {sorted(at_end)}")
        for name, worker in at_end.items():
            if worker["epoch"] != at_start[name]["epoch"]:
                self.problems.append(f"{name} has restarted: its epoch has changed")
            if busy(worker):
                self.problems.append(f"{name} still has {busy(worker)}")
        self.at_end = at_end

    def check_outcomes(self):
        for outcome in self.outcomes:
            if not outcome.expected(self.options.allow_refusals):
                self.problems.append(f"{outcome.wanted} ended with {outcome.ended}: {outcome.detail}")
        if self.options.seconds < 180:
            return  # too short to distinguish growth from warm-up
        for name, first, last, pools in self.memory.report():
            if last - first > MAX_GROWTH_MIB:
                self.problems.append(f"{name} grew from {first:.0f} to {last:.0f} MiB outside the pools")
            if pools > self.memory.pools_mib + MAX_GROWTH_MIB:
                self.problems.append(f"{name} has {pools:.0f} MiB of pools resident, but all pools together have only "
                                     f"{self.memory.pools_mib:.0f} MiB")

    def check_answers(self):
        """Repeats a random part of the answers with `baton run` and compares the tokens."""
        answered = [outcome for outcome in self.outcomes if outcome.finished is not None]
        rng = random.Random(self.seed)
        chosen = rng.sample(answered, math.ceil(len(answered) * CHECKED_SHARE))
        jobs = [outcome.job | {"id": str(i)} for i, outcome in enumerate(chosen)]
        print(f"repeating {len(jobs)} answers with baton run …", file=sys.stderr)
        self.checked = len(jobs)
        if not jobs:
            return
        want, _ = answer([self.cluster.baton, "run", "--model", self.options.model, "--jobs", "-",
                          "--json"], jobs)
        for i, outcome in enumerate(chosen):
            if want[str(i)].get("token_ids") != outcome.token_ids:
                self.problems.append(f"differs from baton run: {json.dumps(outcome.job)[:400]}; got "
                                     f"{outcome.token_ids}, baton run {want[str(i)]}")

    def figures(self):
        answered = [outcome for outcome in self.outcomes if outcome.finished is not None]
        first = sorted(o.first_token_s * 1e3 for o in self.outcomes if o.token_ids)
        gaps = sorted(gap * 1e3 for o in self.outcomes for gap in o.gaps_s)
        prompt = sum(o.finished.usage.prompt_tokens for o in answered)
        pools = [worker["pool"] for worker in self.at_end.values()]

        def percentile(values, share):
            return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan
        def total(name):
            return sum(int(worker[name]) for worker in self.at_end.values())
        yield "requests", len(self.outcomes), ""
        yield "requests answered in full", len(answered), ""
        for wanted in ("cancel", "deadline", "disconnect", "kill"):
            count = sum(o.wanted == wanted and o.ended != "OK" for o in self.outcomes)
            yield f"requests ended by {wanted}", count, ""
        yield "requests refused for want of blocks", sum(o.refused() for o in self.outcomes), ""
        yield "requests a second", len(self.outcomes) / self.wall_s, "1/s"
        yield "output tokens a second", sum(len(o.token_ids) for o in self.outcomes) / self.wall_s, "1/s"
        yield "prompt tokens a second, answered", prompt / self.wall_s, "1/s"
        yield "prompt tokens a second, computed", total("prefill_tokens") / self.wall_s, "1/s"
        yield "TTFT p50", percentile(first, 0.5), "ms"
        yield "TTFT p99", percentile(first, 0.99), "ms"
        yield "inter-token p50", percentile(gaps, 0.5), "ms"
        yield "inter-token p99", percentile(gaps, 0.99), "ms"
        yield "KV shipped", sum(o.finished.ledger.kv_bytes for o in answered) / 2**20, "MiB"
        yield "prefilled remotely", sum(o.finished.ledger.prefill_worker != "" for o in answered), ""
        yield "preemptions", total("preemptions"), ""
        yield "evicted blocks", sum(int(pool["evicted_blocks"]) for pool in pools), ""
        yield "answers repeated with baton run", self.checked, ""
        for name, first_mib, last_mib, pools_mib in self.memory.report():
            yield f"{name} RSS beside the pools, first minute", first_mib, "MiB"
            yield f"{name} RSS beside the pools, last minute", last_mib, "MiB"
            yield f"{name} RSS in pools, its own and peers', last minute", pools_mib, "MiB"

    def report(self):
        figures = list(self.figures())
        print(load_condition())
        for name, value, unit in figures:
            print(f"{name:48} {value:12.1f} {unit}")
        for problem in self.problems[:50]:
            print(f"PROBLEM: {problem}")
        print(f"{len(self.problems)} problems; seed {self.seed}, {self.wall_s:.0f} s")
        print(json.dumps({"bench": "soak", "seed": self.seed, "problems": len(self.problems),
                          "conditions": [load_condition()], "figures": [
            {"name": name, "value": round(value, 3), "unit": unit, "limit": None, "ratio": None}
            for name, value, unit in figures]}))
        return 1 if self.problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    parser.add_argument("--seconds", type=int, default=300, help="time in which clients start requests")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--kv-blocks", type=int, default=1024, help="pool of each worker")
    parser.add_argument("--allow-refusals", action="store_true",
                        help="allow refusals for lack of room, for small pools")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    sys.exit(Soak(options).run())


if __name__ == "__main__":
    main()
