#!/usr/bin/env python3
"""Tests prompts in parts through `baton run`: every way to write them, their errors, and what the ledger shows.

    prompt_parts_test.py --baton build/release/bin/baton

The model is a tiny one of tests/testdata; BATON_TEST_MODEL names the real one. Standard library only.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models" / "tiny-q8_0.gguf"
MODES = [(positions, scope) for positions in ("overlap", "sequential") for scope in ("system", "alone")]
SYSTEM, A, B, QUESTION = "Be brief. ", "the cat sat on the mat", "a letter, signed by the hand of Ann", " who signed the letter?"
# A chunk sleeps in host memory soon after the last request that uses it.
SLEEPY = ("--chunk-host-mib=64", "--chunk-sleep-after-s=0", "--chunk-sleep-uses=1000")
LEDGER = ("chunks", "chunk_hits", "chunk_repaired_tokens", "chunk_pulled_bytes", "chunk_lookup_us", "chunk_compute_us",
          "chunk_place_us", "chunk_repair_us", "chunk_wake_us")
ARGUMENTS = argparse.Namespace()


def run(arguments, jobs=None):
    text = None if jobs is None else "".join(json.dumps(job) + "\n" for job in jobs)
    model = [] if "--model" in arguments else ["--model", str(MODEL)]
    return subprocess.run(
        [ARGUMENTS.baton, "run", *model, "--kv-blocks=256", "--threads=1", "--hash-logits", "--json",
         "--temperature=0", "--max-tokens=6", "--ignore-eos", *arguments],
        input=text, capture_output=True, text=True, check=False, timeout=600)


def answers(jobs, *arguments):
    """Returns {id: result}."""
    done = run([*arguments, "--jobs=-"], jobs)
    return {result["id"]: result for result in map(json.loads, done.stdout.splitlines())}


def answer(*arguments):
    done = run(arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def same(result):
    return result["prompt_token_ids"], result["token_ids"], result["logits_hash"]


def divergence(one, other):
    """Mean KL divergence of `other` from `one` in nats, as far as both answers have the same tokens. All tokens that are not among
    the top ones of both count as one."""
    sums = []
    for i, (a, b) in enumerate(zip(one["logprobs"], other["logprobs"])):
        if one["token_ids"][:i] != other["token_ids"][:i]:
            break
        tops = [{top["token_id"]: math.exp(top["logprob"]) for top in detail["top"]} for detail in (a, b)]
        pairs = [(p, tops[1][token]) for token, p in tops[0].items() if token in tops[1]]
        rest = [max(1e-9, 1 - sum(pair[side] for pair in pairs)) for side in (0, 1)]
        sums.append(sum(p * math.log(p / q) for p, q in [*pairs, rest]))
    return sum(sums) / len(sums)


class Forms(unittest.TestCase):
    """Every way to write a prompt in parts gives the same bits."""

    def test_lists_text_with_separators_and_token_ids(self):
        ids = {part: answer("--prompt", part)["prompt_token_ids"] for part in (SYSTEM, A, B, QUESTION)}
        text = "##".join((SYSTEM, A, B, QUESTION))
        for positions, scope in MODES:
            options = {"chunk_positions": positions, "chunk_scope": scope}
            got = answers([
                {"id": "text", "system": SYSTEM, "chunks": [A, B], "question": QUESTION, **options},
                {"id": "ids", "system": ids[SYSTEM], "chunks": [ids[A], B], "question": ids[QUESTION], **options},
                {"id": "split", "prompt": text, "chunk_separator": "##", **options}])
            self.assertEqual(got["text"]["prompt_token_ids"], ids[SYSTEM] + ids[A] + ids[B] + ids[QUESTION])
            self.assertEqual(same(got["ids"]), same(got["text"]))
            self.assertEqual(same(got["split"]), same(got["text"]))
            flag = answer("--prompt", text, "--chunk-separator", "##", "--chunk-positions", positions, "--chunk-scope", scope)
            self.assertEqual(same(flag), same(got["text"]))

    def test_conversations(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(A)
            file.flush()
            # --temperature and the others are given, so the model's own sampling has no effect.
            flags = answer("--system", SYSTEM, "--chunk", "@" + file.name, "--chunk", B, "--question", QUESTION)
        system = {"role": "system", "content": SYSTEM}
        got = answers([
            {"id": "list", "messages": [system, {"role": "user", "content": QUESTION, "chunks": [A, B]}]},
            {"id": "split", "messages": [system, {"role": "user", "content": f"##{A}##{B}##{QUESTION}"}], "chunk_separator": "##"}])
        self.assertEqual(same(got["list"]), same(flags))
        self.assertEqual(same(got["split"]), same(flags))
        self.assertEqual(flags["ledger"]["chunks"], 2)

    def test_a_separator_can_be_switched_off_and_must_occur(self):
        text = f"{SYSTEM}##{A}##{QUESTION}"
        got = answers([{"id": "on", "prompt": text}, {"id": "off", "prompt": text, "chunk_separator": ""},
                       {"id": "without", "prompt": A}, {"id": "listed", "system": "", "chunks": ["a##b"], "question": QUESTION}],
                      "--chunk-separator", "##")
        plain = answers([{"id": "off", "prompt": text}, {"id": "without", "prompt": A}])
        self.assertEqual(got["on"]["ledger"]["chunks"], 1)
        for name in ("off", "without"):
            self.assertEqual(same(got[name]), same(plain[name]))
            self.assertEqual([got[name]["ledger"][figure] for figure in LEDGER], [0] * len(LEDGER))
        self.assertEqual(got["listed"]["ledger"]["chunks"], 1)

    def test_one_separator_gives_two_parts(self):
        got = answers([{"id": "split", "prompt": f"{SYSTEM}##{QUESTION}", "chunk_separator": "##"},
                       {"id": "parts", "system": SYSTEM, "question": QUESTION}])
        self.assertEqual(same(got["split"]), same(got["parts"]))
        self.assertEqual(got["split"]["ledger"]["chunks"], 0)


class Answers(unittest.TestCase):
    def test_chunks_are_reused_in_another_order_and_beside_others(self):
        jobs = [{"id": "first", "system": SYSTEM, "chunks": [A, B], "question": QUESTION},
                {"id": "turned", "system": SYSTEM, "chunks": [B, A], "question": QUESTION},
                {"id": "beside", "system": SYSTEM, "chunks": [QUESTION, B], "question": QUESTION}]
        warm = answers(jobs, "--concurrency=1", "--ordered")
        for name, hits in (("first", 0), ("turned", 2), ("beside", 1)):
            self.assertEqual((warm[name]["ledger"]["chunks"], warm[name]["ledger"]["chunk_hits"]), (2, hits), name)
        for job in jobs:
            self.assertEqual(same(answers([job])[job["id"]]), same(warm[job["id"]]), "a hit has the bits of the cold path")

    def test_a_question_of_any_length_is_answered_again_after_a_full_hit(self):
        for tokens in (1, 2, 16, 17, 33):
            job = {"system": [8, 9], "chunks": [[20, 21]], "question": [40 + i for i in range(tokens)]}
            got = answers([{"id": "cold", **job}, {"id": "hit", **job}], "--concurrency=1")
            self.assertEqual(same(got["hit"]), same(got["cold"]), tokens)
            self.assertEqual(got["hit"]["ledger"]["chunk_hits"], 1)

    def test_every_cache_kind_gives_the_same_bits(self):
        jobs = [{"id": f"{i}", "system": SYSTEM * 3, "chunks": chunks, "question": QUESTION}
                for i, chunks in enumerate(([A, B], [B, A], [A, B], [B]))]
        want = {key: same(result) for key, result in answers(jobs, "--concurrency=1").items()}
        self.assertEqual(len(want), len(jobs))
        for kind in ("--cache-kind=chunk-only", "--cache-kind=naive", "--no-paged", "--no-prefix-cache"):
            for size in (1, 4, 16):
                got = answers(jobs, kind, f"--block-size={size}", "--concurrency=2")
                self.assertEqual({key: same(result) for key, result in got.items()}, want, f"{kind} {size}")
        hits = answers(jobs, "--cache-kind=chunk-only", "--concurrency=1")["2"]["ledger"]["chunk_hits"]
        self.assertEqual(hits, 2)

    def test_two_engines_give_the_bits_of_one(self):
        jobs = [{"id": f"{positions} {scope} {name}", "system": SYSTEM, "chunks": chunks, "question": QUESTION,
                 "chunk_positions": positions, "chunk_scope": scope}
                for positions, scope in MODES for name, chunks in (("first", [A, B]), ("turned", [B, A]), ("beside", [QUESTION, B]))]
        want = {key: same(result) for key, result in answers(jobs).items()}
        self.assertEqual(len(want), len(jobs))
        for ways in (["--transport=loopback"], ["--transport=tcp"], ["--transport=shm"],
                     ["--transport=loopback", "--prefill-kv-layout=layer-major", "--prefill-block-size=4", "--chunk-cache-share=0"],
                     ["--transport=tcp", *SLEEPY], ["--transport=shm", "--chunk-compress", *SLEEPY]):
            got = answers(jobs, *ways, "--concurrency=3")
            self.assertEqual({key: same(result) for key, result in got.items()}, want, ways)
        warm = answers(jobs, "--transport=loopback", "--concurrency=1", "--ordered")
        tokens = len(answer("--prompt", QUESTION)["prompt_token_ids"])
        for key, result in warm.items():
            self.assertEqual(same(result), want[key])
            self.assertGreater(result["ledger"]["kv_bytes"], 0, "the prefill engine computed it")
            if key.endswith("turned"):
                self.assertEqual(result["ledger"]["chunk_hits"], 2)
                self.assertEqual(result["ledger"]["computed_tokens"], tokens)

    def test_modes_give_different_bits(self):
        jobs = [{"id": f"{positions} {scope}", "system": SYSTEM, "chunks": [A, B], "question": QUESTION,
                 "chunk_positions": positions, "chunk_scope": scope} for positions, scope in MODES]
        hashes = {result["logits_hash"] for result in answers(jobs).values()}
        self.assertEqual(len(hashes), len(MODES))


class OrdinaryPrompts(unittest.TestCase):
    """One chunk, with system part and chunk that end at segments (kernels/NUMERICS.md §8), is an ordinary prompt."""

    def test_parts_that_end_at_segments_have_the_bits_of_the_ordinary_prompt(self):
        if (model := os.environ.get("BATON_TEST_MODEL")) is None:
            self.skipTest("not run: BATON_TEST_MODEL names no model with a context above 512 tokens")
        system, chunk, question = ([(first + 7 * i) % 40_000 for i in range(count)]
                                   for first, count in ((1_000, 256), (2_000, 256), (3_000, 20)))
        jobs = [{"id": "ordinary", "prompt_token_ids": system + chunk + question},
                {"id": "without system part", "prompt_token_ids": chunk + question},
                {"id": "of other bits", "system": system[:-1], "chunks": [system[-1:] + chunk], "question": question},
                *({"id": name, "system": system, "chunks": [chunk], "question": question, "chunk_positions": name}
                  for name in ("overlap", "sequential")),
                {"id": "alone", "system": "", "chunks": [chunk], "question": question, "chunk_scope": "alone"}]
        got = answers(jobs, "--model", model)
        for name in ("overlap", "sequential"):
            self.assertEqual(same(got[name]), same(got["ordinary"]), name)
        self.assertEqual(same(got["alone"]), same(got["without system part"]))
        # The comparison can fail: parts that end elsewhere have other bits.
        self.assertEqual(got["of other bits"]["prompt_token_ids"], got["ordinary"]["prompt_token_ids"])
        self.assertNotEqual(got["of other bits"]["logits_hash"], got["ordinary"]["logits_hash"])


class Repair(unittest.TestCase):
    """A repair changes its own answer, and nothing else changes a repaired answer."""

    REPAIRS = ("first:1", "first:16", "first:4096", "share:0.15", "share:1")

    def jobs(self, repairs=REPAIRS):
        return [{"id": f"{positions} {scope} {repair}", "system": SYSTEM, "chunks": [A, B, QUESTION, A], "question": QUESTION,
                 "chunk_positions": positions, "chunk_scope": scope, "chunk_repair": repair}
                for positions, scope in MODES for repair in repairs]

    def test_every_way_to_run_gives_the_same_bits(self):
        jobs = self.jobs()
        want = {key: same(result) for key, result in answers(jobs, "--concurrency=1", "--no-prefix-cache").items()}
        self.assertEqual(len(want), len(jobs))
        for flags in ((), ("--concurrency=20",), ("--chunk-cache-share=0",), ("--block-size=1",), ("--block-size=64", "--concurrency=5"),
                      ("--token-budget=9", "--concurrency=3"), ("--mixed-prompt-tokens=5",), ("--no-paged",), ("--device=cpu-async", "--steps-in-flight=2"),
                      ("--kv-layout=layer-major", "--max-chunk-tokens=5"), ("--transport=loopback",), SLEEPY,
                      ("--concurrency=1", "--kv-layout=layer-major", "--chunk-compress", *SLEEPY)):
            got = answers(jobs, *flags)
            self.assertEqual({key: same(result) for key, result in got.items()}, want, flags)

    def test_a_repair_is_seen_by_its_request_alone(self):
        none = self.jobs(("none",))
        want = {key: same(result) for key, result in answers(none).items()}
        for job, repaired in zip(none, self.jobs(("first:16",))):
            got = answers([{**job, "id": "before"}, repaired, {**job, "id": "after"}], "--concurrency=1")
            self.assertEqual(same(got["before"]), want[job["id"]])
            self.assertEqual(same(got["after"]), want[job["id"]])
            self.assertNotEqual(got[repaired["id"]]["logits_hash"], got["before"]["logits_hash"])
            self.assertEqual(got["after"]["ledger"]["chunk_hits"], 4)

    def test_the_ledger_counts_the_tokens_that_are_computed_again(self):
        # Chunks of 1, 30 and 100 tokens. With scope system, the first one is not repaired.
        parts = {"system": [5, 6], "chunks": [[7] * 9, [8], [9] * 30, [10] * 100], "question": [11, 12, 13]}
        for repair, system, alone in (("none", 0, 0), ("first:4", 9, 13), ("first:4096", 131, 140), ("share:0.15", 20, 21),
                                      ("share:1", 131, 140)):
            for scope, repaired in (("system", system), ("alone", alone)):
                job = {**parts, "chunk_scope": scope, "chunk_repair": repair}
                got = answers([{"id": "cold", **job}, {"id": "hit", **job}], "--concurrency=1", "--block-size=8")
                self.assertEqual(got["cold"]["ledger"]["computed_tokens"], 145 + repaired)
                self.assertEqual(got["hit"]["ledger"]["computed_tokens"], 3 + repaired, (repair, scope))
                self.assertEqual(got["hit"]["ledger"]["chunk_repaired_tokens"], repaired)
                self.assertEqual(got["hit"]["ledger"]["chunk_repair_us"] > 0, repaired > 0)

    def test_everything_repaired_at_its_place_is_close_to_the_ordinary_prompt(self):
        parts = {"system": [30 + i % 50 for i in range(40)], "question": [99, 40, 98, 41, 97],
                 "chunks": [[20 + (i * i + 7 * n) % 200 for i in range(length)] for n, length in enumerate((90, 33, 64))]}
        flat = parts["system"] + sum(parts["chunks"], []) + parts["question"]
        jobs = [{"id": f"{scope} {repair}", **parts, "chunk_scope": scope, "chunk_positions": "sequential", "chunk_repair": repair,
                 "logprobs": 20} for scope in ("system", "alone") for repair in ("none", "first:4096", "share:1")]
        got = answers([*jobs, {"id": "ordinary", "prompt_token_ids": flat, "logprobs": 20}])
        for scope in ("system", "alone"):
            for repair in ("first:4096", "share:1"):
                self.assertLess(divergence(got["ordinary"], got[f"{scope} {repair}"]), 5e-3)
            self.assertGreater(divergence(got["ordinary"], got[f"{scope} none"]), 5e-3)

    def test_more_choices_continue_the_repaired_prompt(self):
        job = {"system": SYSTEM, "chunks": [A, B], "question": QUESTION, "chunk_repair": "first:5", "temperature": 1.0, "seed": 3}
        done = run(["--jobs=-"], [{"id": "all", **job, "n": 2}, {"id": "0", **job}, {"id": "1", **job, "seed": 4}])
        got = {(result["id"], result.get("choice", 0)): same(result) for result in map(json.loads, done.stdout.splitlines())}
        self.assertEqual(got["all", 0], got["0", 0])
        self.assertEqual(got["all", 1], got["1", 0])


class Errors(unittest.TestCase):
    def test_bad_requests_are_refused_by_name_value_and_limit(self):
        parts = {"system": "S", "question": "Q"}
        cases = [
            ({**parts, "chunks": ["A", ""]}, "INVALID_ARGUMENT", "part 2 (chunks[1]) has 0 bytes"),
            ({**parts, "chunks": ["A"] * 501}, "INVALID_ARGUMENT", "501 entries; at most 500"),
            ({**parts, "chunks": [[7], [99999]]}, "INVALID_ARGUMENT", "chunks[1][0] is 99999"),
            ({**parts, "chunks": ["A"], "chunk_positions": "side"}, "INVALID_ARGUMENT", 'chunk_positions is "side"'),
            ({**parts, "chunks": [[7] * 400] * 2, "chunk_positions": "sequential"}, "INVALID_ARGUMENT",
             "part 2 (chunks[1]) reaches position"),
            ({**parts, "chunks": ["A"], "chunk_repair": "share:2"}, "INVALID_ARGUMENT", 'chunk_repair is "share:2"'),
            ({"prompt": "S####Q", "chunk_separator": "##"}, "INVALID_ARGUMENT", "part 1 (chunks[0]) has 0 bytes"),
            ({"messages": [{"role": "user", "content": "a", "chunks": ["A"]},
                           {"role": "user", "content": "b", "chunks": ["B"]}]}, "INVALID_ARGUMENT",
             "messages[0] and messages[1] have chunks"),
        ]
        got = answers([{"id": i, **job} for i, (job, _, _) in enumerate(cases)])
        for i, (_, code, said) in enumerate(cases):
            self.assertEqual(got[i]["error"]["code"], code, got[i])
            self.assertIn(said, got[i]["error"]["message"])

    def test_a_repair_of_nothing_is_no_repair(self):
        job = {"system": SYSTEM, "chunks": [A, B], "question": QUESTION}
        got = answers([{"id": repair, "chunk_repair": repair, **job} for repair in ("none", "first:0", "share:0")])
        for repair in ("first:0", "share:0"):
            self.assertEqual(same(got[repair]), same(got["none"]))

    def test_a_model_with_sliding_windows_is_refused_by_name(self):
        done = run(["--prompt=S##A##Q", "--chunk-separator=##", "--model", str(MODEL.parent / "tiny-window-q4_0.gguf")])
        self.assertEqual(done.returncode, 1)
        self.assertIn("prompt chunks need full attention in every layer", done.stdout)

    def test_many_overlapping_chunks_may_exceed_the_context(self):
        job = {"id": "a", "system": "S", "chunks": [[7 + i] * 200 for i in range(5)], "question": "Q"}
        self.assertNotIn("error", answers([job])["a"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
