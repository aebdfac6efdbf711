#!/usr/bin/env python3
"""Tests prompts in parts through router and workers: the answers and hashes over all logits must equal those of `baton run`.

  service_chunks_test.py --bin build/release/bin [unittest's own arguments, such as -k Form]

The model is tests/testdata/models/tiny-q8_0.gguf. Standard library only.
"""

import json
import os
import pathlib
import signal
import subprocess
import tempfile

from cluster import children_of, wait_until
from fleet import Fleet
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, baton, main, run

MODELS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models"
MODES = [{"chunk_positions": positions, "chunk_scope": scope}
         for positions in ("overlap", "sequential") for scope in ("system", "alone")]
SYSTEM = "Be brief. Name your source. "
CHUNKS = ["the cat sat on the mat and looked at the hat", "a letter, signed by the hand of Ann, in May",
          "nobody came", "the last of all the letters is a z"]
QUESTION = " who signed the letter?"
PARTS = {"system": SYSTEM, "chunks": CHUNKS, "question": QUESTION}
GREEDY = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
LEDGER = ("chunks", "chunk_hits", "chunk_repaired_tokens", "chunk_pulled_bytes", "chunk_lookup_us", "chunk_compute_us",
          "chunk_place_us", "chunk_repair_us", "chunk_wake_us")


class Chunks(ServiceTest):
    """Base of the test cases; has no tests."""
    prefill, decode = 0, 2
    worker_arguments = ("--hash-logits", "--max-chunk-tokens=32", "--block-size=8", "--kv-blocks=512", "--threads=1")
    model = "tiny-q8_0.gguf"

    @classmethod
    def setUpClass(cls):
        ARGUMENTS.model = str(MODELS / cls.model)
        super().setUpClass()

    def expect_answers_of_run(self, jobs, *arguments, concurrency=1):
        """Returns the results of the service."""
        want, code = run(jobs)
        self.assertEqual(code, 0, want)
        got, _ = self.cluster.generate(jobs, *arguments, concurrency=concurrency)
        self.assertEqual(got.keys(), want.keys())
        self.assert_same_answers(got, want, "the service")
        return got

    def wait_for_index(self):
        """Waits until the router's index has at least a unit for each chunk of each worker, and none of an empty worker. The index also
        has units of the parts before and behind the chunks."""
        def listed(worker):
            done = subprocess.run([baton(), "chunks", "--worker", worker["address"], "--json"], capture_output=True, text=True,
                                  check=True)
            return len(json.loads(done.stdout)["chunks"])

        def alike():
            status = self.cluster.status()
            units = {worker["worker_id"]: worker["units"] for worker in status["index"]["workers"] if worker["followed"]}
            chunks = {worker["worker_id"]: listed(worker) for worker in status["workers"]}
            return units.keys() == chunks.keys() and all(
                units[name] >= count if count > 0 else units[name] == 0 for name, count in chunks.items())
        wait_until(alike, SEEN_TIMEOUT_S, "the index and the chunks alike")

    def ids(self, text):
        lines = json.dumps({"text": text}) + "\n"
        done = subprocess.run([baton(), "inspect", "tokens", "--model", ARGUMENTS.model], input=lines, capture_output=True,
                              text=True, check=True)
        return json.loads(done.stdout)["ids"]


