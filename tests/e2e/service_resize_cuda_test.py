#!/usr/bin/env python3
"""Tests of `baton resize` on the CUDA backend: real processes, with the GPU emulator instead of a driver.

  service_resize_cuda_test.py --bin build/release/bin --model build/release/testdata/tiny.gguf [unittest's own arguments]

The emulated GPU ends a process that uses device memory without physical memory behind it, as an illegal address ends the
context of a GPU. Answers must equal those of `baton run --device cpu`. Standard library only.
"""

import itertools
import os
import random
import threading

from cluster import Cluster, answer
from service_case import ARGUMENTS, PATIENT_ROUTER, ServiceTest, baton, main
from service_resize_test import resize

SEED = 20261123
JOBS = 8
BLOCK_SIZE = 128  # a block of the tiny model then has 192 KiB, so that few blocks need several granules of 2 MiB
SMALL, FIRST, LARGE = 3, 8, 300  # blocks; a job needs at most 2
FIRST_ID, LAST_ID = 10, 250  # byte tokens only, so that no control token ends an answer
POOL = ("--hash-logits", "--numerics=r1", "--max-chunk-tokens=32", "--kv-type=f32", f"--block-size={BLOCK_SIZE}", f"--kv-blocks={FIRST}",
        "--kv-cache-max-mib=64", "--transport=tcp")


def jobs(salt=""):
    rng = random.Random(SEED)
    listed = []
    for i in range(JOBS):
        job = {"id": f"j{i}", "prompt_token_ids": [rng.randint(FIRST_ID, LAST_ID) for _ in range(10 + 15 * i)],
               "max_tokens": 6 + i, "temperature": 0, "ignore_eos": True, "cache_salt": salt}
        if i % 3 == 1:
            job |= {"temperature": 0.9, "top_k": 40, "seed": i}
        listed.append(job)
    return listed


class ResizeOnCudaLayerMajor(ServiceTest):
    layout = "layer-major"  # a block then has many pieces, also in the copies of transfers

    @classmethod
    def setUpClass(cls):
        arguments = (*POOL, "--device=cuda-emulated", f"--kv-layout={cls.layout}")
        cls.cluster = cls.enterClassContext(Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, arguments, PATIENT_ROUTER))
        cls.want, code = answer([baton(), "run", "--model", ARGUMENTS.model, "--device", "cpu", "--kv-type", "f32", "--jobs", "-",
                                 "--json", "--hash-logits", "--no-prefix-cache"], jobs())
        assert code == 0, cls.want

    def test_under_load_the_tokens_are_those_of_the_cpu(self):
        """Two operators resize the same workers at once, while the prefill and the decode worker serve."""
        done = threading.Event()
        failures, sizes = [], []

        def play(seed):
            rng = random.Random(seed)
            workers = list(self.cluster.workers().values())
            while not done.wait(0.2):  # starting `baton` takes CPU time from the emulator
                size = rng.choice((SMALL, LARGE, rng.randint(SMALL, LARGE)))
                code, said = resize(rng.choice(workers), "--blocks", str(size))
                sizes.append(size)
                if code != 0 or said["reserved"] < LARGE:
                    failures.append(said)

        operators = [threading.Thread(target=play, args=(SEED + i,)) for i in range(2)]
        for operator in operators:
            operator.start()
        try:
            for turn in itertools.takewhile(
                    lambda turn: turn < 2 or (len(sizes) < 9 and any(operator.is_alive() for operator in operators)),
                    itertools.count()):
                got, code = self.cluster.generate(jobs(f"turn {turn}"), concurrency=6)
                self.assertEqual(code, 0, f"seed {SEED}: {[r['error'] for r in got.values() if 'error' in r]}")
                self.assert_same_answers(got, self.want, f"resized, seed {SEED}")
        finally:
            done.set()
            for operator in operators:
                operator.join()
        self.assertEqual(failures, [])
        self.assertGreater(len(sizes), 8)
        for worker in self.cluster.wait_at_rest().values():
            code, said = resize(worker, "--blocks", str(SMALL))
            self.assertEqual((code, said["limit"], said["retiring"]), (0, SMALL, 0), said)
        self.cluster.wait_at_rest()


class ResizeOnCuda(ResizeOnCudaLayerMajor):
    layout = "block-major"

    def test_a_pool_that_was_small_has_all_its_blocks_after_growth(self):
        for salt, size in (("small", SMALL), ("large", LARGE)):
            for worker in self.cluster.workers().values():
                code, said = resize(worker, "--blocks", str(size))
                self.assertEqual((code, said["limit"]), (0, size), said)
            got, code = self.cluster.generate(jobs(salt), concurrency=6)
            self.assertEqual(code, 0, [r["error"] for r in got.values() if "error" in r])
            self.assert_same_answers(got, self.want, salt)
        self.cluster.wait_at_rest()


class ResizeOnRanks(ServiceTest):
    """The pool of a worker with two ranks: each of their GPUs has a part."""

    @classmethod
    def setUpClass(cls):
        os.environ["BATON_GPU_EMULATOR_DEVICES"] = "2"
        cls.addClassCleanup(os.environ.pop, "BATON_GPU_EMULATOR_DEVICES")
        arguments = (*POOL, "--device=cuda-emulated", "--tensor-parallel=2")
        cls.cluster = cls.enterClassContext(Cluster(ARGUMENTS.bin, ARGUMENTS.model, 0, 1, arguments, PATIENT_ROUTER))
        cls.want, code = answer([baton(), "run", "--model", ARGUMENTS.model, "--device", "cpu", "--kv-type", "f32", "--jobs", "-",
                                 "--json", "--hash-logits", "--no-prefix-cache"], jobs())
        assert code == 0, cls.want

    def test_a_pool_on_two_gpus_shrinks_and_grows(self):
        for salt, size in (("small", SMALL), ("large", LARGE), ("small again", SMALL)):
            for worker in self.cluster.workers().values():
                code, said = resize(worker, "--blocks", str(size))
                self.assertEqual((code, said["limit"]), (0, size), said)
            got, code = self.cluster.generate(jobs(salt), concurrency=6)
            self.assertEqual(code, 0, [r["error"] for r in got.values() if "error" in r])
            self.assert_same_answers(got, self.want, salt)
        self.cluster.wait_at_rest()


if __name__ == "__main__":
    main(__doc__)
