#!/usr/bin/env python3
"""Random test of answers that end at a length limit: a fleet must answer as one process does.

  service_limits_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k Pool]

Prompts end near the limit and leave room for a few tokens or for none. max_tokens and min_tokens are absent, small, or beyond the
limit. The test compares token ids, text, finish reason, the hash over all sampled logits, and whether a job is refused.
Prints its seed; BATON_SEED sets it. Standard library only.
"""

import os
import random
import subprocess
import unittest

from cluster import answer
from service_case import ARGUMENTS, BLOCK, CHUNK, PATIENT_ROUTER, ServiceTest, baton, main

JOBS = 40


class AtALimit:
    """Mixin for a test case. `limit` is the maximum number of tokens of a sequence."""
    router_arguments = PATIENT_ROUTER

    def jobs(self, draw):
        jobs = []
        for index in range(JOBS):
            left = draw.choice((draw.randint(-2, 3), draw.randint(0, 2 * BLOCK), draw.randint(0, self.limit - 1)))
            if index == 0:
                left = -1  # one prompt is too long with every seed
            job = {"id": f"j{index}", "prompt_token_ids": self.prompt(max(1, self.limit - left), 37 * index),
                   "temperature": draw.choice((0, 0.9)), "seed": index, "ignore_eos": draw.random() < 0.7}
            room = max(1, left)
            if draw.random() < 0.4:
                job["max_tokens"] = max(1, room + draw.choice((-1, 0, 1, 2, 1000)))
            if draw.random() < 0.5:
                most = job.get("max_tokens", room + 1000)
                job["min_tokens"] = min(most, max(0, draw.choice((room - 1, room, room + 1, 1000))))
            jobs.append(job)
        return jobs

    def test_a_fleet_answers_as_one_process(self):
        seed = int(os.environ.get("BATON_SEED", random.randrange(1 << 31)))
        print(f"BATON_SEED={seed}", flush=True)
        jobs = self.jobs(random.Random(seed))
        want, _ = answer([baton(), "run", "--model", ARGUMENTS.model, "--jobs", "-", "--json", "--no-prefix-cache",
                          *self.worker_arguments], jobs)
        for placement in ("remote", "local"):
            got, _ = self.cluster.generate([job | {"cache_salt": placement} for job in jobs], "--placement", placement)
            for job in jobs:
                name = job["id"]
                what = f"seed {seed}, {placement}, {name}, a prompt of {len(job['prompt_token_ids'])} tokens, " \
                       f"{ {key: job.get(key) for key in ('max_tokens', 'min_tokens')} }: {want[name].get('error')}, " \
                       f"{got[name].get('error')}"
                self.assertEqual("error" in got[name], "error" in want[name], what)
                for field in ("token_ids", "text", "finish_reason", "logits_hash"):
                    self.assertEqual(got[name].get(field), want[name].get(field), f"{what}: {field}")
        answered = [result for result in want.values() if "error" not in result]
        self.assertGreater(len(answered), JOBS // 2)
        self.assertGreater(len(want) - len(answered), 0, "at least one prompt must be too long")
        longest = max(len(job["prompt_token_ids"]) + len(want[job["id"]]["token_ids"]) for job in jobs
                      if "error" not in want[job["id"]])
        self.assertEqual(longest, self.limit, "at least one answer must reach the limit")


class PoolTest(AtALimit, ServiceTest):
    """The KV of the last token is never written, so a sequence may have one token more than the pool."""
    limit = 12 * BLOCK + 1
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=12", f"--block-size={BLOCK}")


class ContextTest(AtALimit, ServiceTest):
    limit = 150
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=64", "--context-length=150")


class ContiguousTest(AtALimit, ServiceTest):
    limit = 10 * BLOCK
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=10", f"--block-size={BLOCK}",
                        f"--context-length={10 * BLOCK}", "--no-paged", "--no-prefix-cache")


class MemoryTest(unittest.TestCase):
    def test_a_fleet_that_needs_more_memory_than_there_is_is_not_started(self):
        up = subprocess.run([baton(), "up", "--model", ARGUMENTS.model, "--router-address", "127.0.0.1:0",
                             "--decode-workers=3", "--worker-argument=--kv-cache-mib=16000000"],
                            capture_output=True, text=True, timeout=60)
        self.assertEqual(up.returncode, 1, up.stderr)
        self.assertEqual(up.stdout, "")
        self.assertRegex(up.stderr, r"4 workers need \d+ MiB for weights and 64000000 MiB or more for KV; \d+ MiB are")


if __name__ == "__main__":
    main(__doc__)