class EveryForm(Chunks):
    def test_every_form_and_mode_has_the_answers_of_one_process(self):
        text = "##".join((SYSTEM, *CHUNKS, QUESTION))
        content = "##".join(("", *CHUNKS, QUESTION))
        system = {"role": "system", "content": SYSTEM}
        forms = {
            "parts": PARTS,
            "ids": PARTS | {"chunks": [self.ids(chunk) for chunk in CHUNKS]},
            "separator": {"prompt": text, "chunk_separator": "##"},
            "messages": {"messages": [system, {"role": "user", "content": QUESTION, "chunks": CHUNKS}]},
            "split content": {"messages": [system, {"role": "user", "content": content}], "chunk_separator": "##"},
            "no system part": PARTS | {"system": ""},
            "two parts": {"system": SYSTEM, "question": QUESTION},
            "one part": {"question": QUESTION},
            "a chunk twice": PARTS | {"chunks": [CHUNKS[0], CHUNKS[1], CHUNKS[0]]},
        }
        jobs = [{"id": f"{name} {mode['chunk_positions']} {mode['chunk_scope']}", **form, **mode, **GREEDY}
                for name, form in forms.items() for mode in MODES]
        self.expect_answers_of_run(jobs)
        self.cluster.wait_at_rest()

    def test_flags_of_the_command_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(CHUNKS[0])
            file.flush()
            flags = ["--system", SYSTEM, "--chunk", "@" + file.name, "--chunk", CHUNKS[1], "--question", QUESTION,
                     "--chunk-scope", "alone", "--chunk-positions", "sequential", "--temperature=0", "--max-tokens=8", "--json"]
            got = subprocess.run([baton(), "generate", "--router", self.cluster.router, *flags], capture_output=True, text=True,
                                 check=False)
            want = subprocess.run([baton(), "run", "--model", ARGUMENTS.model, "--hash-logits", *flags], capture_output=True,
                                  text=True, check=True)
        self.assertEqual(got.returncode, 0, got.stderr)
        got, want = json.loads(got.stdout), json.loads(want.stdout)
        for field in ("prompt_token_ids", "token_ids", "logits_hash", "finish_reason"):
            self.assertEqual(got[field], want[field])
        self.assertEqual(got["ledger"]["chunks"], 2)

    def test_choices_sampling_and_log_probabilities(self):
        jobs = [{"id": f"{i}", **PARTS, **mode, "n": 3, "seed": 7 + i, "temperature": 0.9, "top_k": 40, "logprobs": 2,
                 "repetition_penalty": 1.2, "max_tokens": 12, "ignore_eos": True} for i, mode in enumerate(MODES)]
        lines = "".join(json.dumps(job) + "\n" for job in jobs)

        def choices(command):
            done = subprocess.run([*command, "--jobs", "-", "--json"], input=lines, capture_output=True, text=True, check=True)
            return {(result["id"], result["choice"]): [result[field] for field in ("token_ids", "text", "logits_hash", "logprobs")]
                    for result in map(json.loads, done.stdout.splitlines())}
        got = choices([baton(), "generate", "--router", self.cluster.router])
        self.assertEqual(got, choices([baton(), "run", "--model", ARGUMENTS.model, "--hash-logits"]))
        self.assertEqual(len(got), 3 * len(jobs))

    def test_many_requests_at_a_time(self):
        jobs = [{"id": f"{i}", "system": SYSTEM, "chunks": CHUNKS[i % 4:] + CHUNKS[:i % 3], "question": f"{QUESTION} {i % 5}",
                 **MODES[i % 4], **GREEDY} for i in range(24)]
        self.expect_answers_of_run(jobs, concurrency=12)
        self.cluster.wait_at_rest()

    def test_an_answer_without_a_limit_ends_at_the_contexts_last_position(self):
        # Two long chunks share positions, so the prompt has more tokens than positions.
        job = {"id": "it", **PARTS, "chunks": [[7] * 300, [9] * 280], "temperature": 0, "ignore_eos": True}
        result = self.expect_answers_of_run([job])["it"]
        self.assertEqual(result["finish_reason"], "length")
        self.assertGreater(result["usage"]["prompt_tokens"], 580)


