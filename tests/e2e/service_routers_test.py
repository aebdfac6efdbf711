#!/usr/bin/env python3
"""Routers that come and go: workers that find routers by name, and a router that ends while it is used.

  service_routers_test.py --bin BUILD/bin [unittest's own arguments, such as -k name]

The names are in a hosts file of this test's own mount namespace, which needs root and unshare. Without them, the tests of names are
not run. The model is a tiny one of tests/testdata. Standard library only.
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

from cluster import START_TIMEOUT_S, Service, wait_until
from fleet import Process, free_port
from service_case import PATIENT_ROUTER

MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata/models/tiny-q8_0.gguf"
IN_NAMESPACE = "BATON_TEST_OWN_HOSTS"  # the hosts file that /etc/hosts is
NAME = "baton-routers.test"
ARGUMENTS = argparse.Namespace()
ANSWER_S = 30  # a guard against hangs


def program(name):
    return os.path.join(ARGUMENTS.bin, name)


def get(address, path):
    """Returns (status, body); status 0 without an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=ANSWER_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""


def metric(address, name):
    lines = [line.split() for line in get(address, "/metrics")[1].splitlines()]
    return next((float(line[1]) for line in lines if line and line[0] == name), None)


class Router(Service):
    def __init__(self, listen, *arguments):
        super().__init__(ARGUMENTS.bin)
        self.process = Process([program("baton-router"), "--listen", listen, "--metrics-listen", "127.0.0.1:0", *PATIENT_ROUTER,
                                *arguments], "listening")
        self.router = self.process.address
        self.metrics = self.process.popen.stdout.readline().split()[1]

    def await_ready(self):
        wait_until(lambda: get(self.metrics, "/readyz")[0] == 200, START_TIMEOUT_S, f"router {self.router} ready")

    def has_worker(self):
        return "w" in self.workers()


class Worker:
    def __init__(self, router):
        self.process = Process([program("baton-decode-worker"), "--model", str(MODEL), "--router", router, "--worker-id", "w",
                                "--metrics-listen", "127.0.0.1:0", "--kv-blocks", "256", "--threads", "1", "--transport", "tcp"],
                               "metrics")
        self.metrics = self.process.address


class RoutersTest(unittest.TestCase):
    def router(self, listen, *arguments):
        router = Router(listen, *arguments)
        self.addCleanup(router.process.close)
        return router

    def worker(self, router):
        worker = Worker(router)
        self.addCleanup(worker.process.close)
        return worker


class ByName(RoutersTest):
    def setUp(self):
        self.hosts = os.environ.get(IN_NAMESPACE)
        if self.hosts is None:
            print("not run: routers by name need root and unshare")
            self.skipTest("needs root and unshare")
        self.port = free_port()

    def name(self, *hosts):
        pathlib.Path(self.hosts).write_text("127.0.0.1 localhost\n" + "".join(f"{host} {NAME}\n" for host in hosts))

    def named_router(self, host):
        return self.router(f"{host}:{self.port}")

    def test_a_worker_registers_with_every_address_and_follows_the_name(self):
        first, second = self.named_router("127.0.0.2"), self.named_router("127.0.0.3")
        self.name("127.0.0.2", "127.0.0.3")
        worker = self.worker(f"dns:///{NAME}:{self.port}")
        for router in (first, second):
            router.await_ready()
            self.assertTrue(router.has_worker())
        self.assertEqual(metric(worker.metrics, "baton_worker_routers"), 2)

        # A third router, which the worker finds without a restart. The first one is not listed any more, as when it ends.
        third = self.named_router("127.0.0.4")
        self.name("127.0.0.3", "127.0.0.4")
        third.await_ready()
        self.assertTrue(first.has_worker(), "a router that still answers keeps its worker")
        self.assertEqual(metric(worker.metrics, "baton_worker_routers"), 3)

        self.assertEqual(first.process.end(), 0)
        wait_until(lambda: metric(worker.metrics, "baton_worker_routers") == 2, START_TIMEOUT_S, "the ended router forgotten")
        self.assertTrue(second.has_worker() and third.has_worker())

    def test_a_worker_waits_for_a_name_that_does_not_exist_yet(self):
        self.name()
        self.worker(f"dns:///{NAME}:{self.port}")
        router = self.named_router("127.0.0.2")
        self.name("127.0.0.2")
        router.await_ready()
        self.assertTrue(router.has_worker())


class Ending(RoutersTest):
    DELAY_MS = 15_000  # far longer than the requests below take

    def ask(self, connection):
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1, 2, 3], "max_tokens": 2}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer

    def test_a_router_that_ends_is_not_ready_at_once_and_still_serves_for_the_delay(self):
        router = self.router("127.0.0.1:0", "--http-listen", "127.0.0.1:0", f"--shutdown-delay-ms={self.DELAY_MS}")
        self.worker(router.router)
        router.await_ready()
        self.assertEqual(router.process.popen.stdout.readline().split()[0], "ready")
        http_address = router.process.popen.stdout.readline().split()[1]
        kept = http.client.HTTPConnection(http_address, timeout=ANSWER_S)
        self.assertEqual(self.ask(kept).status, 200)

        router.process.signal(signal.SIGTERM)
        wait_until(lambda: get(router.metrics, "/readyz")[0] == 503, START_TIMEOUT_S, "the router not ready")
        self.assertEqual(get(router.metrics, "/livez")[0], 200)
        self.assertEqual(get(http_address, "/health")[0], 503)
        last = self.ask(kept)
        self.assertEqual((last.status, last.headers["Connection"]), (200, "close"))
        self.assertEqual(self.ask(http.client.HTTPConnection(http_address, timeout=ANSWER_S)).status, 200)
        results, code = router.generate([{"id": "a", "prompt_token_ids": [1, 2, 3], "max_tokens": 2}])
        self.assertEqual(code, 0, results)
        self.assertEqual(router.process.popen.wait(60), 0)

    def test_without_a_delay_a_router_that_ends_refuses_at_once(self):
        router = self.router("127.0.0.1:0")
        self.worker(router.router)
        router.await_ready()
        self.assertEqual(router.process.end(), 0)
        self.assertEqual(get(router.metrics, "/readyz")[0], 0)

    def test_livez_is_true_before_a_worker_has_loaded_its_model_and_readyz_is_not(self):
        router = self.router("127.0.0.1:0")
        self.assertEqual((get(router.metrics, "/livez")[0], get(router.metrics, "/readyz")[0]), (200, 503))
        worker = self.worker(router.router)
        self.assertEqual(get(worker.metrics, "/livez")[0], 200)
        wait_until(lambda: get(worker.metrics, "/readyz")[0] == 200, START_TIMEOUT_S, "the worker ready")


def in_own_namespace():
    """Continues this script with an /etc/hosts of its own, if that is possible here."""
    if IN_NAMESPACE in os.environ or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        return
    handle, hosts = tempfile.mkstemp(prefix="baton-hosts-")
    os.close(handle)
    os.chmod(hosts, 0o644)
    done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts, sys.executable,
                           "-B", *sys.argv], env={**os.environ, IN_NAMESPACE: hosts})
    os.unlink(hosts)
    sys.exit(done.returncode)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--bin", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    ARGUMENTS.bin = os.path.abspath(ARGUMENTS.bin)
    in_own_namespace()
    unittest.main(argv=[sys.argv[0], *rest])
