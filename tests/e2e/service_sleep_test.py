#!/usr/bin/env python3
"""Tests prompt chunks that sleep in the host memory of workers: their requests still reach them, and the answers and hashes over
all logits equal those of `baton run`.

  service_sleep_test.py --bin build/release/bin [unittest's own arguments, such as -k Asleep]

The model is tests/testdata/models/tiny-q8_0.gguf. Standard library only.
"""

import json
import subprocess

from cluster import wait_until
from service_case import PATIENT_ROUTER, SEEN_TIMEOUT_S, baton, main
from service_chunks_test import CHUNKS, GREEDY, MODES, PARTS, QUESTION, SYSTEM, Chunks

# Every chunk sleeps as soon as no request uses it.
SLEEPY = ("--chunk-host-mib=64", "--chunk-sleep-after-s=0", "--chunk-sleep-uses=1000")


class Asleep(Chunks):
    worker_arguments = (*Chunks.worker_arguments, *SLEEPY)

    def caches(self):
        return {name: worker["pool"]["chunk_cache"] for name, worker in self.cluster.workers().items()}

    def sleepers(self):
        return sum(int(cache["sleeping_entries"]) for cache in self.caches().values())

    def wait_for_sleepers(self, count):
        wait_until(lambda: self.sleepers() == count, SEEN_TIMEOUT_S, f"{count} sleeping chunks")

    def clear(self):
        """Clears all caches. The status shows it afterwards."""
        for worker in self.cluster.workers().values():
            subprocess.run([baton(), "clear-cache", "--worker", worker["address"]], capture_output=True, check=True)
        self.wait_for_sleepers(0)
        self.wait_for_index()


class Waking(Asleep):
    def test_requests_reach_their_sleeping_chunks_and_wake_them(self):
        self.clear()
        jobs = [{"id": f"{i}", "system": SYSTEM, "chunks": [f"{CHUNKS[0]} {i}", f"{CHUNKS[1]} {i}"], "question": QUESTION,
                 **MODES[i % 4], **GREEDY} for i in range(8)]
        cold = self.expect_answers_of_run(jobs, concurrency=len(jobs))
        self.assertEqual(len({result["decode_worker"] for result in cold.values()}), 2, "both workers have some of the chunks")
        # A chunk of either scope is one entry for both kinds of positions.
        self.wait_for_sleepers(2 * len(jobs))
        self.wait_for_index()
        question = len(self.ids(QUESTION))
        before = {name: int(cache["wakes"]) for name, cache in self.caches().items()}
        for name, result in self.expect_answers_of_run([job | {"chunks": job["chunks"][::-1]} for job in jobs]).items():
            self.assertEqual(result["decode_worker"], cold[name]["decode_worker"])
            self.assertEqual(result["ledger"]["chunk_hits"], 2)
            self.assertGreater(result["ledger"]["chunk_wake_us"], 0)
            self.assertEqual(result["ledger"]["computed_tokens"], question)

        def woken_and_asleep():
            caches = self.caches()
            return (sum(int(cache["wakes"]) - before[name] for name, cache in caches.items()) >= 2 * len(jobs) and
                    sum(int(cache["sleeping_entries"]) for cache in caches.values()) == 2 * len(jobs))
        wait_until(woken_and_asleep, SEEN_TIMEOUT_S, "the wakes in the status, and all chunks asleep again")
        shown = subprocess.run([baton(), "status", "--router", self.cluster.router], capture_output=True, text=True, check=True)
        self.assertIn("sleeping chunks: ", shown.stdout)
        worker = next(iter(self.cluster.workers().values()))["address"]
        listed = subprocess.run([baton(), "chunks", "--worker", worker, "--json"], capture_output=True, text=True, check=True)
        chunks = json.loads(listed.stdout)["chunks"]
        self.assertEqual({chunk["tier"] for chunk in chunks if chunk["tokens"] != len(self.ids(SYSTEM))}, {"host"})
        self.assertTrue(all((chunk["host_bytes"] > 0) == (chunk["tier"] == "host") for chunk in chunks))
        self.cluster.wait_at_rest()

    def test_clearing_a_tenant_forgets_its_sleeping_chunks_alone(self):
        self.clear()
        for tenant in ("one", "two"):
            self.expect_answers_of_run([{"id": "it", **PARTS, "tenant": tenant, **GREEDY}])
        self.wait_for_sleepers(2 * len(CHUNKS))
        self.wait_for_index()
        for worker in self.cluster.workers().values():
            subprocess.run([baton(), "clear-cache", "--worker", worker["address"], "--chunks", "--tenant", "one"],
                           capture_output=True, check=True)
        self.wait_for_sleepers(len(CHUNKS))
        for tenant, hits in (("one", 0), ("two", len(CHUNKS))):
            result = self.expect_answers_of_run([{"id": "it", **PARTS, "tenant": tenant, **GREEDY}])["it"]
            self.assertEqual(result["ledger"]["chunk_hits"], hits)

    def test_many_requests_at_a_time(self):
        jobs = [{"id": f"{i}", "system": SYSTEM, "chunks": CHUNKS[i % 4:] + CHUNKS[:i % 3], "question": f"{QUESTION} {i % 5}",
                 **MODES[i % 4], **GREEDY} for i in range(24)]
        for _ in range(3):
            self.expect_answers_of_run(jobs, concurrency=12)
        self.cluster.wait_at_rest()
        self.assertEqual({int(cache["damaged"]) for cache in self.caches().values()}, {0})


class HandingOver(Asleep):
    prefill, decode = 1, 1
    router_arguments = (*PATIENT_ROUTER, "--pull-weight=0", "--pull-least-ms=60000")
    worker_arguments = (*Asleep.worker_arguments, "--chunk-compress")

    def test_sleeping_chunks_are_woken_on_both_sides(self):
        jobs = [{"id": f"{i}", **PARTS, **mode, **GREEDY} for i, mode in enumerate(MODES)]
        for turn in range(3):
            for result in self.expect_answers_of_run(jobs, "--placement", "remote").values():
                self.assertIn("prefill-", result["prefill_worker"])
                self.assertGreaterEqual(result["ledger"]["chunk_hits"], len(CHUNKS) if turn > 0 else 0)
            self.wait_for_sleepers(2 * 2 * len(CHUNKS))  # two scopes on two workers
        self.cluster.wait_at_rest()


if __name__ == "__main__":
    main(__doc__)
