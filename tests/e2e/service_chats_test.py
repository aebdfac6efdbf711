#!/usr/bin/env python3
"""Tests ten-turn chats of several parallel users. A worker that lacks part of a conversation pulls it from a worker that has it.

  service_chats_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k killed]

Prints a table of every turn: prompt tokens, new tokens since the last answer, computed tokens, pulled tokens and their source.
The answers must equal those of one process without a prefix cache. Standard library only.
"""

import concurrent.futures
import itertools
import pathlib
import subprocess
import threading

from cluster import wait_until
from service_case import ARGUMENTS, BLOCK, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, main, run

USERS, TURNS, ANSWER, QUESTION = 4, 10, 40, 25
PULL_LEAST_US = 250_000  # default of --pull-least-ms: no pull is abandoned earlier


class Chat:
    """One user's conversation: its tokens so far, and the result of each turn."""

    def __init__(self, name, questions):
        self.name = name
        self.questions = questions  # the token ids of each turn's question
        self.history = []  # prompts and answers
        self.turns = []

    def job(self, turn):
        return {"id": f"{self.name}-{turn}", "prompt_token_ids": self.history + self.questions[turn],
                "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True, "cache_salt": self.name[0]}

    def take(self, turn, result):
        # The last token of an answer was never fed, so no worker has its KV.
        known = max(0, len(self.history) - 1)
        prompt = self.history + self.questions[turn]
        self.turns.append({"prompt": len(prompt), "new": len(prompt) - known, "result": result})
        self.history = prompt + result["token_ids"]


class Chats(ServiceTest):
    prefill, decode = 2, 2
    worker_arguments = ("--hash-logits", "--threads=1", "--kv-blocks=2048")

    def chats(self, letter, users=USERS):
        """Makes the users' chats. The letter sets the cache salt, so chats of different letters share no cache."""
        return [Chat(f"{letter}{user}", [self.prompt(QUESTION + 7 * (turn % 3) + (200 if turn == 0 else 0),
                                                   1000 * user + 97 * turn) for turn in range(TURNS)])
                for user in range(users)]

    def play(self, chats, *arguments):
        """Plays all chats in parallel; each user sends one turn after the other."""
        failures = []

        def user(chat):
            for turn in range(TURNS):
                job = chat.job(turn)
                results, code = self.cluster.generate([job], *arguments)
                if code != 0:
                    failures.append((job["id"], results))
                    return
                chat.take(turn, results[job["id"]])

        users = [threading.Thread(target=user, args=(chat,)) for chat in chats]
        for thread in users:
            thread.start()
        for thread in users:
            thread.join()
        self.assertEqual(failures, [])

    @staticmethod
    def table(chats, what):
        print(f"\n{what}\n turn user prompt   new computed  pulled  on         from")
        for turn in range(TURNS):
            for chat in chats:
                one = chat.turns[turn]
                result, ledger = one["result"], one["result"]["ledger"]
                print(f"{turn + 1:5} {chat.name:>4} {one['prompt']:6} {one['new']:5} {ledger['computed_tokens']:8} "
                      f"{ledger['pulled_tokens']:7}  {result.get('prefill_worker', result['decode_worker']):10} "
                      f"{result.get('pull_source', '-')}")

    # Prompt → reference answer. Shared by all tests: correct answers give the same conversations in each.
    said_by_one_process = {}

    def assert_as_one_process_says(self, chats, what):
        got = {}
        for chat in chats:
            history = []
            for turn, one in enumerate(chat.turns):
                prompt = history + chat.questions[turn]
                got[tuple(prompt)] = one["result"]
                history = prompt + one["result"]["token_ids"]
        known = Chats.said_by_one_process
        jobs = [{"id": str(i), "prompt_token_ids": list(prompt), "max_tokens": ANSWER, "temperature": 0,
                 "ignore_eos": True} for i, prompt in enumerate(got) if prompt not in known]
        results, code = run(jobs) if jobs else ({}, 0)
        self.assertEqual(code, 0)
        known.update((tuple(job["prompt_token_ids"]), results[job["id"]]) for job in jobs)
        self.assert_same_answers(got, {prompt: known[prompt] for prompt in got}, what)

    @staticmethod
    def turns_that_compute_more(chats):
        """Returns (user, turn, new, computed) of each turn that computes more than one block more or less than its new tokens."""
        turns = [(chat.name, turn, one["new"], one["result"]["ledger"]["computed_tokens"])
                 for chat in chats for turn, one in enumerate(chat.turns, 1)]
        return [turn for turn in turns if abs(turn[3] - turn[2]) > BLOCK]

    def assert_little_is_computed_again(self, chats):
        turns = [one for chat in chats for one in chat.turns]
        again = {id(one): one["result"]["ledger"]["computed_tokens"] - one["new"] for one in turns}
        more = [one for one in turns if again[id(one)] > BLOCK]
        in_time = [again[id(one)] for one in more if one["result"]["ledger"].get("pull_us", 0) < PULL_LEAST_US]
        known = sum(one["prompt"] - one["new"] for one in turns)
        print(f"{len(more)} of {len(turns)} turns computed tokens again, {len(in_time)} of them without a late pull: "
              f"{sum(in_time)} tokens of {known} known")
        self.assertLessEqual(len(in_time), len(turns) // 3, in_time)
        self.assertLessEqual(sum(in_time), known // 4, in_time)

    def assert_only_new_tokens_are_computed(self, chats):
        self.assertEqual(self.turns_that_compute_more(chats), [])


class PulledByPrefillWorkers(Chats):
    """Every turn is computed on a prefill worker. A decode worker has the previous turns."""
    router_arguments = ("--pull-weight=0", "--pull-least-ms=30000", *PATIENT_ROUTER)

    def test_ten_turns_compute_only_new_tokens(self):
        chats = self.chats("r")
        self.play(chats, "--placement", "remote")
        self.table(chats, "prefill workers pull from decode workers")
        self.assert_only_new_tokens_are_computed(chats)
        pulled = [one["result"] for chat in chats for one in chat.turns if "pull_source" in one["result"]]
        self.assertTrue(any(result["pull_source"].startswith("decode") for result in pulled))
        for result in pulled:
            self.assertGreater(result["ledger"]["pulled_tokens"], 0)
            self.assertGreater(result["ledger"]["pull_us"], 0)
            self.assertNotEqual(result["pull_source"], result["prefill_worker"])
        self.assert_as_one_process_says(chats, "pulled by prefill workers")
        self.cluster.wait_at_rest()

    def test_a_moved_conversation_is_pulled_by_the_decode_worker_that_computes_it(self):
        chats = self.chats("l")
        self.play(chats, "--placement", "local")
        self.table(chats, "decode workers compute, and pull from each other")
        self.assert_only_new_tokens_are_computed(chats)
        self.assert_as_one_process_says(chats, "pulled by decode workers")
        self.cluster.wait_at_rest()


class AsRouted(Chats):
    """The default configuration: the router chooses the worker of each turn, and every answer must be right.

    A turn computes its new tokens. With one user on the fleet it never computes more, on a busy machine too. With several users
    it may compute more for two reasons:
    - A pull came too late. The ledger shows this; it depends on the load of the machine.
    - The router estimated that a pull costs more than computing. This may happen in less than a third of the turns, and for less
      than a quarter of the tokens that some worker had.
    """

    def test_ten_turns_of_one_user_compute_only_new_tokens(self):
        chats = self.chats("o", users=1)
        self.play(chats)
        self.table(chats, "as routed, one user")
        self.assert_only_new_tokens_are_computed(chats)
        self.assert_as_one_process_says(chats, "one user, as routed")
        self.cluster.wait_at_rest()

    def test_ten_turns_with_the_default_routing(self):
        chats = self.chats("a")
        self.play(chats)
        self.table(chats, "as routed")
        self.assert_little_is_computed_again(chats)
        self.assert_as_one_process_says(chats, "as routed")
        self.cluster.wait_at_rest()


class LosingASource(Chats):
    """Two of three decode workers are killed and replaced repeatedly, while prefill workers pull from them."""
    prefill, decode = 2, 1
    router_arguments = ("--pull-weight=0", "--routing-policy=round-robin")  # so that each turn goes to another worker

    def start_worker(self, name):
        worker = subprocess.Popen(
            [str(pathlib.Path(ARGUMENTS.bin) / "baton-decode-worker"), "--model", ARGUMENTS.model,
             "--router", self.cluster.router, "--worker-id", name, *self.worker_arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (worker.kill(), worker.wait()))
        return worker

    def kill_holders(self, chats_are_over):
        """Kills any of its two workers that has cached blocks, and starts another. Returns the number of killed workers."""
        names = (f"late-{i}" for i in itertools.count())
        late = {name: self.start_worker(name) for name in itertools.islice(names, 2)}
        for name in late:
            wait_until(lambda: name in self.cluster.workers(), SEEN_TIMEOUT_S, f"the worker {name}")
        self.late_are_there.set()
        killed = 0
        while not chats_are_over.wait(0.5):
            workers = self.cluster.workers()
            for name in [name for name in late if name in workers and workers[name]["pool"]["cached_blocks"] > 0]:
                late[name].kill()
                late[name].wait()
                del late[name]
                killed += 1
                another = next(names)
                late[another] = self.start_worker(another)
        return killed

    def test_every_answer_is_right_when_sources_are_killed(self):
        self.late_are_there, chats_are_over = threading.Event(), threading.Event()
        chats = self.chats("k")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            killer = pool.submit(self.kill_holders, chats_are_over)
            try:
                self.assertTrue(self.late_are_there.wait(SEEN_TIMEOUT_S))
                self.play(chats, "--placement", "remote")
            finally:
                chats_are_over.set()
            killed = killer.result()
        self.table(chats, f"sources killed {killed} times")
        self.assertGreater(killed, 0)
        self.assert_as_one_process_says(chats, "with killed sources")
        self.cluster.wait_at_rest()


if __name__ == "__main__":
    main(__doc__)