class Caching(Chunks):
    def test_cached_chunks_attract_requests_and_a_cleared_cache_does_not(self):
        jobs = [{"id": f"{i}", "system": SYSTEM, "chunks": [f"{CHUNKS[0]} {i}", f"{CHUNKS[1]} {i}"], "question": QUESTION, **GREEDY}
                for i in range(6)]
        cold = self.expect_answers_of_run(jobs, concurrency=len(jobs))
        self.assertEqual({result["ledger"]["chunk_hits"] for result in cold.values()}, {0})
        self.assertEqual({result["ledger"]["chunks"] for result in cold.values()}, {2})
        self.assertEqual(len({result["decode_worker"] for result in cold.values()}), 2, "both workers have some of the chunks")

        self.wait_for_index()
        question = len(self.ids(QUESTION))
        for name, result in self.expect_answers_of_run(
                [job | {"chunks": job["chunks"][::-1]} for job in jobs]).items():
            self.assertEqual(result["decode_worker"], cold[name]["decode_worker"])
            self.assertEqual(result["ledger"]["chunk_hits"], 2)
            self.assertEqual(result["ledger"]["computed_tokens"], question)
            self.assertLessEqual(set(LEDGER), set(result["ledger"]))

        # Heartbeats carry the figures.
        def caches():
            return [worker["pool"]["chunk_cache"] for worker in self.cluster.workers().values()]
        def shown():
            found = caches()
            return sum(int(cache["hits"]) for cache in found) >= 12 and all(
                int(cache[figure]) > 0 for cache in found
                for figure in ("budget_blocks", "used_blocks", "entries", "lookups", "misses"))
        wait_until(shown, SEEN_TIMEOUT_S, "the figures of both workers in the status")
        table = subprocess.run([baton(), "status", "--router", self.cluster.router], capture_output=True, text=True, check=True)
        self.assertIn("prompt chunks: ", table.stdout)

        for worker in self.cluster.workers().values():
            subprocess.run([baton(), "clear-cache", "--worker", worker["address"]], capture_output=True, check=True)
        for result in self.expect_answers_of_run(jobs[:2]).values():
            self.assertEqual(result["ledger"]["chunk_hits"], 0)

    def test_an_operator_lists_and_clears_cached_chunks(self):
        workers = [worker["address"] for worker in self.cluster.workers().values()]

        def command(*arguments):
            return [subprocess.run([baton(), *arguments, "--worker", worker], capture_output=True, text=True, check=True).stdout
                    for worker in workers]

        def listed():
            return [chunk for shown in command("chunks", "--json") for chunk in json.loads(shown)["chunks"]]

        def ask(tenant):
            job = {"id": "it", **PARTS, "system": [7] * system, "tenant": tenant, **GREEDY}
            return self.expect_answers_of_run([job])["it"]["ledger"]["chunk_hits"]
        system = 13  # with blocks of 8, the last block is part-full; it is an entry
        command("clear-cache")
        self.assertEqual(listed(), [])
        tenants = ("one", "two")
        self.assertEqual([ask(tenant) for tenant in tenants], [0, 0], "tenants share no chunks")
        of_one = sorted([system] + [len(self.ids(chunk)) for chunk in CHUNKS])
        self.assertEqual(sorted(chunk["tokens"] for chunk in listed()), sorted(2 * of_one))
        self.assertEqual(len({chunk["key"] for chunk in listed()}), 2 * len(of_one))
        self.assertEqual({chunk["references"] for chunk in listed()}, {0})
        self.assertEqual({chunk["position"] for chunk in listed()}, {0, system}, "the system part, and what stands behind it")
        self.assertRegex("".join(command("chunks")), rf"\b{len(self.ids(CHUNKS[0]))}\b")
        command("clear-cache", "--chunks", "--tenant", "one")
        self.assertEqual(sorted(chunk["tokens"] for chunk in listed()), of_one)
        self.assertEqual(ask("two"), len(CHUNKS))
        self.assertEqual(max(chunk["uses"] for chunk in listed()), 1)
        self.assertEqual(ask("one"), 0)
        command("clear-cache", "--chunks")
        self.assertEqual(listed(), [])
        self.assertEqual(ask("two"), 0)

    def test_the_next_turn_of_a_conversation_computes_only_its_new_tokens(self):
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION, "chunks": CHUNKS}]
        first = self.expect_answers_of_run([{"id": "it", "messages": messages, "cache_salt": "turns", **GREEDY}])["it"]
        self.cluster.wait_at_rest()
        messages += [{"role": "assistant", "content": first["text"]}, {"role": "user", "content": "And when?"}]
        second = self.expect_answers_of_run([{"id": "it", "messages": messages, "cache_salt": "turns", **GREEDY}])["it"]
        self.assertEqual(second["decode_worker"], first["decode_worker"])
        self.assertEqual(second["ledger"]["chunk_hits"], len(CHUNKS))
        new = second["usage"]["prompt_tokens"] - first["usage"]["prompt_tokens"]
        # A part-full block of the first turn is computed again.
        self.assertLess(second["ledger"]["computed_tokens"], new + 8 + 1)

    def test_another_tenant_finds_no_chunk(self):
        job = {"id": "it", **PARTS, "tenant": "one", **GREEDY}
        self.expect_answers_of_run([job])
        self.cluster.wait_at_rest()
        theirs = self.expect_answers_of_run([job | {"tenant": "two"}])["it"]
        self.assertEqual(theirs["ledger"]["chunk_hits"], 0)
        ours = self.expect_answers_of_run([job])["it"]
        self.assertEqual(ours["ledger"]["chunk_hits"], len(CHUNKS))


