#!/usr/bin/env python3
"""Tests several choices of one prompt on the real service. Each choice equals the answer of a single request, and the choices share
the prompt's blocks.

  service_choices_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k killed]

Standard library only.
"""

import json
import re
import signal
import subprocess

from cluster import wait_until
from fleet import Fleet
from service_case import ARGUMENTS, BLOCK, CHUNK, SEEN_TIMEOUT_S, ServiceTest, baton, inspect_tokens, main, read_texts, run


def several(job, n):
    """Returns the job for n choices, and a list of n single jobs that must give the same answers."""
    return job | {"n": n}, [job | {"id": f"{job['id']}/{i}", "seed": job["seed"] + i}
                            for i in range(n)]


class ChoicesCase(ServiceTest):
    # One thread, so that the work also takes long enough to observe on a large machine.
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=256", "--threads=1")

    def job(self, length, **fields):
        return {"id": "it", "prompt_token_ids": self.prompt(length), "max_tokens": 20, "seed": 70,
                "temperature": 1.1, "frequency_penalty": 0.3, "stop": [" and"], **fields}

    def long_choices(self, length, n):
        job = self.job(length, n=n, max_tokens=400, ignore_eos=True, stop=["never to be said"])
        client = subprocess.Popen(self.cluster.generate_command("--jobs", "-"), text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        client.stdin.write(json.dumps(job) + "\n")
        client.stdin.close()
        self.addCleanup(client.stdout.close)
        return client


class Choices(ChoicesCase):
    def test_choices_equal_requests_with_the_next_seeds(self):
        # Prompts that end inside a block, at the end of a block, and after several chunks.
        for length in (BLOCK - 3, 2 * BLOCK, 2 * CHUNK + 5):
            job, alone = several(self.job(length), 4)
            want, code = run(alone)
            self.assertEqual(code, 0)
            self.assertEqual(len({tuple(result["token_ids"]) for result in want.values()}), 4)
            self.assert_same_answers(run([job])[0], want, "baton run")
            for placement in ("remote", "local"):
                salted = job | {"cache_salt": f"{placement}{length}"}
                got, code = self.cluster.generate([salted], "--placement", placement)
                self.assertEqual(code, 0)
                self.assert_same_answers(got, want, f"{placement}, {length} tokens")
                for i, name in enumerate(sorted(got)):
                    self.check_figures(got[name], want[name], i, length, placement)
        self.cluster.wait_at_rest()

    def check_figures(self, result, want, choice, length, placement):
        self.assertEqual(result["choice"], choice)
        for field in ("prompt_tokens", "completion_tokens"):
            self.assertEqual(result["usage"][field], want["usage"][field])
        self.assertEqual(result["ledger"]["computed_tokens"], length)
        self.assertEqual(result.get("prefill_worker"), "prefill-0" if placement == "remote" else None)

    def test_a_killed_client_frees_the_blocks_of_all(self):
        client = self.long_choices(50, 3)
        self.wait_for_work("DECODE")
        client.kill()
        client.wait()
        self.cluster.wait_at_rest()

    def test_a_number_out_of_range_is_refused_with_the_range(self):
        for n in (0, -1, 17):
            error = self.refusal(self.job(5, n=n))
            self.assertEqual(error["code"], "INVALID_ARGUMENT")
            self.assertIn(f"is {n}; [1, 16]", error["message"])

    def test_text_output_has_a_title_above_each_choice(self):
        command = [argument for argument in self.cluster.generate_command() if argument != "--json"]
        done = subprocess.run([*command, "--prompt", "Once upon", "--n", "2", "--max-tokens", "3"],
                              capture_output=True, text=True, timeout=SEEN_TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?s)^=== choice 0 \(\w+\) ===\n.*\n=== choice 1 \(\w+\) ===\n")


class Sharing(ChoicesCase):
    """A class of its own, so that the workers have computed nothing else."""

    def test_they_share_the_prompts_blocks_and_a_cancelled_request_leaves_nothing(self):
        client = self.long_choices(60 * BLOCK, 4)

        address = self.cluster.workers()["decode-0"]["address"]

        def owned_by_four():
            shown = subprocess.run([baton(), "inspect", "worker", "--worker", address], capture_output=True, text=True,
                                   check=True).stdout
            four = len(re.findall(r"(?m)^sequence \d+ .*: running, ", shown)) == 4
            return int(re.search(r"(\d+) owned", shown).group(1)) if four else None
        # The worker itself is asked, because its answer may be over before the status shows it.
        owned = wait_until(owned_by_four, SEEN_TIMEOUT_S, "four sequences in the batch")
        # Without sharing they would hold at least 240 blocks.
        self.assertGreaterEqual(owned, 60)
        self.assertLess(owned, 60 + 4 * 26)
        client.send_signal(signal.SIGINT)
        client.wait()
        after = self.cluster.wait_at_rest()
        self.assertLessEqual(sum(int(worker["prefill_tokens"]) for worker in after.values()), 60 * BLOCK)


class LosingADecodeWorker(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.fleet = cls.enterClassContext(
            Fleet(ARGUMENTS.bin, ARGUMENTS.model, {"prefill": 1, "decode": 2},
                  ("--kv-blocks=512", "--threads=1", "--hash-logits")))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def test_choices_continue_on_another_worker_each_at_its_own_position(self):
        fields = {"max_tokens": 150, "seed": 5, "temperature": 1.1, "ignore_eos": True,
                  "frequency_penalty": 0.4, "logprobs": 1}
        jobs = [{"id": f"{i}", "prompt_token_ids": self.prompt(45 + 9 * i, 60 * i), **fields} for i in range(4)]
        # The first choice of each job ends before the worker is lost. The other choices end long afterwards.
        firsts, _ = run(jobs)
        pairs = [several(job | {"stop": [firsts[job["id"]]["text"][20:30]]}, 3) for job in jobs]
        want, _ = run([job for _, alone in pairs for job in alone])
        for placement in ("remote", "local"):
            strike = self.fleet.strike_at("Decode<", 60, lambda worker, _: worker.lose())
            got, _ = self.fleet.generate([job | {"cache_salt": placement} for job, _ in pairs],
                                         "--placement", placement, concurrency=len(pairs))
            self.assertTrue(strike.struck.is_set())
            self.assert_same_answers(got, want, placement)
            self.assertIn(1, [result["ledger"]["resumes"] for result in got.values()])
            for name, result in got.items():
                self.assertEqual(result["usage"]["completion_tokens"], len(result["token_ids"]))
                self.assertEqual(len(result["logprobs"]), len(result["token_ids"]), name)
            self.fleet.make_whole()
            self.fleet.wait_at_rest()


if __name__ == "__main__":
    main(__doc__)
