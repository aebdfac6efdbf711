#!/usr/bin/env python3
"""Tests of the router's index of worker caches, on the real model. A worker or the router is killed and restarted at the same
address.

  service_index_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k router]

Standard library only.
"""

import json
import pathlib
import subprocess
import unittest
from random import Random

from cluster import answer, wait_until
from fleet import free_port
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, baton, inspect_tokens, main, read_texts

UNIT = 16  # tokens


class Process:
    """A Baton program that prints `WORD HOST:PORT` when it is ready."""

    def __init__(self, name, word, *arguments):
        self.process = subprocess.Popen([str(pathlib.Path(ARGUMENTS.bin) / name), *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.wait_for(word)

    def wait_for(self, word):
        for line in self.process.stdout:
            said, address = line.split()
            if said == word:
                return address
        raise RuntimeError(f"ended before it said {word}")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Index(unittest.TestCase):
    def setUp(self):
        self.router = self.start_router(f"127.0.0.1:{free_port()}", decode_workers=1)
        self.workers = {}
        self.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def start_router(self, listen, decode_workers):
        router = Process("baton-router", "listening", "--listen", listen,
                         f"--min-decode-workers={decode_workers}", *PATIENT_ROUTER)
        self.addCleanup(router.kill)
        return router

    def start_worker(self, name, listen="127.0.0.1:0", *arguments):
        worker = Process("baton-decode-worker", "ready", "--model", ARGUMENTS.model, "--worker-id", name,
                         "--router", self.router.address, "--listen", listen, "--kv-blocks=512",
                         *arguments)
        self.addCleanup(worker.kill)
        self.workers[name] = worker
        return worker

    def index(self):
        """Returns the index's status with its workers by id, and the router's `ready`."""
        done = subprocess.run([baton(), "status", "--router", self.router.address, "--json"],
                              capture_output=True, text=True, timeout=60, check=True)
        status = json.loads(done.stdout)
        workers = {worker["worker_id"]: worker for worker in status["index"]["workers"]}
        return status["index"] | {"workers": workers, "ready": status["ready"]}

    def wait_for_units(self, units, epoch=None):
        """Waits until the router is ready and the followed workers hold exactly `units`, {worker id: units}. With `epoch`, also
        waits until no worker has that epoch. Returns the index."""
        def there():
            index = self.index()
            workers = index["workers"]
            held = {name: worker["units"] for name, worker in workers.items() if worker["followed"]}
            other = epoch is None or all(worker["epoch"] != epoch for worker in workers.values())
            return index if index["ready"] and held == units and other else None
        try:
            return wait_until(there, SEEN_TIMEOUT_S, f"units {units}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the index: {self.index()}") from None

    def generate(self, *jobs):
        """Runs the jobs in parallel. Returns the results in the jobs' order."""
        jobs = [{"id": str(i), "max_tokens": 8, "temperature": 0, "ignore_eos": True, **job}
                for i, job in enumerate(jobs)]
        results, code = answer([baton(), "generate", "--router", self.router.address, "--json",
                                "--concurrency", str(len(jobs)), "--jobs", "-"], jobs)
        self.assertEqual(code, 0, results)
        return [results[job["id"]] for job in jobs]

    def prompt(self, length, start=0):
        return self.text_ids[start:start + length]

    @staticmethod
    def committed(result):
        """Returns the tokens whose KV was written: all but the last, which was sampled and never fed."""
        return result["prompt_token_ids"] + result["token_ids"][:-1]

    def test_a_killed_workers_entries_are_gone_when_it_restarts_at_its_address(self):
        worker = self.start_worker("w", f"127.0.0.1:{free_port()}")
        epoch = self.wait_for_units({"w": 0})["workers"]["w"]["epoch"]
        job = {"prompt_token_ids": self.prompt(300)}
        [cold] = self.generate(job)
        units = len(self.committed(cold)) // UNIT
        self.assertEqual(self.wait_for_units({"w": units})["memberships"], units)
        [warm] = self.generate(job)
        self.assertEqual(warm["usage"]["cached_tokens"], 299 // UNIT * UNIT)

        worker.kill()
        self.start_worker("w", worker.address)
        index = self.wait_for_units({"w": 0}, epoch)
        self.assertEqual(index["memberships"], 0)
        [again] = self.generate(job)
        self.assertEqual(again["usage"]["cached_tokens"], 0)
        self.assertEqual(again["token_ids"], cold["token_ids"])
        self.wait_for_units({"w": units})

    def clear(self, name, *arguments):
        """Runs `baton clear-cache` on a worker. Returns the number of freed blocks."""
        done = subprocess.run([baton(), "clear-cache", "--worker", self.workers[name].address, *arguments],
                              capture_output=True, text=True, timeout=120, check=True)
        count, words = done.stdout.split(" ", 1)
        self.assertEqual(words, "blocks freed\n")
        return int(count)

    def test_cleared_blocks_are_gone_from_the_worker_and_from_the_index(self):
        self.start_worker("w")
        self.wait_for_units({"w": 0})
        job = {"prompt_token_ids": self.prompt(300)}
        [ours] = self.generate(job | {"tenant": "ours"})
        self.generate(job | {"cache_salt": "theirs"})
        units = len(self.committed(ours)) // UNIT
        self.wait_for_units({"w": 2 * units})
        self.assertEqual(self.clear("w", "--tenant", "nobody's"), 0)
        self.assertEqual(self.clear("w", "--tenant", "ours"), units)
        self.wait_for_units({"w": units})
        [again, kept] = [self.generate(job | {key: value})[0]
                         for key, value in (("tenant", "ours"), ("cache_salt", "theirs"))]
        self.assertEqual([again["usage"]["cached_tokens"], kept["usage"]["cached_tokens"]], [0, 299 // UNIT * UNIT])
        self.assertEqual(again["token_ids"], ours["token_ids"])
        self.assertEqual(self.clear("w"), 2 * units)
        self.assertEqual(self.wait_for_units({"w": 0})["memberships"], 0)

    def test_a_restarted_router_rebuilds_its_index_before_it_is_ready(self):
        sizes = {"small": 4, "large": 64}
        for name, size in sizes.items():
            self.start_worker(name, "127.0.0.1:0", f"--block-size={size}")
        self.wait_for_units({name: 0 for name in sizes})
        firsts = self.generate(*({"prompt_token_ids": self.prompt(200 + 10 * i, 250 * i)}
                                 for i in range(6)))
        chats = [(first["decode_worker"], self.committed(first), first["token_ids"][-1:])
                 for first in firsts]
        self.assertEqual({worker for worker, _, _ in chats}, set(sizes), "each worker must have a chat")
        units = {name: sum(len(committed) // sizes[name] * sizes[name] // UNIT
                           for worker, committed, _ in chats if worker == name)
                 for name in sizes}
        self.wait_for_units(units)

        self.router.kill()
        self.router = self.start_router(self.router.address, decode_workers=len(sizes))
        self.router.wait_for("ready")
        index = self.index()
        held = {name: worker["units"] for name, worker in index["workers"].items()}
        self.assertEqual(held, units, "the index must be complete when the router says ready")
        self.assertTrue(all(worker["followed"] for worker in index["workers"].values()))
        for worker, committed, last in chats:
            [second] = self.generate({"prompt_token_ids": committed + last + self.prompt(20, 1700)})
            self.assertEqual(second["decode_worker"], worker)
            self.assertEqual(second["usage"]["cached_tokens"],
                             len(committed) // sizes[worker] * sizes[worker])


class Churn(ServiceTest):
    prefill, decode = 1, 2
    worker_arguments = ("--kv-blocks=64", "--max-chunk-tokens=64")
    router_arguments = PATIENT_ROUTER

    def test_after_many_evictions_the_index_equals_the_pools(self):
        random = Random(7)
        starts = [random.randrange(2000) for _ in range(10)]  # several jobs share a start, and so a prefix
        jobs = [{"id": str(i), "prompt_token_ids": self.prompt(random.randrange(20, 500), random.choice(starts)),
                 "max_tokens": random.randrange(1, 30), "temperature": 0, "cache_salt": random.choice("ab"),
                 "placement": random.choice(("remote", "local", "automatic"))} for i in range(60)]
        for placement in ("remote", "local", "automatic"):
            chosen = [{k: v for k, v in job.items() if k != "placement"} for job in jobs
                      if job["placement"] == placement]
            arguments = () if placement == "automatic" else ("--placement", placement)
            results, _ = self.cluster.generate(chosen, *arguments, concurrency=6)
            errors = [result["error"]["code"] for result in results.values() if "error" in result]
            self.assertEqual(set(errors) - {"RESOURCE_EXHAUSTED"}, set(), errors)
            self.assertLess(len(errors), len(chosen))

        def pools():
            return {name: worker["pool"] for name, worker in self.cluster.wait_at_rest().items()}

        def units():
            return {worker["worker_id"]: worker["units"] for worker in self.cluster.status()["index"]["workers"]}

        wait_until(lambda: units() == {name: pool["cached_blocks"] for name, pool in pools().items()},
                   SEEN_TIMEOUT_S, "the index and the pools alike")
        self.assertGreater(sum(pool["evicted_blocks"] for pool in pools().values()), 100)
        self.assertTrue(all(count > 0 for count in units().values()), units())


if __name__ == "__main__":
    main(__doc__)
