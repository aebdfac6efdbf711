#!/usr/bin/env python3
"""Tests a model with two KV groups, full attention and a sliding window, on real processes.

  service_windows_test.py --bin build/release/bin [unittest's own arguments, such as -k Tcp]

The model is tests/testdata/models/tiny-window-q4_0.gguf. Its layer 1 sees all tokens; the other layers see the last 24. Hand-offs
and pulls carry both groups. Answers and hashes over all logits must equal those of `baton run`. Standard library only.
"""

import os
import pathlib
import random
import signal

from cluster import children_of, wait_until
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, main, run

MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models" / "tiny-window-q4_0.gguf"
SEED = 20261122
WINDOW = 24
BLOCK, CHUNK = 8, 32
FIRST_ID, LAST_ID = 10, 250  # byte tokens only, so that no control token ends an answer


class WindowService(ServiceTest):
    """Base of the test cases; has no tests."""
    prefill, decode = 2, 2
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", f"--block-size={BLOCK}", "--kv-blocks=256")
    router_arguments = (*PATIENT_ROUTER, "--pull-weight=0", "--pull-least-ms=60000")

    @classmethod
    def setUpClass(cls):
        ARGUMENTS.model = str(MODEL)
        super().setUpClass()
        cls.random = random.Random(SEED)

    def ids(self, count):
        return [self.random.randint(FIRST_ID, LAST_ID) for _ in range(count)]

    def jobs(self):
        """Returns jobs with prompts that end near block, chunk and window boundaries, some with a common prefix. Their answers are
        long enough to move the window."""
        common = self.ids(2 * WINDOW + 3)
        edges = (BLOCK, WINDOW, CHUNK, 2 * WINDOW, WINDOW + CHUNK)
        lengths = [1, 2, *(edge + by for edge in edges for by in (-1, 0, 1)), 100, 150]
        prompts = [self.ids(length) for length in lengths] + [common + self.ids(length) for length in (1, 9, 40, 90)]
        jobs = []
        for i, prompt in enumerate(prompts):
            job = {"id": f"j{i}-{len(prompt)}", "prompt_token_ids": prompt, "max_tokens": 30 + i, "temperature": 0,
                   "ignore_eos": True}
            if i % 3 == 1:
                job |= {"temperature": 0.9, "top_k": 40, "seed": i}
            elif i % 3 == 2:
                job |= {"temperature": 0.8, "seed": i, "repetition_penalty": 1.1}
            jobs.append(job)
        return jobs

    def reference(self, jobs):
        want, code = run(jobs)
        self.assertEqual(code, 0, want)
        return want


