#!/usr/bin/env python3
"""Tests real worker processes on the emulated GPU: a GPU that fails, a kernel that never ends, and the choice of a transport.

  service_cuda_test.py --bin build/release/bin [unittest's own arguments, such as -k failed]

The model is a small one of tests/testdata. Standard library only.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

from cluster import Cluster, answer, end_with_parent, wait_until
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, main

MODELS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models"
DEVICE_FAILED = 3  # exit code
WORKER = ("--device=cuda-emulated", "--numerics=r1", "--kv-blocks=64", "--block-size=16", "--hash-logits")


def program(name):
    return str(pathlib.Path(ARGUMENTS.bin) / name)


def jobs_of(seed, count, max_tokens):
    rng = random.Random(seed)
    return [{"id": f"{'greedy' if i % 2 else 'sampled'}-{i}", "prompt_token_ids": [rng.randint(10, 250) for _ in range(20 + 9 * i)],
             "max_tokens": max_tokens, "ignore_eos": True, "logprobs": 1,
             **({"temperature": 0} if i % 2 else {"temperature": 1.1, "seed": seed + i, "frequency_penalty": 0.4})}
            for i in range(count)]


def run_on_cpu(jobs):
    return answer([program("baton"), "run", "--model", ARGUMENTS.model, "--jobs", "-", "--json", "--hash-logits", "--numerics=r1",
                   "--no-prefix-cache"], jobs)[0]


class Worker:
    """A worker process that the test starts beside those of `baton up`, with its log."""

    def __init__(self, test, role, router, *arguments, emulator=None):
        self.log_file = tempfile.NamedTemporaryFile(prefix="worker-", suffix=".log")  # pylint: disable=consider-using-with
        environment = {f"BATON_GPU_EMULATOR_{name}": str(value) for name, value in (emulator or {}).items()}
        self.process = subprocess.Popen(
            [program(f"baton-{role}-worker"), "--model", ARGUMENTS.model, "--router", router, "--worker-id", "late", "--listen",
             "127.0.0.1:0", *WORKER, *arguments], stdout=subprocess.DEVNULL, stderr=self.log_file, env=os.environ | environment,
            preexec_fn=end_with_parent)
        test.addCleanup(lambda: (self.process.kill(), self.process.wait(), self.log_file.close()))

    def log(self):
        return pathlib.Path(self.log_file.name).read_text()


class Fleet(unittest.TestCase):
    """One `baton up` on the emulated GPU. The tests start one more worker, the late one."""
    prefill, decode = 0, 1

    def setUp(self):
        self.cluster = self.enterContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, self.prefill, self.decode, WORKER, ()))

    def start_late(self, role, *arguments, emulator=None):
        worker = Worker(self, role, self.cluster.router, *arguments, emulator=emulator)
        wait_until(lambda: "late" in self.cluster.workers(), SEEN_TIMEOUT_S, "the late worker")
        return worker

    def assert_same_answers(self, got, want):
        for name, expected in want.items():
            for field in ("token_ids", "text", "finish_reason"):
                self.assertEqual(got[name].get(field), expected.get(field), f"{name}: {field}; {got[name].get('error')}")

    def answer_while(self, jobs, condition, what):
        """Sends the jobs, waits for `condition`, then for the answers."""
        got = {}
        client = threading.Thread(target=lambda: got.update(self.cluster.generate(jobs, concurrency=len(jobs))[0]))
        client.start()
        wait_until(condition, SEEN_TIMEOUT_S, what)
        client.join()
        return got


class LosingTheGpuOfADecodeWorker(Fleet):

    def test_a_failed_gpu_ends_its_worker_and_another_one_completes_the_answers(self):
        jobs = jobs_of(seed=7, count=6, max_tokens=60)
        want = run_on_cpu(jobs)
        worker = self.start_late("decode", emulator={"FAIL_AFTER": 300})
        got = self.answer_while(jobs, lambda: worker.process.poll() is not None, "the worker's end")
        self.assert_same_answers(got, want)
        self.assertEqual(worker.process.returncode, DEVICE_FAILED, worker.log())
        self.assertIn("CUDA device 0 failed: ", worker.log())
        self.assertIn("ends with exit code 3", worker.log())
        wait_until(lambda: "late" not in self.cluster.workers(), SEEN_TIMEOUT_S, "the worker gone")
        self.cluster.wait_at_rest()

    def test_a_kernel_that_never_ends_is_noticed_and_another_worker_completes_the_answers(self):
        jobs = jobs_of(seed=8, count=6, max_tokens=60)
        want = run_on_cpu(jobs)
        worker = self.start_late("decode", "--op-stall-ms=3000", "--drain-ms=0", emulator={"HANG_AFTER": 300})
        got = self.answer_while(jobs, lambda: "not serving: " in worker.log(), "the worker's notice")
        self.assert_same_answers(got, want)
        self.assertIn("the engine loop has made no progress", worker.log())
        worker.process.terminate()
        self.assertEqual(worker.process.wait(SEEN_TIMEOUT_S), DEVICE_FAILED, worker.log())


class LosingTheGpuOfARank(Fleet):

    def test_a_failed_gpu_of_one_rank_ends_the_worker_and_another_one_completes_the_answers(self):
        jobs = jobs_of(seed=13, count=4, max_tokens=40)
        want = run_on_cpu(jobs)
        worker = self.start_late("decode", "--tensor-parallel=2", emulator={"DEVICES": 2, "FAULTY_DEVICE": 1, "FAIL_AFTER": 600})
        got = self.answer_while(jobs, lambda: worker.process.poll() is not None, "the worker's end")
        self.assert_same_answers(got, want)
        self.assertEqual(worker.process.returncode, DEVICE_FAILED, worker.log())
        self.assertIn("CUDA device 1 failed: ", worker.log())
        wait_until(lambda: "late" not in self.cluster.workers(), SEEN_TIMEOUT_S, "the worker gone")
        self.cluster.wait_at_rest()

    def test_a_kernel_of_one_rank_that_never_ends_is_noticed(self):
        jobs = jobs_of(seed=14, count=4, max_tokens=40)
        want = run_on_cpu(jobs)
        worker = self.start_late("decode", "--tensor-parallel=2", "--op-stall-ms=10000", "--drain-ms=0",
                                 emulator={"DEVICES": 2, "FAULTY_DEVICE": 1, "HANG_AFTER": 600})
        got = self.answer_while(jobs, lambda: "not serving: " in worker.log(), "the worker's notice")
        self.assert_same_answers(got, want)
        worker.process.terminate()
        self.assertEqual(worker.process.wait(SEEN_TIMEOUT_S), DEVICE_FAILED, worker.log())


class LosingTheGpuOfAPrefillWorker(Fleet):

    def test_a_failed_gpu_ends_its_worker_and_the_prompts_are_computed_elsewhere(self):
        jobs = [job | {"prompt_token_ids": job["prompt_token_ids"] * 3} for job in jobs_of(seed=9, count=6, max_tokens=8)]
        want = run_on_cpu(jobs)
        worker = self.start_late("prefill", "--max-chunk-tokens=32", emulator={"FAIL_AFTER": 60})
        got = {}
        client = threading.Thread(target=lambda: got.update(
            self.cluster.generate(jobs, "--placement", "remote", concurrency=len(jobs))[0]))
        client.start()
        wait_until(lambda: worker.process.poll() is not None, SEEN_TIMEOUT_S, "the worker's end")
        client.join()
        self.assert_same_answers(got, want)
        self.assertEqual(worker.process.returncode, DEVICE_FAILED, worker.log())


class RestartingAWorker(unittest.TestCase):

    def test_baton_up_starts_a_worker_with_a_failed_gpu_again(self):
        # One worker's life is long enough for an answer, and too short for all of them.
        jobs = jobs_of(seed=10, count=10, max_tokens=10)
        want = run_on_cpu(jobs)
        os.environ["BATON_GPU_EMULATOR_FAIL_AFTER"] = "700"  # every worker serves so many kernels
        self.addCleanup(os.environ.pop, "BATON_GPU_EMULATOR_FAIL_AFTER")
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, 0, 2, WORKER, ()) as cluster:
            got = cluster.generate(jobs, "--retries", "200", concurrency=2)[0]
            wait_until(lambda: re.search(r"exit code 3.*\bstarting it again", pathlib.Path(cluster.log_path).read_text()),
                       SEEN_TIMEOUT_S, "the restart in the log")
        for name, expected in want.items():
            self.assertEqual(got[name].get("token_ids"), expected["token_ids"], f"{name}: {got[name].get('error')}")


class Transports(unittest.TestCase):

    def assert_auto_answers(self, seed, bin_dir):
        """Answers jobs by a prefill and a decode worker with --transport auto. Returns the fleet's log."""
        jobs = jobs_of(seed, count=4, max_tokens=8)
        want = run_on_cpu(jobs)
        with Cluster(bin_dir, ARGUMENTS.model, 1, 1, (*WORKER, "--transport=auto"), PATIENT_ROUTER) as cluster:
            got = cluster.generate(jobs, "--placement", "remote")[0]
            # A heartbeat brings the count.
            wait_until(lambda: int(cluster.workers()["prefill-0"]["prefill_tokens"]) > 0, SEEN_TIMEOUT_S, "the prefilled tokens")
            log = pathlib.Path(cluster.log_path).read_text()
        for name, expected in want.items():
            self.assertEqual(got[name].get("token_ids"), expected["token_ids"], f"{name}: {got[name].get('error')}")
        self.assertNotIn("shared memory", log)
        return log

    def test_auto_on_gpus_uses_nccl(self):
        self.assertNotIn("not by NCCL", self.assert_auto_answers(11, ARGUMENTS.bin))

    def test_auto_without_an_nccl_library_logs_the_reason_and_uses_tcp(self):
        with tempfile.TemporaryDirectory() as folder:  # the programs and the emulator without NCCL's stand-in
            for path in pathlib.Path(ARGUMENTS.bin).iterdir():
                if path.name.startswith("baton") or path.name == "libbaton_gpu_emulator.so":
                    shutil.copy2(path, folder)
            log = self.assert_auto_answers(12, folder)
        self.assertIn("KV goes by TCP, not by NCCL: ", log)
        self.assertIn("libbaton_emulated_nccl.so", log)


if __name__ == "__main__":
    ARGUMENTS.model = str(MODELS / "tiny-q4_1.gguf")  # the default of --model
    main(__doc__)
