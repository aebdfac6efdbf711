#!/usr/bin/env python3
"""Tests of request priorities with real processes: router, prefill worker, decode worker.

  service_priority_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Standard library only.
"""

import json
import subprocess

from cluster import busy, wait_until
from service_case import SEEN_TIMEOUT_S, ServiceTest, baton, first_worker, main, run


class Priorities(ServiceTest):
    """One sequence runs at a time, so all others queue."""
    worker_arguments = ("--max-running=1", "--kv-blocks=400", "--eviction-policy=priority")

    def start(self, jobs):
        """Starts one client process for each job. Returns {id: process}."""
        return {job["id"]: subprocess.Popen(
            self.cluster.generate_command("--prompt", job["prompt"], "--max-tokens", str(job["max_tokens"]),
                                          "--temperature", "0", "--ignore-eos", "--placement", job["placement"],
                                          "--priority", str(job["priority"])),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for job in jobs}

    def wait_for_queue(self, role, length):
        wait_until(lambda: first_worker(self.cluster.workers(), role)["waiting"] == length, SEEN_TIMEOUT_S,
                   f"{length} in the queue of the {role} worker")

    def test_a_request_of_higher_priority_overtakes_a_full_queue(self):
        blocker = self.long_answer("--placement", "local")
        self.wait_for_work("DECODE")
        jobs = [{"id": f"low {i}", "prompt": f"Low {i}:", "max_tokens": 30, "placement": "local", "priority": -3}
                for i in range(4)]
        clients = self.start(jobs)
        self.wait_for_queue("DECODE", 4)
        high = {"id": "high", "prompt": "High:", "max_tokens": 30, "placement": "local", "priority": 9}
        clients |= self.start([high])
        self.wait_for_queue("DECODE", 5)
        inside = subprocess.run(
            [baton(), "inspect", "worker", "--worker", first_worker(self.cluster.workers(), "DECODE")["address"]],
            capture_output=True, text=True, check=True).stdout
        self.assertIn("waiting, priority 9", inside)
        self.assertIn("waiting, priority -3", inside)
        blocker.kill()
        blocker.communicate()
        results = {}
        for name, client in clients.items():
            out, error = client.communicate(timeout=300)
            self.assertEqual(client.returncode, 0, error)
            results[name] = json.loads(out)
        # The high-priority request came last and must have the shortest queue time.
        self.assertLess(results["high"]["ledger"]["queue_us"],
                        min(results[job["id"]]["ledger"]["queue_us"] for job in jobs))
        want, _ = run([{"id": job["id"], "prompt": job["prompt"], "max_tokens": 30, "temperature": 0,
                        "ignore_eos": True} for job in (*jobs, high)])
        for name, result in results.items():
            self.assertEqual(result["token_ids"], want[name]["token_ids"], name)
        self.cluster.wait_at_rest()

    def test_prefixes_of_higher_priority_survive_eviction(self):
        """Both workers get the priority. The test checks the decode worker's cache for the important prefix."""
        def cached(salt):
            results, code = self.cluster.generate(
                [{"id": "again", "prompt_token_ids": self.prompt(320), "max_tokens": 1, "cache_salt": salt,
                  "temperature": 0}], "--placement", "remote")
            self.assertEqual(code, 0)
            ledger = results["again"]["ledger"]
            return ledger["decode_cached_tokens"], ledger["prefill_cached_tokens"]
        for salt, priority in (("important", 5), ("not", 0)):
            _, code = self.cluster.generate(
                [{"id": salt, "prompt_token_ids": self.prompt(320), "max_tokens": 1, "cache_salt": salt,
                  "priority": priority, "temperature": 0}], "--placement", "remote")
            self.assertEqual(code, 0)
        flood = [{"id": f"flood {i}", "prompt_token_ids": self.prompt(1600), "max_tokens": 1,
                  "cache_salt": f"flood {i}", "temperature": 0} for i in range(5)]  # 500 blocks through a pool of 400
        self.assertEqual(self.cluster.generate(flood, "--placement", "remote")[1], 0)
        self.assertEqual(cached("important")[0], 304)
        self.assertEqual(cached("not"), (0, 0))
        self.assertFalse(any(busy(worker) for worker in self.cluster.wait_at_rest().values()))


if __name__ == "__main__":
    main(__doc__)
