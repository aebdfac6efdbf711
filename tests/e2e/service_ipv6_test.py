#!/usr/bin/env python3
"""Tests a service whose processes listen only on ::1.

service_ipv6_test.py --bin BUILD/bin [--model M.gguf] [unittest arguments]

Every answer must equal that of `baton run`. Without ::1, the exit code is 77: not run. Standard library only.
"""

import os
import socket
import sys

from cluster import START_TIMEOUT_S, Service, wait_until
from fleet import Process
from service_case import ARGUMENTS, PATIENT_ROUTER, ServiceTest, inspect_tokens, main, read_texts, run

# The workers' --advertise arguments: two spellings of the same address, and none.
ADVERTISED = {"prefill": ("--advertise", "::1"), "decode": ("--advertise", "[::1]"), "decode-2": ()}


class Ipv6Service(Service):
    """A router and workers on ::1; a context manager."""

    def __init__(self, bin_dir, model):
        super().__init__(bin_dir)
        self.processes = []
        try:
            self.router = self.start("baton-router", "listening", "--listen", "[::1]:0", "--advertise", "::1", *PATIENT_ROUTER)
            for name, advertise in ADVERTISED.items():
                self.start(f"baton-{name.split('-')[0]}-worker", "ready", "--model", model, "--router", self.router,
                           "--worker-id", name, "--listen", "[::1]:0", "--transport", "tcp", "--transfer-listen", "[::1]:0",
                           "--hash-logits", "--kv-blocks=256", "--threads=1", *advertise)
            wait_until(self.whole, START_TIMEOUT_S, "a router that reaches all workers")
        except BaseException:
            self.__exit__()
            raise

    def start(self, program, says, *arguments):
        process = Process([os.path.join(os.path.dirname(self.baton), program), *arguments], says)
        self.processes.append(process)
        return process.address

    def whole(self):
        status = self.status()
        return status.get("ready") and len(status["workers"]) == len(ADVERTISED)

    def __exit__(self, *_):
        for process in self.processes:
            process.close()


class Ipv6(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Ipv6Service(ARGUMENTS.bin, ARGUMENTS.model))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def test_answers_equal_run_for_every_placement(self):
        for placement in ("local", "remote"):
            jobs = [{"id": str(i), "prompt_token_ids": self.prompt(40, 100 * i), "max_tokens": 8, "temperature": 0,
                     "cache_salt": placement} for i in range(4)]
            wanted, _ = run(jobs)
            got, _ = self.cluster.generate(jobs, "--placement", placement, concurrency=4)
            self.assert_same_answers(got, wanted, placement)

    def test_advertised_addresses_have_the_form_host_port(self):
        for worker in self.cluster.workers().values():
            self.assertRegex(worker["address"], r"^\[::1\]:\d+$")


if __name__ == "__main__":
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        print(f"not run: this machine has no ::1: {error}")
        sys.exit(77)
    main(__doc__)