class HandingOver(Chunks):
    prefill, decode = 2, 2
    # A pull costs nothing, so every chunk that another worker has is pulled.
    router_arguments = (*PATIENT_ROUTER, "--pull-weight=0", "--pull-least-ms=60000")

    def jobs(self, **fields):
        return [{"id": f"{i}", "system": SYSTEM, "chunks": CHUNKS[i % 4:] + CHUNKS[:i % 3], "question": f"{QUESTION} {i % 5}",
                 **MODES[i % 4], **GREEDY, **fields} for i in range(16)]

    def test_prefill_workers_hand_over_in_every_mode(self):
        jobs = self.jobs(cache_salt="hand-over")
        for _ in range(2):
            for result in self.expect_answers_of_run(jobs, "--placement", "remote").values():
                self.assertIn("prefill-", result["prefill_worker"])
        self.expect_answers_of_run(self.jobs(cache_salt="at once"), "--placement", "remote", concurrency=8)
        self.cluster.wait_at_rest()

    def test_workers_pull_the_chunks_that_another_worker_has(self):
        jobs = self.jobs(cache_salt="pulls")
        pulled = 0
        for placement in ("local", "remote", "local", "remote"):
            for result in self.expect_answers_of_run(jobs, "--placement", placement, concurrency=4).values():
                self.assertGreaterEqual(result["ledger"]["chunk_pulled_bytes"], 0)
                pulled += result["ledger"]["chunk_pulled_bytes"] > 0
        self.assertGreater(pulled, 0)
        self.cluster.wait_at_rest()


class LosingAWorker(Chunks):
    @classmethod
    def setUpClass(cls):
        ARGUMENTS.model = str(MODELS / cls.model)
        cls.cluster = cls.fleet = cls.enterClassContext(
            Fleet(ARGUMENTS.bin, ARGUMENTS.model, {"decode": 2}, cls.worker_arguments, PATIENT_ROUTER))

    def test_another_worker_continues_a_killed_workers_answers(self):
        # No job finds a chunk of another.
        jobs = [{"id": f"{i}", **PARTS, **MODES[i % 4], "cache_salt": f"{i}", "max_tokens": 250, "ignore_eos": True,
                 **({"temperature": 0} if i % 2 == 0 else {"temperature": 1.1, "seed": i, "frequency_penalty": 0.4})}
                for i in range(8)]
        want, _ = run(jobs)
        strike = self.fleet.strike_at("Decode<", 12, lambda worker, _: worker.lose())
        got, _ = self.fleet.generate(jobs, concurrency=len(jobs))
        self.assertTrue(strike.struck.is_set())
        self.assert_same_answers(got, want, "after the kill")
        self.assertTrue(any(result["ledger"]["resumes"] == 1 for result in got.values()))
        self.fleet.make_whole()
        self.cluster.wait_at_rest()


