#!/usr/bin/env python3
"""Tests of `baton resize`: KV pools grow and shrink while real processes serve requests.

  service_resize_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Answers must equal `baton run`, freed memory goes back to the system, and no block leaks. Standard library only.
"""

import itertools
import pathlib
import random
import re
import subprocess
import threading

from cluster import children_of, wait_until
from service_case import SEEN_TIMEOUT_S, ServiceTest, baton, first_worker, main, run

SEED = 20261121
JOBS = 36
LARGE, SMALL = 600, 40  # blocks; a job needs at most 20


def resident_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS in its status")


def resize(worker, *size):
    """Runs `baton resize`. Returns (exit code, {name: blocks}), or (exit code, stderr) if it failed. With a size in MiB, `limit` is in
    blocks and all others are in MiB; `mib` is the limit in MiB."""
    done = subprocess.run([baton(), "resize", "--worker", worker["address"], *size],
                          capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        return done.returncode, done.stderr
    if size[0] == "--kv-cache-mib":
        sizes = re.fullmatch(r"([\d.]+) MiB \((\d+) blocks\), had ([\d.]+) MiB; ([\d.]+) MiB reserved, ([\d.]+) MiB retiring\n",
                             done.stdout)
        return 0, dict(zip(("mib", "limit", "before", "reserved", "retiring"), map(float, sizes.groups())))
    numbers = re.fullmatch(r"(\d+) blocks, had (\d+); (\d+) reserved, (\d+) retiring\n", done.stdout)
    return 0, dict(zip(("limit", "before", "reserved", "retiring"), map(int, numbers.groups())))


class ResizeCases:
    """Mixin for a test case with any transport."""

    def jobs(self):
        jobs = []
        for i in range(JOBS):
            job = {"id": f"j{i}", "prompt_token_ids": self.prompt(60 + 17 * (i % 12), 500 * (i % 9)),
                   "max_tokens": 10 + i % 20, "temperature": 0, "ignore_eos": True}
            if i % 3 == 1:
                job |= {"temperature": 0.9, "top_k": 40, "seed": i}
            jobs.append(job)
        return jobs

    def fill(self):
        """Fills the caches with far more blocks than a small pool holds. Returns the workers' status."""
        jobs = [{"id": f"f{i}", "prompt_token_ids": self.prompt(2000, 2000 * i), "max_tokens": 1,
                 "temperature": 0, "cache_salt": f"fill {i}"} for i in range(4)]
        self.assertEqual(self.cluster.generate(jobs, "--placement", "remote", concurrency=2)[1], 0)
        return self.cluster.wait_at_rest()

    def test_under_load_the_answers_stay_the_same(self):
        jobs = self.jobs()
        want, code = run(jobs)
        self.assertEqual(code, 0)
        done = threading.Event()
        failures = []
        resizes = [0]

        def play():
            sizes = random.Random(SEED)
            workers = list(self.cluster.workers().values())
            while not done.wait(0.05):
                size = sizes.choice((SMALL, LARGE, sizes.randint(SMALL, LARGE)))
                code, said = resize(sizes.choice(workers), "--blocks", str(size))
                resizes[0] += 1
                if code != 0 or said["limit"] != size:
                    failures.append(said)

        operator = threading.Thread(target=play)
        operator.start()
        try:
            for turn in itertools.takewhile(lambda turn: turn < 2 or (resizes[0] < 5 and operator.is_alive()), itertools.count()):
                got, code = self.cluster.generate([job | {"cache_salt": f"turn {turn}"} for job in jobs], concurrency=8)
                self.assertEqual(code, 0, f"seed {SEED}: {[r['error'] for r in got.values() if 'error' in r]}")
                self.assert_same_answers(got, want, f"resized, seed {SEED}")
        finally:
            done.set()
            operator.join()
        self.assertEqual(failures, [])
        self.assertGreater(resizes[0], 4)
        for worker in self.cluster.wait_at_rest().values():
            code, said = resize(worker, "--blocks", str(SMALL))
            self.assertEqual((code, said["limit"], said["retiring"]), (0, SMALL, 0), said)
        self.cluster.wait_at_rest()

    def test_memory_goes_back_to_the_system(self):
        for worker in self.cluster.workers().values():
            self.assertEqual(resize(worker, "--blocks", str(LARGE))[0], 0)
        workers = self.fill()
        pids = {pid for pid, name in children_of(self.cluster.process.pid).items() if "router" not in name}
        before = {pid: resident_mib(pid) for pid in pids}
        prefill = first_worker(workers, "PREFILL")
        block_mib = int(prefill["pool"]["bytes_per_block"]) / 2**20
        self.assertGreater(prefill["pool"]["cached_blocks"], 400)
        for worker in workers.values():
            self.assertEqual(resize(worker, "--blocks", str(SMALL))[0], 0)
        after = {pid: resident_mib(pid) for pid in pids}
        for pid in pids:
            self.assertLess(after[pid], before[pid] - 300 * block_mib,
                            f"MiB before {before}, after {after}, a block has {block_mib:.2f}")
        inside = subprocess.run([baton(), "inspect", "worker", "--worker", prefill["address"]],
                                capture_output=True, text=True, check=True).stdout
        self.assertIn(f"limit {SMALL} blocks", inside)
        resident = int(re.search(r"(\d+) bytes resident", inside).group(1)) / 2**20
        self.assertLess(resident, (SMALL + 1) * block_mib + 4)  # a huge page at each end

        def shown():
            pool = first_worker(self.cluster.workers(), "PREFILL")["pool"]
            return pool["limit_blocks"] == SMALL and pool["retiring_blocks"] == 0
        wait_until(shown, SEEN_TIMEOUT_S, "the small pool in the status")

    def test_refusals_name_value_and_limit(self):
        worker = first_worker(self.cluster.workers(), "DECODE")
        reserved = worker["pool"]["reserved_blocks"]
        code, said = resize(worker, "--blocks", str(reserved + 1))
        self.assertEqual(code, 2)
        self.assertIn(f"{reserved + 1} blocks; [1, {reserved}] are allowed; a worker with a larger --kv-cache-max-mib allows more", said)
        code, said = resize(worker, "--kv-cache-mib", "10000000")
        self.assertEqual(code, 2)
        self.assertRegex(said, r"the size is 10000000 MiB; must be \d+\.\d MiB to \d+\.\d MiB; .*--kv-cache-max-mib")
        code, said = resize(worker)
        self.assertEqual(code, 2)
        self.assertIn("give --kv-cache-mib MIB or --blocks COUNT", said)
        block_bytes = int(worker["pool"]["bytes_per_block"])
        blocks = 100 * 2**20 // block_bytes
        code, said = resize(worker, "--kv-cache-mib", "100")
        self.assertEqual((code, said["limit"]), (0, blocks))
        self.assertAlmostEqual(said["mib"], blocks * block_bytes / 2**20, delta=0.06)
        self.assertAlmostEqual(said["reserved"], reserved * block_bytes / 2**20, delta=0.06)


class ResizeOverTcp(ResizeCases, ServiceTest):
    worker_arguments = ("--hash-logits", "--kv-blocks=200", "--kv-cache-max-mib=300", "--transport=tcp")


class ResizeOverSharedMemory(ResizeCases, ServiceTest):
    worker_arguments = ("--hash-logits", "--kv-blocks=200", "--kv-cache-max-mib=300", "--transport=shm")


class FixedPool(ServiceTest):
    def test_a_pool_without_a_range_keeps_its_size(self):
        code, said = resize(first_worker(self.cluster.workers(), "DECODE"), "--blocks", "100")
        self.assertEqual(code, 1)
        self.assertIn("--kv-cache-max-mib", said)


if __name__ == "__main__":
    main(__doc__)
