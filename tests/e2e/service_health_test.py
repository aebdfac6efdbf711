#!/usr/bin/env python3
"""Tests /livez and /readyz of real processes that start, freeze, hang and drain.

service_health_test.py --bin BUILD/bin [--model M.gguf] [unittest arguments]

Standard library only.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import unittest

from cluster import START_TIMEOUT_S, wait_until
from fleet import Process
from metrics_scrape import get, scrape, status_of
from service_case import ARGUMENTS, PATIENT_ROUTER, main


class Health(unittest.TestCase):
    """A router and a worker that start, freeze, hang and drain."""

    def setUp(self):
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.close()

    def start(self, program, says, *arguments):
        process = Process([str(pathlib.Path(ARGUMENTS.bin, program)), *arguments], says)
        self.processes.append(process)
        return process

    def start_router(self, *arguments):
        """Returns the router's process and the address of its metrics."""
        router = self.start("baton-router", "listening", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", *arguments)
        said = router.popen.stdout.readline().split()
        self.assertEqual(said[0], "metrics")
        return router, said[1]

    def start_worker(self, router, *arguments):
        """Returns the worker's process, whose address is that of its metrics."""
        return self.start("baton-decode-worker", "metrics", "--model", ARGUMENTS.model, "--router", router.address,
                          "--worker-id=d", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--kv-blocks=1024",
                          "--threads=1", *arguments)

    def await_status(self, address, path, status):
        wait_until(lambda: status_of(address, path) == status, START_TIMEOUT_S, f"{path} with status {status}")

    def ask(self, router, *arguments):
        return subprocess.Popen([str(pathlib.Path(ARGUMENTS.bin, "baton")), "generate", "--router", router.address, "--prompt",
                                 "Once upon a time", "--max-tokens", "7000", "--ignore-eos", "--json", *arguments],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def test_a_router_is_ready_when_a_request_would_succeed(self):
        router, metrics = self.start_router(*PATIENT_ROUTER)
        self.await_status(metrics, "/livez", 200)
        status, _, why = get(metrics, "/readyz")
        self.assertEqual(status, 503)
        self.assertIn("workers", why)
        self.assertEqual(scrape(metrics).value("baton_ready"), 0)
        worker = self.start_worker(router)
        self.await_status(worker.address, "/readyz", 200)
        self.await_status(metrics, "/readyz", 200)
        wait_until(lambda: len(json.loads(get(metrics, "/targets")[2])) == 2, START_TIMEOUT_S, "the worker among the targets")

    def test_a_worker_without_a_router_warns_that_it_gets_no_requests(self):
        command = [str(pathlib.Path(ARGUMENTS.bin, "baton-decode-worker")), "--model", ARGUMENTS.model, "--listen=127.0.0.1:0",
                   "--kv-blocks=64", "--threads=1"]
        for arguments, count in (([], 1), (["--router=127.0.0.1:1"], 0)):
            with subprocess.Popen(command + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={name: value for name, value in os.environ.items() if name != "BATON_ROUTER"}) as worker:
                try:
                    self.assertTrue(any(line.startswith("ready ") for line in worker.stdout))
                finally:
                    worker.terminate()
                self.assertEqual(worker.stderr.read().count("no router sends requests to this worker"), count, arguments)

    def test_a_draining_worker_is_alive_and_not_ready(self):
        router, metrics = self.start_router(*PATIENT_ROUTER)
        worker = self.start_worker(router, "--drain-ms=600000")
        self.await_status(metrics, "/readyz", 200)
        client = self.ask(router)
        try:
            wait_until(lambda: scrape(worker.address).value("baton_worker_requests_running") == 1, START_TIMEOUT_S, "work")
            worker.signal(signal.SIGTERM)
            self.await_status(worker.address, "/readyz", 503)
            self.assertIn("draining", get(worker.address, "/readyz")[2])
            self.assertEqual(status_of(worker.address, "/livez"), 200)
            self.assertEqual(scrape(worker.address).value("baton_worker_draining"), 1)
        finally:
            client.terminate()
            client.wait()
        self.assertEqual(worker.popen.wait(START_TIMEOUT_S), 0)

    def test_a_frozen_worker_is_seen_by_its_router(self):
        router, metrics = self.start_router("--worker-expiry-ms=3600000", "--worker-silence-ms=400")
        worker = self.start_worker(router)
        second = self.start("baton-decode-worker", "ready", "--model", ARGUMENTS.model, "--router", router.address,
                            "--worker-id=e", "--listen=127.0.0.1:0", "--kv-blocks=256", "--threads=1")
        self.await_status(metrics, "/readyz", 200)
        usable = {"role": "decode", "state": "usable"}
        wait_until(lambda: scrape(metrics).value("baton_workers", **usable) == 2, START_TIMEOUT_S, "two usable workers")
        worker.freeze()
        # On a busy machine, the other worker may be silent for a moment too.
        wait_until(lambda: scrape(metrics).value("baton_workers", role="decode", state="silent") == 1 and
                   status_of(metrics, "/readyz") == 200, START_TIMEOUT_S, "a silent worker, and another one that serves")
        wait_until(lambda: scrape(metrics).value("baton_fleet_changes_total", change="silent") >= 1, START_TIMEOUT_S, "a change")
        worker.thaw()
        self.await_status(worker.address, "/livez", 200)
        wait_until(lambda: scrape(metrics).value("baton_workers", **usable) == 2, START_TIMEOUT_S, "two usable workers")
        del second

    def test_a_worker_is_not_alive_while_its_engine_hangs(self):
        router, metrics = self.start_router(*PATIENT_ROUTER)
        worker = self.start_worker(router, "--op-stall-ms=3000")
        self.await_status(metrics, "/readyz", 200)
        client = self.ask(router)
        try:
            wait_until(lambda: scrape(worker.address).value("baton_worker_requests_running") == 1, START_TIMEOUT_S, "work")
            with StoppedThread(worker.popen.pid, busiest_thread(worker.popen.pid)) as stopped:
                if not stopped:
                    self.skipTest("not run: this machine does not allow ptrace")
                self.await_status(worker.address, "/livez", 503)
                self.assertIn("engine", get(worker.address, "/livez")[2])
                self.assertEqual(status_of(worker.address, "/readyz"), 503)
                self.assertEqual(scrape(worker.address).value("baton_worker_engine_hung"), 1)
            self.await_status(worker.address, "/livez", 200)
            self.assertEqual(scrape(worker.address).value("baton_worker_engine_hung"), 0)
        finally:
            client.terminate()
            client.wait()


def busiest_thread(pid):
    """Returns the thread of a process that uses most CPU time now."""
    def times():
        found = {}
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended since
                found[int(task.name)] = sum(map(int, (task / "stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        return found
    before = times()
    wait_until(lambda: max(value - before.get(thread, 0) for thread, value in times().items()) >= 20, START_TIMEOUT_S,
               "CPU time")
    after = times()
    return max(after, key=lambda thread: after[thread] - before.get(thread, 0))


class StoppedThread:
    """Stops one thread of another process with ptrace, while the context lasts. Its value is False if that is not allowed."""
    ATTACH, DETACH, WALL = 16, 17, 0x40000000

    def __init__(self, pid, thread):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.thread = thread
        self.stopped = False

    def __enter__(self):
        if self.libc.ptrace(self.ATTACH, self.thread, None, None) == 0:
            os.waitpid(self.thread, self.WALL)
            self.stopped = True
        return self.stopped

    def __exit__(self, *_):
        if self.stopped:
            self.libc.ptrace(self.DETACH, self.thread, None, None)


if __name__ == "__main__":
    main(__doc__)
