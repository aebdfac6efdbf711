#!/usr/bin/env python3
"""Tests of workers with both roles, and of roles that change under load, with real processes.

  service_roles_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k flips]

Every answer must equal the answer of one process. Standard library only.
"""

import concurrent.futures
import itertools
import random
import re
import subprocess
import threading

from cluster import Cluster, wait_until
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, baton, inspect_tokens, main, read_texts, run

CLIENTS = 32
FLIPS = 100
ROLES = ("prefill", "decode", "both")
SEED = random.SystemRandom().getrandbits(31)


class RoleTest(ServiceTest):
    both = 2
    worker_arguments = ("--hash-logits", "--threads=1", "--max-chunk-tokens=64")

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, 0, 0, cls.worker_arguments, PATIENT_ROUTER,
                    up_arguments=["--both-workers", str(cls.both)]))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def jobs(self, count, rng):
        return [{"id": str(i), "prompt_token_ids": self.prompt(rng.randrange(40, 240), rng.randrange(5000)),
                 "max_tokens": rng.randrange(4, 40), "temperature": 0, "ignore_eos": True} for i in range(count)]

    def set_role(self, worker, role, *arguments):
        return subprocess.run([baton(), "set-role", "--worker", worker, "--role", role, "--router", self.cluster.router, *arguments],
                              capture_output=True, text=True, timeout=SEEN_TIMEOUT_S)

    def roles(self):
        return {name: worker["role"].removeprefix("WORKER_ROLE_").lower() for name, worker in self.cluster.workers().items()}


class FullPools(RoleTest):
    """Two workers whose pools hold only a few requests. Each prefills for the other."""
    worker_arguments = (*RoleTest.worker_arguments, "--kv-blocks=64")

    def test_two_full_workers_do_not_wait_for_each_other(self):
        jobs = self.jobs(4 * CLIENTS, random.Random(SEED))
        want, code = run(jobs)
        self.assertEqual(code, 0)
        while jobs:
            got, _ = self.cluster.generate(jobs, "--placement", "remote", "--timeout-ms", "60000", concurrency=CLIENTS)
            # If no queue has a place left, a hand-off is refused. Then the client asks again.
            refused = {name for name, result in got.items() if result.get("error", {}).get("code") == "RESOURCE_EXHAUSTED"}
            answered = {name: want[name] for name in got if name not in refused}
            self.assertTrue(answered, "no request had room")
            self.assert_same_answers(got, answered, f"two workers with both roles, seed {SEED}")
            jobs = [job for job in jobs if job["id"] in refused]
        workers = self.cluster.wait_at_rest()
        self.assertEqual({worker["role"] for worker in workers.values()}, {"WORKER_ROLE_BOTH"})