class WindowCases:
    """Mixin for a WindowService with any transport."""
    chats_together = 6  # chats that take turns
    may_refuse = False  # no decode worker may have room for a prompt that must be handed over

    def hand_over(self, jobs):
        got, code = self.cluster.generate(jobs, "--placement", "remote", concurrency=6)
        refused = [job for job in jobs if got[job["id"]].get("error", {}).get("code") == "RESOURCE_EXHAUSTED"]
        if self.may_refuse and refused:  # a client asks again; alone, each has room
            again, code = self.cluster.generate(refused, "--placement", "remote", concurrency=1)
            got |= again
        self.assertEqual(code, 0, [r["error"] for r in got.values() if "error" in r])
        return got

    def test_handed_over_prompts_have_the_same_answers(self):
        jobs = self.jobs()
        want = self.reference(jobs)
        for turn in ("nothing cached", "everything cached"):
            got = self.hand_over(jobs)
            self.assert_same_answers(got, want, f"{turn}, seed {SEED}")
        moved = sum(int(result["ledger"]["kv_bytes"]) for result in got.values())
        self.assertGreater(moved, 0)
        self.cluster.wait_at_rest()

    def test_turns_of_a_chat_find_the_window_cached_or_pull_it(self):
        chats = [self.ids(60 + 7 * i) for i in range(6)]
        cached = 0
        for first in range(0, len(chats), self.chats_together):
            prompts = chats[first:first + self.chats_together]
            for turn in range(4):
                jobs = [{"id": f"c{i}", "prompt_token_ids": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
                        for i, prompt in enumerate(prompts)]
                want = self.reference(jobs)
                got, code = self.cluster.generate(jobs, concurrency=3)
                self.assertEqual(code, 0, [r["error"] for r in got.values() if "error" in r])
                self.assert_same_answers(got, want, f"turn {turn}, seed {SEED}")
                for ledger in (result["ledger"] for result in got.values()):
                    cached += int(ledger["decode_cached_tokens"]) + int(ledger["prefill_cached_tokens"])
                prompts = [prompt + want[f"c{i}"]["token_ids"] + self.ids(5) for i, prompt in enumerate(prompts)]
        self.assertGreater(cached, 0, "no turn found cached tokens of the previous turn")
        self.cluster.wait_at_rest()

    def test_choices_share_a_prompt_and_have_separate_windows(self):
        jobs = [{"id": "n", "prompt_token_ids": self.ids(70), "max_tokens": 50, "temperature": 1.0, "seed": 5, "n": 4,
                 "ignore_eos": True}]
        want = self.reference(jobs)
        got, code = self.cluster.generate(jobs, "--placement", "remote")
        self.assertEqual(code, 0, got)
        self.assert_same_answers(got, want, "four choices")
        self.cluster.wait_at_rest()


class OverTcp(WindowCases, WindowService):
    worker_arguments = (*WindowService.worker_arguments, "--transport=tcp")


class OverSharedMemory(WindowCases, WindowService):
    worker_arguments = (*WindowService.worker_arguments, "--transport=shm")


class WithOtherBlocksAtThePrefillWorkers(WindowCases, WindowService):
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=256")
    prefill_arguments = ("--block-size=32", "--kv-layout=layer-major")  # decode workers have 16


class WithTwoStepsInFlight(WindowCases, WindowService):
    worker_arguments = (*WindowService.worker_arguments, "--device=cpu-async", "--steps-in-flight=2")


class BetweenTensorParallelDegrees(WindowService):
    """Base of the next two; has no tests."""

    def hand_over(self):
        jobs = [job | {"max_tokens": 8} for job in self.jobs()[::2]]
        want = self.reference(jobs)
        for turn in ("nothing cached", "everything cached"):
            got, code = self.cluster.generate(jobs, "--placement", "remote", concurrency=6)
            self.assertEqual(code, 0, [r["error"] for r in got.values() if "error" in r])
            self.assert_same_answers(got, want, f"{turn}, seed {SEED}")
        self.assertGreater(sum(int(result["ledger"]["kv_bytes"]) for result in got.values()), 0)
        self.cluster.wait_at_rest()


class FromTwoRanksToOne(BetweenTensorParallelDegrees):
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=256", "--transport=tcp")
    prefill_arguments = ("--tensor-parallel=2", "--block-size=32")  # decode workers have 16

    def test_answers_are_those_of_one_process(self):
        self.hand_over()


class FromOneRankToTwo(BetweenTensorParallelDegrees):
    worker_arguments = (*WindowService.worker_arguments, "--transport=shm")
    prefill_arguments = ("--kv-layout=layer-major",)
    decode_arguments = ("--tensor-parallel=2", "--steps-in-flight=2")

    def test_answers_are_those_of_one_process(self):
        self.hand_over()


class WithSmallPools(WindowCases, WindowService):
    """Small pools, so that sequences wait for room and are preempted. With other chats between two turns of a chat, its blocks may all
    be evicted. So the chats run one after another. The decode workers may refuse prompts that must be handed over."""
    chats_together = 1
    may_refuse = True
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", f"--block-size={BLOCK}", "--kv-blocks=48")


class WithAPrefillWorkerStopped(WindowService):
    # Long enough that a busy machine does not look like a stopped worker.
    router_arguments = ("--index-wait-ms=60000", "--pull-weight=0", "--worker-silence-ms=4000", "--worker-expiry-ms=60000")

    def test_answers_continue(self):
        jobs = self.jobs()
        want = self.reference(jobs)
        workers = [pid for pid, name in children_of(self.cluster.process.pid).items() if "prefill" in name]
        self.assertEqual(len(workers), 2, workers)
        got, code = self.cluster.generate(jobs[:5], "--placement", "remote", concurrency=5)
        self.assertEqual(code, 0, got)
        os.kill(workers[0], signal.SIGSTOP)  # it keeps its connections and does not answer
        try:
            got, code = self.cluster.generate(jobs, concurrency=6)
        finally:
            os.kill(workers[0], signal.SIGCONT)
        self.assertEqual(code, 0, [r["error"] for r in got.values() if "error" in r])
        self.assert_same_answers(got, want, f"with a frozen prefill worker, seed {SEED}")
        wait_until(lambda: len(self.cluster.workers()) == 4, SEEN_TIMEOUT_S, "four workers again")
        self.cluster.wait_at_rest()


if __name__ == "__main__":
    main(__doc__)
