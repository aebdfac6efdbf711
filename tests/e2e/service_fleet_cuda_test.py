#!/usr/bin/env python3
"""Tests the real service with workers on the GPU emulator: real processes, `baton up`, a tiny model.

  service_fleet_cuda_test.py --bin build/release/bin --model build/release/testdata/tiny.gguf [unittest's own arguments, such as -k nccl]

Token ids, text, and the hash over all sampled logits must equal those of `baton run` on the CPU. With --transport nccl, NCCL's
stand-in moves KV between the device memories of two processes (tests/kvtransfer/fake_nccl.h). Standard library only.
"""

import os
import pathlib
import re
import signal
import tempfile
import threading
import unittest.mock

from cluster import children_of, wait_until
from service_case import ARGUMENTS, BLOCK, CHUNK, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, main, run

SETTINGS = (f"--block-size={BLOCK}", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=96", "--hash-logits")
COMMON = ("--numerics=r1", *SETTINGS)
EMULATED = ("--device=cuda-emulated", *COMMON)
PROGRAM = {"prefill": "baton-prefill-w", "decode": "baton-decode-wo"}  # as the kernel shortens them


class CudaTest(ServiceTest):
    """Test case with one `baton up`, whose workers have these variables."""
    worker_arguments = EMULATED
    numerics = "r1"  # of these arguments
    nccl_faults = ""
    device = ""

    @classmethod
    def setUpClass(cls):
        report = tempfile.NamedTemporaryFile("r", prefix="baton-nccl-")  # the workers add lines when they end
        cls.addClassCleanup(report.close)
        cls.addClassCleanup(lambda: cls.check_report([[int(word) for word in line.split()[:4]] for line in report]))
        with unittest.mock.patch.dict(os.environ, BATON_FAKE_NCCL=cls.nccl_faults, BATON_FAKE_NCCL_REPORT=report.name,
                                      BATON_GPU_EMULATOR_SEED="7", **({"BATON_DEVICE": cls.device} if cls.device else {})):
            super().setUpClass()

    @classmethod
    def check_report(cls, lines):
        """Checks the bytes that NCCL's stand-in moved: for each worker [0, as a sender, 1, as a receiver]."""
        assert not any(line[1] or line[3] for line in lines), lines

    def jobs(self, lengths=(1, BLOCK, BLOCK + 1, CHUNK, 2 * CHUNK + 1), max_tokens=10):
        jobs = []
        for index, length in enumerate(lengths):
            job = {"id": f"p{length}", "prompt_token_ids": self.prompt(length, 100 * index), "max_tokens": max_tokens,
                   "temperature": 0, "ignore_eos": True}
            if index % 2 == 1:
                job |= {"temperature": 0.9, "top_p": 0.95, "top_k": 40, "seed": 77 + index}
            jobs.append(job)
        return jobs

    def check_answers(self, placement, salt="", kv_must_come=True):
        jobs = self.jobs()
        want, code = run(jobs, f"--numerics={self.numerics}")
        self.assertEqual(code, 0)
        got, code = self.cluster.generate([job | {"cache_salt": f"{placement}{salt}"} for job in jobs], "--placement", placement,
                                          concurrency=3)
        self.assertEqual(code, 0, got)
        self.assert_same_answers(got, want, placement)
        for name, result in got.items():
            if kv_must_come or placement != "remote":
                self.assertEqual(result["ledger"]["kv_bytes"] > 0, placement == "remote", name)
        self.cluster.wait_at_rest()
        return got

    def log(self):
        return pathlib.Path(self.cluster.log_path).read_text()


class OverTcp(CudaTest):
    numerics = "t1-sm90"
    worker_arguments = ("--device=cuda-emulated", f"--numerics={numerics}", *SETTINGS, "--transport=tcp")

    def test_remote_and_local_prefill_equal_run(self):
        for placement in ("remote", "local"):
            self.check_answers(placement)


class OverSharedMemory(CudaTest):
    """A worker copies each block to a slot of a file that the other worker maps."""
    worker_arguments = (*EMULATED, "--transport=shm")

    def test_remote_and_local_prefill_equal_run(self):
        kv_bytes = sum(result["ledger"]["kv_bytes"] for placement in ("remote", "local")
                       for result in self.check_answers(placement).values())
        wait_until(lambda: [int(worker["kv_bytes_through_host"]) for worker in self.cluster.workers().values()] == [kv_bytes] * 2,
                   SEEN_TIMEOUT_S, f"{kv_bytes} bytes in the status of both workers")  # a heartbeat brings the count


class OverNccl(CudaTest):
    worker_arguments = (*EMULATED, "--transport=nccl")
    kv_bytes = 0  # as the ledgers say

    def test_remote_and_local_prefill_equal_run(self):
        for placement in ("remote", "local"):
            got = self.check_answers(placement)
            type(self).kv_bytes += sum(result["ledger"]["kv_bytes"] for result in got.values())
        self.assertNotIn("not by NCCL", self.log())
        self.cluster.end()  # workers log the counter when they end
        through_host = re.findall(r"transfers copied (\d+) bytes of KV between the GPU and host memory", self.log())
        self.assertEqual(through_host, ["0", "0"])

    @classmethod
    def check_report(cls, lines):
        sent, received = max(line[1] for line in lines), max(line[3] for line in lines)
        assert sent > 0 and received == cls.kv_bytes > 0, (lines, cls.kv_bytes)


class OverNcclThatFails(CudaTest):
    """An operation of the receiver dies halfway. The rest goes over TCP."""
    worker_arguments = (*EMULATED, "--transport=nccl")
    nccl_faults = "1.dies_at_operation=1"

    def test_answers_stay_the_same_and_the_log_says_why(self):
        self.check_answers("remote")
        self.assertIn("KV goes by TCP, not by NCCL: UNAVAILABLE: communicator: ", self.log())
        self.cluster.end()
        self.assertRegex(self.log(), r"transfers copied [1-9]\d* bytes of KV between the GPU and host memory")

    @classmethod
    def check_report(cls, lines):
        assert max(line[3] for line in lines) > 0, lines  # of the operation before


class BetweenCpuAndGpu(CudaTest):
    """Until a GPU has confirmed the numerics, KV does not move between a CPU and a GPU. The router refuses such a fleet, or with
    --mixed-fingerprints it lets the decode worker compute the prompts."""
    router_arguments = (*PATIENT_ROUTER, "--mixed-fingerprints")
    worker_arguments = (*COMMON, "--transport=tcp")
    device = "cuda-emulated"  # the prefill worker's own argument counts more
    prefill_arguments = ("--device=cpu", "--threads=1")

    def test_no_kv_moves_and_the_answers_stay_the_same(self):
        self.check_answers("auto")
        workers = self.cluster.workers()
        self.assertEqual(int(workers["prefill-0"]["prefill_tokens"]), 0)


class LosingAWorker(CudaTest):
    """A fleet of one prefill worker and two decode workers. `baton up` restarts a worker that was killed. On a slow machine, the
    router may take a worker for lost that is only late; then KV is computed and does not come."""
    prefill, decode = 1, 2
    router_arguments = ()
    worker_arguments = (*EMULATED, "--transport=nccl")

    def kill(self, role):
        """Kills one worker of the role, and waits until the fleet has another one in its place."""
        before = {name: worker["epoch"] for name, worker in self.cluster.workers().items()}
        os.kill(next(pid for pid, name in children_of(self.cluster.process.pid).items() if name == PROGRAM[role]), signal.SIGKILL)

        def replaced():
            after = {name: worker["epoch"] for name, worker in self.cluster.workers().items()}
            return after.keys() == before.keys() and after != before
        return lambda: wait_until(replaced, SEEN_TIMEOUT_S, f"a new {role} worker")

    def test_answers_stay_the_same_when_workers_are_killed(self):
        self.check_answers("remote", salt="before", kv_must_come=False)
        jobs = self.jobs(lengths=(20, 33, 50), max_tokens=40)
        want, _ = run(jobs)
        for role in ("decode", "prefill"):
            got = {}
            client = threading.Thread(target=lambda: got.update(self.cluster.generate(
                [job | {"cache_salt": role} for job in jobs], concurrency=len(jobs))[0]))
            done_before = self.decoded()
            client.start()
            wait_until(lambda: self.decoded() > done_before + 8, SEEN_TIMEOUT_S, "answers under way")
            wait_for_the_new_one = self.kill(role)
            client.join()
            self.assert_same_answers(got, want, f"{role} worker killed")
            wait_for_the_new_one()
            self.check_answers("remote", salt=f"after {role}", kv_must_come=False)

    def decoded(self):
        return sum(int(worker["decode_tokens"]) for worker in self.cluster.workers().values() if "DECODE" in worker["role"])

    @classmethod
    def check_report(cls, lines):
        assert max(line[3] for line in lines) > 0, lines


if __name__ == "__main__":
    main(__doc__)