class Flips(RoleTest):
    """Three workers. At any time, some worker decodes and some worker prefills, or decode workers prefill themselves."""
    both = 3
    worker_arguments = (*RoleTest.worker_arguments, "--kv-blocks=512")

    def test_a_hundred_flips_under_load_lose_no_request(self):
        rng = random.Random(SEED)
        jobs = self.jobs(48, rng)
        want, code = run(jobs)
        self.assertEqual(code, 0)
        ended = threading.Event()

        def load():
            for turn in itertools.count():
                placement = ("auto", "local")[turn % 2]
                got, code = self.cluster.generate(jobs, "--placement", placement, concurrency=12)
                self.assertEqual(code, 0, [result["error"] for result in got.values() if "error" in result][:3])
                self.assert_same_answers(got, want, f"turn {turn} under flips, seed {SEED}")
                if ended.is_set():
                    return turn + 1
            return 0

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            turns = pool.submit(load)
            roles = self.roles()
            flips = 0
            while flips < FLIPS and not turns.done():
                name, role = rng.choice(sorted(roles)), rng.choice(ROLES)
                others = [r for other, r in roles.items() if other != name]
                if role == roles[name] or all(r == "prefill" for r in (*others, role)):
                    continue
                done = self.set_role(name, role)
                self.assertEqual((done.returncode, done.stdout), (0, f"{role}, was {roles[name]}\n"), done.stderr)
                roles[name] = role
                self.assertEqual(self.roles(), roles, "the router knows the role when set-role returns")
                flips += 1
            ended.set()
            self.assertGreater(turns.result(), 0)
        self.assertEqual(flips, FLIPS)
        self.cluster.wait_at_rest()

    def test_a_flipped_worker_keeps_its_cache_and_takes_the_other_kind_of_work(self):
        for name in self.roles():
            self.set_role(name, "decode")
        self.assertEqual(self.set_role("both-2", "prefill").returncode, 0)
        job = {"id": "it", "prompt_token_ids": self.prompt(200, 7), "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        first = self.cluster.generate([job], "--placement", "remote")[0]["it"]
        self.assertEqual(first["prefill_worker"], "both-2")
        cached = wait_until(lambda: self.cluster.wait_at_rest()["both-2"]["pool"]["cached_blocks"], SEEN_TIMEOUT_S, "cached blocks")
        self.assertEqual(self.set_role("both-2", "decode").returncode, 0)
        self.assertEqual(self.set_role("both-0", "prefill").returncode, 0)
        self.assertEqual(self.set_role("both-1", "prefill").returncode, 0)
        self.assertEqual(self.cluster.workers()["both-2"]["pool"]["cached_blocks"], cached)
        second = self.cluster.generate([job])[0]["it"]
        self.assertEqual(second["decode_worker"], "both-2")
        self.assertGreaterEqual(second["usage"]["cached_tokens"], 192 - 16)
        self.assertEqual(second["token_ids"], first["token_ids"])
        self.assertEqual(second["logits_hash"], first["logits_hash"])

    def test_wrong_uses_say_why(self):
        done = self.set_role("both-9", "decode")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean both-", done.stderr)
        done = self.set_role("both-0", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--role", done.stderr)

    def test_a_fleet_that_only_prefills_is_warned_of(self):
        for role, warned in (("prefill", True), ("decode", False), ("both", False)):
            done = subprocess.run([baton(), "set-role", "--all", "--role", role, "--router", self.cluster.router],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("no worker of this router decodes now" in done.stderr, warned, done.stderr)


class Planner(ServiceTest):
    """One prefill and three decode workers, and a load of long prompts with short answers."""
    prefill, decode = 1, 3
    worker_arguments = (*RoleTest.worker_arguments, "--kv-blocks=1024", "--no-prefix-cache")
    router_arguments = (*PATIENT_ROUTER, "--role-planner=apply", "--role-planner-period-ms=1000")

    def plan(self):
        return self.cluster.status()["role_plan"]

    def test_long_prompts_make_a_decode_worker_prefill(self):
        rng = random.Random(SEED)
        jobs = [{"id": str(i), "prompt_token_ids": [rng.randrange(3, 250) for _ in range(1200)], "max_tokens": 2, "temperature": 0,
                 "ignore_eos": True} for i in range(24)]
        want, code = run(jobs)
        self.assertEqual(code, 0)
        self.assertEqual(self.plan()["mode"], "apply")
        ended = threading.Event()

        def load():
            while not ended.is_set():
                got, code = self.cluster.generate(jobs, concurrency=12)
                self.assertEqual(code, 0, [result["error"] for result in got.values() if "error" in result][:3])
                self.assert_same_answers(got, want, f"while roles change, seed {SEED}")

        def flipped():
            status = self.cluster.status()
            found = re.fullmatch(r"(decode-\d) prefills", status["role_plan"].get("last_flip", ""))
            roles = {worker["worker_id"]: worker["role"] for worker in status["workers"]}
            return found and roles[found[1]] == "WORKER_ROLE_PREFILL"

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answers = pool.submit(load)
            try:
                wait_until(lambda: answers.done() or flipped(), 300, "a decode worker that prefills")
                table = subprocess.run([baton(), "status", "--router", self.cluster.router], capture_output=True, text=True).stdout
            finally:
                ended.set()
            answers.result()
        self.assertGreater(self.plan()["flips"], 0)
        self.assertRegex(table, r"(?m)^roles \(apply\): .*workers busy")
        self.assertIn("prefills, ", table)


if __name__ == "__main__":
    main(__doc__)
