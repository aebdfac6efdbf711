#!/usr/bin/env python3
"""Tests prompts in parts through `baton run`: every way to write them, their errors, and what the ledger shows.

    prompt_parts_test.py --baton build/release/bin/baton

The model is a tiny one of tests/testdata. Standard library only.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

MODEL = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models" / "tiny-q8_0.gguf"
MODES = [(positions, scope) for positions in ("overlap", "sequential") for scope in ("system", "alone")]
SYSTEM, A, B, QUESTION = "Be brief. ", "the cat sat on the mat", "a letter, signed by the hand of Ann", " who signed the letter?"
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
                     ["--transport=loopback", "--prefill-kv-layout=layer-major", "--prefill-block-size=4", "--chunk-cache-share=0"]):
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
            ({**parts, "chunks": ["A"], "chunk_repair": "first:16"}, "FAILED_PRECONDITION",
             "chunk_repair first:16 is not supported"),
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
