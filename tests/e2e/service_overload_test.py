#!/usr/bin/env python3
"""Tests the real service under overload: refusals are typed, memory is bounded, no blocks or requests are left over, and later
answers are correct. scripts/overload.sh measures the speed.

  service_overload_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Standard library only.
"""

import os
import pathlib
import signal

from cluster import wait_until
from fleet import Fleet
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, inspect_tokens, main, read_texts, run

PLACES = 12           # the router's limit of active requests
MAX_GROWTH_MIB = 256  # of the router


def resident_mib(process):
    pages = int(pathlib.Path(f"/proc/{process.popen.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


class Overload(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.fleet = cls.enterClassContext(
            Fleet(ARGUMENTS.bin, ARGUMENTS.model, {"prefill": 1, "decode": 1},
                  ("--hash-logits", "--kv-blocks=512", "--threads=1"), (f"--max-active-requests={PLACES}", *PATIENT_ROUTER)))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def jobs(self, count, **fields):
        return [{"id": f"job-{i}", "prompt_token_ids": self.prompt(30 + i % 50, 7 * i), "max_tokens": 8, "temperature": 0,
                 "ignore_eos": True, **fields} for i in range(count)]

    def client_that_does_not_read(self):
        client = self.long_answer("--logprobs", "20", max_tokens=4000)
        self.addCleanup(lambda: (client.kill(), client.communicate()))
        self.wait_for_work("DECODE")
        client.send_signal(signal.SIGSTOP)
        return client

    def storm(self, clients):
        """Starts clients and kills them as soon as the router has one of their requests, in any state."""
        before = int(self.fleet.status()["requests_total"])
        stormers = [self.long_answer(max_tokens=2000) for _ in range(clients)]
        wait_until(lambda: int(self.fleet.status()["requests_total"]) > before, SEEN_TIMEOUT_S, "the storm")
        for stormer in stormers:
            stormer.send_signal(signal.SIGKILL)
            stormer.communicate()

    def test_excess_requests_get_typed_refusals_and_leave_nothing_behind(self):
        self.answer_few()
        before_mib = resident_mib(self.fleet.router_process)
        clients = [self.client_that_does_not_read() for _ in range(2)]
        codes = {}
        for _ in range(3):
            self.storm(PLACES)
            got, _ = self.fleet.generate(self.jobs(150), "--timeout-ms", "30000", concurrency=75)
            for result in got.values():
                code = result.get("error", {}).get("code", "OK")
                codes[code] = codes.get(code, 0) + 1
        self.assertLessEqual(codes.keys(), {"OK", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}, codes)
        self.assertGreater(codes.get("OK", 0), 0)
        self.assertGreater(codes.get("RESOURCE_EXHAUSTED", 0), 0)
        self.assertLess(resident_mib(self.fleet.router_process) - before_mib, MAX_GROWTH_MIB)
        for client in clients:
            client.kill()
        self.fleet.wait_at_rest()
        self.answer_few()

    def answer_few(self):
        jobs = self.jobs(PLACES // 2, max_tokens=20)
        got, _ = self.fleet.generate(jobs, concurrency=len(jobs))
        self.assert_same_answers(got, run(jobs)[0], "within the limit")


if __name__ == "__main__":
    main(__doc__)
