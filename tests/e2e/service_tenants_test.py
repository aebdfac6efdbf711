#!/usr/bin/env python3
"""Limits of tenants on real processes: refusals with the limit and the time to return, settled tokens, a file that changes, shares
of the KV pool.

  service_tenants_test.py --bin BUILD/bin [unittest's own arguments, such as -k file]

The model is a tiny one of tests/testdata. Standard library only.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from cluster import START_TIMEOUT_S, Service, wait_until
from fault_proxy import FaultProxy
from fleet import Process, free_port
from message_taps import GrpcTap

MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata/models/tiny-q8_0.gguf"
ARGUMENTS = argparse.Namespace()
ANSWER_S = 60  # a guard against hangs
PROMPT = [3, 4, 5, 6, 7]


class Tenants(unittest.TestCase, Service):
    """One router with a file of tenants and one decode worker for all tests. Each test has tenants of its own."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.file = pathlib.Path(folder, "tenants.jsonl")
        cls.write({"tenant": "paced", "requests_per_minute": 3}, {"tenant": "single", "concurrent_requests": 1},
                  {"tenant": "tokens", "tokens_per_minute": 400})
        bin_dir = ARGUMENTS.bin
        cls.baton = os.path.join(bin_dir, "baton")
        cls.process = Process([os.path.join(bin_dir, "baton-router"), "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0",
                               "--tenants", str(cls.file), "--worker-silence-ms=60000", "--worker-expiry-ms=60000"], "listening")
        cls.addClassCleanup(cls.process.close)
        cls.router = cls.process.address
        port = free_port()
        cls.proxy = cls.enterClassContext(FaultProxy(("127.0.0.1", port), GrpcTap))
        worker = Process([os.path.join(bin_dir, "baton-decode-worker"), "--model", str(MODEL), "--router", cls.router,
                          "--worker-id", "w", "--threads", "1", "--kv-blocks", "512", "--listen", f"127.0.0.1:{port}",
                          "--advertise", cls.proxy.address], "ready")
        cls.addClassCleanup(worker.close)
        assert cls.process.popen.stdout.readline().split()[0] == "ready"
        cls.http = cls.process.popen.stdout.readline().split()[1]

    @classmethod
    def write(cls, *tenants):
        """Replaces the file as a ConfigMap is replaced: by renaming."""
        new = cls.file.with_suffix(".new")
        new.write_text("".join(json.dumps(tenant) + "\n" for tenant in tenants))
        new.rename(cls.file)

    def open(self, tenant, max_tokens=2, timeout_ms=ANSWER_S * 1000, **fields):
        connection = http.client.HTTPConnection(self.http, timeout=ANSWER_S)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions",
                           json.dumps({"prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "tenant": tenant, **fields}),
                           {"Content-Type": "application/json", "Baton-Timeout-Ms": str(timeout_ms)})
        return connection.getresponse()

    def ask(self, tenant, **fields):
        """Returns (status, headers, body)."""
        answer = self.open(tenant, **fields)
        return answer.status, answer.headers, json.loads(answer.read())

    def assert_refused(self, answer, limit):
        status, headers, body = answer
        self.assertEqual(status, 429, body)
        self.assertEqual(body["error"]["code"], "rate_limit_exceeded")
        self.assertIn(limit, body["error"]["message"])
        self.assertGreaterEqual(int(headers["Retry-After"]), 1)

    def use_of(self, tenant):
        return next((one for one in self.status()["tenants"] if one["tenant"] == tenant), None)

    def test_requests_above_the_rate_are_refused_on_both_edges(self):
        for _ in range(3):
            self.assertEqual(self.ask("paced")[0], 200)
        self.assert_refused(self.ask("paced"), "requests_per_minute of 3")
        results, code = self.generate([{"id": "a", "prompt_token_ids": PROMPT, "max_tokens": 2, "tenant": "paced"}], "--retries", "0")
        self.assertNotEqual(code, 0)
        self.assertEqual(results["a"]["error"]["code"], "RESOURCE_EXHAUSTED")
        self.assertIn("requests_per_minute of 3", results["a"]["error"]["message"])
        self.assertEqual(self.ask("another")[0], 200, "other tenants are served")

    @contextlib.contextmanager
    def running(self, tenant, **fields):
        """A request that runs inside the block, because it does not reach its worker, and has succeeded after it."""
        answers = []
        client = threading.Thread(target=lambda: answers.append(self.ask(tenant, **fields)))
        self.proxy.hold("Decode>")
        try:
            client.start()
            wait_until(lambda: (self.use_of(tenant) or {"running": 0})["running"] == 1, START_TIMEOUT_S, "a running request")
            yield
        finally:
            self.proxy.release()
            client.join()
        self.assertEqual(answers[0][0], 200, answers)
        wait_until(lambda: self.use_of(tenant)["running"] == 0, START_TIMEOUT_S, "the request ended")

    def test_a_second_request_at_once_is_refused_until_the_first_one_ends(self):
        with self.running("single"):
            self.assert_refused(self.ask("single"), "concurrent_requests of 1")
        self.assertEqual(self.ask("single")[0], 200)

    def test_tokens_are_reserved_by_the_longest_answer_and_settled_by_the_real_one(self):
        # The model ends its answer after 62 tokens. So each request reserves more than 300 tokens and uses 67.
        for used in (67, 134):
            self.assertEqual(self.ask("tokens", max_tokens=300)[0], 200)
            wait_until(lambda: self.use_of("tokens")["running"] == 0, START_TIMEOUT_S, "the request settled")
            self.assertEqual(self.use_of("tokens")["tokens"], used)
        with self.running("tokens", max_tokens=250):
            self.assert_refused(self.ask("tokens", max_tokens=250), "tokens_per_minute of 400")

    def test_the_file_is_read_again_and_a_wrong_one_changes_nothing(self):
        self.assertEqual(self.ask("late")[0], 200)
        lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        self.write(*lines, {"tenant": "late", "requests_per_minute": 1})
        wait_until(lambda: self.use_of("late")["requests_per_minute"] == 1, START_TIMEOUT_S, "the new limit")
        self.assertEqual(self.ask("late")[0], 200)
        self.assert_refused(self.ask("late"), "requests_per_minute of 1")
        self.write({"tenant": "late", "requests_per_minut": 5})
        wait_until(lambda: "there is no field" in self.process.log(), START_TIMEOUT_S, "the error in the log")
        self.assertEqual(self.use_of("late")["requests_per_minute"], 1)
        self.write(*lines)

    def test_the_status_has_a_table_of_tenants(self):
        self.assertEqual(self.ask("shown")[0], 200)
        done = subprocess.run([self.baton, "status", "--router", self.router, "--tenants"], capture_output=True, text=True)
        self.assertRegex(done.stdout, r'(?m)^tenant +run +wait +requests')
        self.assertRegex(done.stdout, r'(?m)^"shown" +\d+ +0 +1 ')

    def test_many_requests_of_one_tenant_let_another_one_through(self):
        jobs = [{"id": str(i), "prompt_token_ids": PROMPT * 40, "max_tokens": 8, "tenant": "flood"} for i in range(60)]
        flood = threading.Thread(target=lambda: self.generate(jobs, concurrency=60))
        flood.start()
        wait_until(lambda: (self.use_of("flood") or {"waiting": 0})["waiting"] > 0 or not flood.is_alive(), START_TIMEOUT_S,
                   "requests that wait at the router")
        self.assertEqual(self.ask("light")[0], 200)
        flood.join()
        use = self.use_of("flood")
        self.assertEqual((use["running"], use["waiting"], use["requests"]), (0, 0, 60))

    def test_requests_that_wait_for_their_turn_are_ahead_of_others_of_their_tenant_only(self):
        jobs = [{"id": str(i), "prompt_token_ids": PROMPT, "max_tokens": 2, "tenant": "queue"} for i in range(24)]
        answers = []
        queue = threading.Thread(target=lambda: answers.append(self.generate(jobs, concurrency=24)))
        self.proxy.hold("Decode>")
        try:
            queue.start()
            wait_until(lambda: (self.use_of("queue") or {"waiting": 0})["waiting"] == 22, START_TIMEOUT_S, "requests that wait")
            time.sleep(4)  # no first token comes in this time, so the queue is seen to be slow, with or without earlier requests
            status, headers, body = self.ask("queue", timeout_ms=1000)
            self.assertEqual((status, body["error"]["code"]), (503, "overloaded"), body)
            self.assertIn("24 requests wait ahead of this one", body["error"]["message"])
            self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            status, _, body = self.ask("a tenant without requests", timeout_ms=1000)
            self.assertEqual(status, 504, body)  # it was not refused: few are ahead of it. Its deadline passed
        finally:
            self.proxy.release()
            queue.join()
        self.assertEqual(answers[0][1], 0, answers)

    def test_a_wrong_file_ends_the_program_with_its_line(self):
        wrong = self.file.with_suffix(".wrong")
        wrong.write_text('{"tenant": "a"}\n{"tenant": "b", "weight": -1}\n')
        done = subprocess.run([os.path.join(ARGUMENTS.bin, "baton-router"), "--listen", "127.0.0.1:0", "--tenants", str(wrong)],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("line 2", done.stderr)
        self.assertIn("weight", done.stderr)


class SharesOfTheKvPool(unittest.TestCase, Service):
    """One worker with a pool of 16 blocks of 16 tokens. Tenant "b" has a share of half of it."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.file = pathlib.Path(folder, "tenants.jsonl")
        cls.file.write_text('{"tenant": "b", "kv_share": 0.5}\n{"tenant": "c"}\n')
        bin_dir = ARGUMENTS.bin
        cls.baton = os.path.join(bin_dir, "baton")
        router = Process([os.path.join(bin_dir, "baton-router"), "--listen", "127.0.0.1:0", "--tenants", str(cls.file)], "listening")
        cls.addClassCleanup(router.close)
        cls.router = router.address
        worker = Process([os.path.join(bin_dir, "baton-decode-worker"), "--model", str(MODEL), "--router", cls.router, "--worker-id",
                          "w", "--threads", "1", "--kv-blocks", "16", "--block-size", "16"], "ready")
        cls.addClassCleanup(worker.close)
        assert router.popen.stdout.readline().split()[0] == "ready"

    def cached(self, tenant, first):
        """Sends a prompt of 100 tokens and returns how many of them were cached."""
        results, code = self.generate([{"id": "a", "prompt_token_ids": [first] + [5] * 99, "max_tokens": 2, "temperature": 0,
                                        "tenant": tenant}])
        self.assertEqual(code, 0, results)
        return results["a"]["usage"]["cached_tokens"]

    def flood(self):
        for first in range(10, 20):
            self.assertEqual(self.cached("a", first), 0)

    def test_a_flood_of_another_tenant_evicts_prefixes_except_those_within_a_share(self):
        for tenant, kept in (("c", 0), ("b", 96)):
            self.assertEqual(self.cached(tenant, 3), 0)
            self.assertEqual(self.cached(tenant, 3), 96, "alone, its prefix stays")
            self.flood()
            self.assertEqual(self.cached(tenant, 3), kept, tenant)
        done = subprocess.run([self.baton, "status", "--router", self.router, "--tenants"], capture_output=True, text=True)
        self.assertRegex(done.stdout, r'(?m)^"b" .* 0\.5$')
        # Without the share in the file, the next request of the tenant ends it at the workers.
        self.file.write_text('{"tenant": "b"}\n')
        wait_until(lambda: self.cached("b", 3) == 96 and not any(t.get("kv_share") for t in self.status()["tenants"]),
                   START_TIMEOUT_S, "the new file")
        self.assertEqual(self.cached("b", 3), 96)
        self.flood()
        self.assertEqual(self.cached("b", 3), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    ARGUMENTS.bin = os.path.abspath(ARGUMENTS.bin)
    unittest.main(argv=[sys.argv[0], *rest])
