#!/usr/bin/env python3
"""Serves with programs of two releases together; scripts/skew_test.sh describes it.

  skew_test.py --previous DIR --bin DIR [--model M.gguf]

 1. In every combination of router, prefill worker and decode worker of both releases, every answer has the tokens of `baton run`.
 2. An upgrade of a whole fleet under load, workers first and routers last, and the other way round: no request fails.
 3. Workers roll from one KV type to another under load, with --mixed-fingerprints: no request fails.

The last line is one JSON object with the figures. Standard library only.
"""

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading

from cluster import START_TIMEOUT_S, Service, answer, wait_until
from fleet import Process, free_port

MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata/models/tiny-q8_0.gguf"
TOKENS = 16
JOBS = [{"id": str(i), "prompt_token_ids": [3 + i, 17, 40 + 2 * i, 5] * (10 + 10 * i), "max_tokens": TOKENS, "temperature": 0}
        for i in range(6)]


class MixedFleet(Service):
    """Programs of both releases at fixed addresses. `bins` is {release: folder}."""

    def __init__(self, bins, options):
        super().__init__(bins["new"])
        self.bins, self.options = bins, options
        self.routers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.router = self.routers[0]
        self.processes = {}

    def __exit__(self, *_):
        for process in self.processes.values():
            process.close()

    def start_router(self, index, release):
        self.processes[f"router-{index}"] = Process(
            [os.path.join(self.bins[release], "baton-router"), "--listen", self.routers[index], "--local-prefill-tokens=0",
             "--worker-silence-ms=60000", "--mixed-fingerprints"], "listening")

    def start_worker(self, name, role, release, kv_type="f16"):
        routers = [argument for router in self.routers for argument in ("--router", router)]
        self.processes[name] = Process(
            [os.path.join(self.bins[release], f"baton-{role}-worker"), "--model", self.options.model, *routers, "--worker-id", name,
             "--kv-blocks=512", "--threads=1", "--transport=tcp", "--keepalive-timeout-ms=60000", f"--kv-type={kv_type}"], "ready")

    def end(self, name):
        process = self.processes.pop(name)
        code = process.end()
        process.close()
        return code

    def await_workers(self, router, names):
        def registered():
            done = subprocess.run([self.baton, "status", "--router", router, "--json"], capture_output=True, text=True)
            if done.returncode != 0:
                return False
            status = json.loads(done.stdout)
            return status.get("ready") and {worker["worker_id"] for worker in status["workers"]} >= set(names)
        wait_until(registered, START_TIMEOUT_S, f"{router} with {names}")


def check(results, expected, where):
    """Returns what is wrong with the results of JOBS. Without `expected`, all tokens are right."""
    failed = []
    for one in JOBS:
        result = results.get(one["id"], {"error": "no result"})
        if "error" in result:
            failed.append(f"{where}: {result['error']}")
        elif expected is not None and result["token_ids"] != expected[one["id"]]:
            failed.append(f"{where}: other tokens: {result['token_ids']}, expected {expected[one['id']]}")
    return failed


def every_combination(bins, options, expected):
    failed = []
    for router, prefill, decode in itertools.product(("old", "new"), repeat=3):
        with MixedFleet(bins, options) as fleet:
            fleet.start_router(0, router)
            fleet.start_worker("prefill", "prefill", prefill)
            fleet.start_worker("decode", "decode", decode)
            fleet.await_workers(fleet.router, ["prefill", "decode"])
            results, _ = fleet.generate(JOBS, concurrency=3)
            wrong = check(results, expected, f"router {router}, prefill {prefill}, decode {decode}")
            received = sum(result.get("ledger", {}).get("kv_bytes", 0) for result in results.values())
            if received == 0:
                wrong.append(f"router {router}, prefill {prefill}, decode {decode}: no KV was handed over")
            print(f"router {router}, prefill worker {prefill}, decode worker {decode}: {len(wrong)} failed, {received} bytes of KV",
                  flush=True)
            failed += wrong
    return failed


def upgrade(bins, options, expected, order, kv_type="f16"):
    """Replaces every program under load, in `order`. New workers get `kv_type`. Returns (answers, what failed)."""
    failed, answers, stopping = [], 0, threading.Event()
    with MixedFleet(bins, options) as fleet:
        for i in range(2):
            fleet.start_router(i, "old")
        for role in ("prefill", "decode"):
            fleet.start_worker(f"{role}-0", role, "old")
        for router in fleet.routers:
            fleet.await_workers(router, ["prefill-0", "decode-0"])

        def load():
            nonlocal answers
            while not stopping.is_set():
                command = [fleet.baton, "generate", "--router", fleet.routers[0], "--router", fleet.routers[1], "--retries", "8",
                           "--jobs", "-", "--concurrency", "3", "--json"]
                failed.extend(check(answer(command, JOBS)[0], expected, "upgrade"))
                answers += len(JOBS)

        client = threading.Thread(target=load)
        client.start()
        for what in order:
            begun = answers
            if what == "routers":
                for i in range(2):
                    fleet.end(f"router-{i}")
                    fleet.start_router(i, "new")
                    fleet.await_workers(fleet.routers[i], [name for name in fleet.processes if "router" not in name])
            else:
                fleet.start_worker(f"{what}-1", what, "new", kv_type)
                for router in fleet.routers:
                    fleet.await_workers(router, [f"{what}-1"])
                fleet.end(f"{what}-0")
            wait_until(lambda: answers > begun + len(JOBS) or failed, START_TIMEOUT_S, "answers after the upgrade")
        stopping.set()
        client.join()
    print(f"upgrade of {', '.join(order)} to KV in {kv_type}: {answers} answers, {len(failed)} failed", flush=True)
    return answers, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--previous", required=True)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", default=str(MODEL))
    options = parser.parse_args()
    bins = {"old": os.path.abspath(options.previous), "new": os.path.abspath(options.bin)}
    results, _ = answer([os.path.join(bins["new"], "baton"), "run", "--model", options.model, "--jobs", "-", "--json"], JOBS)
    expected = {name: result["token_ids"] for name, result in results.items()}
    failed = every_combination(bins, options, expected)
    answers = 0
    for order, kv_type in ((("prefill", "decode", "routers"), "f16"), (("routers", "decode", "prefill"), "f16"),
                           (("prefill", "decode"), "int8")):
        # Other KV types give other tokens.
        more, wrong = upgrade(bins, options, expected if kv_type == "f16" else None, order, kv_type)
        answers += more
        failed += wrong
    for reason in failed[:20]:
        print(reason)
    print(json.dumps({"bench": "skew_test", "seed": 0, "figures": [
        {"name": "upgrade_requests", "value": answers, "unit": "requests"},
        {"name": "failed_requests", "value": len(failed), "unit": "requests", "limit": 0}]}))
    sys.exit(1 if failed else 0)


main()