class RestartingAWorker(Chunks):
    decode = 1

    def test_a_restarted_worker_computes_its_chunks_again(self):
        job = {"id": "it", **PARTS, **GREEDY}
        self.expect_answers_of_run([job])
        self.assertEqual(self.expect_answers_of_run([job])["it"]["ledger"]["chunk_hits"], len(CHUNKS))
        before = self.cluster.workers()["decode-0"]["epoch"]
        pid = next(pid for pid, name in children_of(self.cluster.process.pid).items() if name == "baton-decode-wo")
        os.kill(pid, signal.SIGKILL)

        def is_back():
            worker = self.cluster.workers().get("decode-0")
            return worker is not None and worker["epoch"] != before and self.cluster.status()["ready"]
        wait_until(is_back, SEEN_TIMEOUT_S, "the restarted worker")
        self.assertEqual(self.expect_answers_of_run([job])["it"]["ledger"]["chunk_hits"], 0)


class Errors(Chunks):
    decode = 1

    def test_bad_requests_get_the_errors_of_one_process(self):
        parts = {"system": "S", "question": "Q"}
        jobs = [{"id": f"{i}", **job} for i, job in enumerate([
            {**parts, "chunks": ["A", ""]},
            {**parts, "chunks": ["A"] * 501},
            {**parts, "chunks": [[7], [99999]]},
            {**parts, "chunks": [[7] * 400] * 2, "chunk_positions": "sequential"},
            {**parts, "chunks": ["A"], "chunk_positions": "side"},
            {**parts, "chunks": ["A"], "chunk_repair": "share:2"},
            {"prompt": "S####Q", "chunk_separator": "##"},
            {"prompt": "S##A##", "chunk_separator": "##"},
            {"messages": [{"role": "user", "content": "a", "chunks": ["A"]}, {"role": "user", "content": "b", "chunks": ["B"]}]},
        ])]
        want, _ = run(jobs)
        got, code = self.cluster.generate(jobs)
        self.assertEqual(code, 1)
        for job in jobs:
            self.assertEqual(got[job["id"]]["error"], want[job["id"]]["error"])
            self.assertEqual(got[job["id"]]["error"]["code"], "INVALID_ARGUMENT")

    def test_parts_that_no_pool_can_hold_are_refused_with_the_numbers(self):
        job = {**PARTS, "chunks": [[i + 10] * 400 for i in range(12)]}  # 4,800 tokens; the pool has 4,096
        error = self.refusal(job)
        self.assertEqual(error["code"], "INVALID_ARGUMENT")
        self.assertRegex(error["message"], "parts and its answer take 4[0-9]{3} tokens, because each part takes whole blocks of [0-9]+; a sequence on this worker has at most 4096")
        self.cluster.wait_at_rest()

    def test_a_deadline_ends_the_request(self):
        client = subprocess.Popen(
            self.cluster.generate_command("--system", SYSTEM, "--chunk", CHUNKS[0], "--question", QUESTION, "--ignore-eos",
                                          "--max-tokens=450", "--timeout-ms=5"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        output, _ = client.communicate(timeout=60)
        self.assertEqual(json.loads(output)["error"]["code"], "DEADLINE_EXCEEDED")
        self.cluster.wait_at_rest()


class AModelWithWindows(Chunks):
    decode = 1
    model = "tiny-window-q4_0.gguf"

    def test_its_workers_reason_reaches_the_client(self):
        # Until then, other workers may register.
        error = wait_until(lambda: one if (one := self.refusal(PARTS))["code"] != "UNAVAILABLE" else None, SEEN_TIMEOUT_S, "the reason")
        self.assertEqual(error["code"], "FAILED_PRECONDITION")
        self.assertIn("prompt chunks need full attention in every layer", error["message"])
        self.assertIn("decode-0", error["message"])


if __name__ == "__main__":
    main(__doc__)
