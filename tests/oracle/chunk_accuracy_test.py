#!/usr/bin/env python3
"""Tests chunked_reference.py against plain masks over one pass, the verdicts of chunk_accuracy.py, and the engine on tiny models.

    chunk_accuracy_test.py --baton build/release/bin/baton

Needs PyPI's gguf and numpy. If this Python lacks them, continues in $BATON_ORACLE_PYTHON (scripts/oracle_python.sh makes it).
Without one, prints `not run: REASON` and exits with code 77.
"""

import argparse
import os
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    import numpy as np

    import chunk_accuracy
    from chunked_reference import MODES, REPAIRED, ChunkedReference, Prompt, chunk_begins
except ModuleNotFoundError as error:
    oracle_python = os.environ.pop("BATON_ORACLE_PYTHON", None)
    if oracle_python:
        os.execv(oracle_python, [oracle_python, *sys.argv])
    print(f"not run: {error}")
    sys.exit(77)

MODELS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models"
CLOSE = 1e-4  # float32 sums in another order
PROMPT = Prompt(system=list(range(40, 57)), chunks=[list(range(100, 133)), [7], list(range(60, 80))], question=[90, 91, 92, 93])


def masked_logits(reference, tokens, positions, visible):
    """One pass over all tokens. visible[i, j]: row i sees key j."""
    w, count, group = reference.weights, len(tokens), reference.heads // reference.kv_heads
    places = np.asarray(positions, dtype=np.float64)
    x = w["token_embd.weight"][np.asarray(tokens)]
    for layer in range(reference.layers):
        name = f"blk.{layer}."
        y = reference._norm(x, name + "attn_norm.weight")
        shape = (count, -1, reference.head_dim)
        q = reference._rotate((y @ w[name + "attn_q.weight"].T).reshape(shape), places)
        k = reference._rotate((y @ w[name + "attn_k.weight"].T).reshape(shape), places)
        v = (y @ w[name + "attn_v.weight"].T).reshape(shape)
        out = np.zeros_like(q)
        for head in range(reference.heads):
            scores = q[:, head] @ k[:, head // group].T / np.sqrt(np.float32(reference.head_dim))
            weights = np.where(visible, np.exp(scores - scores.max()), 0)
            out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ v[:, head // group]
        x = x + out.reshape(count, -1) @ w[name + "attn_output.weight"].T
        y = reference._norm(x, name + "ffn_norm.weight")
        gate, up = y @ w[name + "ffn_gate.weight"].T, y @ w[name + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[name + "ffn_down.weight"].T
    return reference._norm(x, "output_norm.weight") @ w.get("output.weight", w["token_embd.weight"]).T


def layout(prompt, positions, scope):
    """(positions, visible) of the flat prompt, where every token has one position."""
    begins, question = chunk_begins(prompt, positions)
    parts = [(0, prompt.system)] + list(zip(begins, prompt.chunks)) + [(question, prompt.question)]
    places = [begin + i for begin, part in parts for i in range(len(part))]
    part_of = np.asarray([n for n, (_, part) in enumerate(parts) for _ in part])
    slots = np.arange(len(places))
    chunk_row = (part_of > 0) & (part_of < len(parts) - 1)
    same = part_of[:, None] == part_of[None, :]
    system = (part_of == 0)[None, :] & (scope == "system")
    return places, (slots[None, :] <= slots[:, None]) & (~chunk_row[:, None] | same | system)


class ReferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.reference = ChunkedReference(str(MODELS / "tiny-f32.gguf"))

    def ordinary(self, prompt):
        self.reference.reset()
        return self.reference.logits(prompt.flat())[-len(prompt.question):]

    def assert_close(self, one, other):
        np.testing.assert_allclose(one, other, atol=CLOSE)

    def test_one_chunk_that_sees_the_system_part_is_an_ordinary_prompt(self):
        prompt = PROMPT._replace(chunks=PROMPT.chunks[:1])
        for positions in ("overlap", "sequential"):
            self.assert_close(self.reference.chunked_logits(prompt, (), positions, "system"), self.ordinary(prompt))

    def test_without_chunks_every_mode_is_an_ordinary_prompt(self):
        prompt = PROMPT._replace(chunks=[])
        for mode in MODES:
            self.assert_close(self.reference.chunked_logits(prompt, (), *mode), self.ordinary(prompt))

    def test_a_mask_over_one_pass_gives_the_same(self):
        # With scope system, sequential chunks see the system part from their place directly behind it, so a token would need two
        # positions. The other three modes need one.
        for mode in (("overlap", "system"), ("overlap", "alone"), ("sequential", "alone")):
            for prompt in (PROMPT, PROMPT._replace(system=[])):
                expected = masked_logits(self.reference, prompt.flat(), *layout(prompt, *mode))[-len(prompt.question):]
                self.assert_close(self.reference.chunked_logits(prompt, (), *mode), expected)

    def test_sequential_chunks_keep_the_frame_behind_the_system_part(self):
        # The first chunk is already there. A second chunk of equal tokens has equal K and V, at another position.
        one = PROMPT._replace(chunks=[PROMPT.chunks[0], PROMPT.chunks[0]])
        seen = []
        compute = self.reference._compute
        self.reference._compute = lambda *a: seen.append(compute(*a)) or seen[-1]
        try:
            self.reference.chunked_logits(one, (), "sequential", "system")
        finally:
            del self.reference._compute
        for layer in range(self.reference.layers):
            np.testing.assert_array_equal(seen[1][0].keys[layer], seen[2][0].keys[layer])

    def test_the_order_of_overlapping_chunks_does_not_matter(self):
        reversed_chunks = PROMPT._replace(chunks=PROMPT.chunks[::-1])
        for scope in ("system", "alone"):
            self.assert_close(self.reference.chunked_logits(PROMPT, (), "overlap", scope),
                              self.reference.chunked_logits(reversed_chunks, (), "overlap", scope))

    def test_modes_differ_from_each_other_and_from_an_ordinary_prompt(self):
        answers = [self.reference.chunked_logits(PROMPT, (), *mode) for mode in MODES] + [self.ordinary(PROMPT)]
        for i, one in enumerate(answers):
            for other in answers[:i]:
                self.assertGreater(np.abs(one - other).max(), 100 * CLOSE)

    def test_everything_repaired_at_its_place_is_an_ordinary_prompt(self):
        for repair in ("first:4096", "share:1"):
            for scope in ("system", "alone"):
                for prompt in (PROMPT, PROMPT._replace(system=[])):
                    self.assert_close(self.reference.chunked_logits(prompt, (), "sequential", scope, repair), self.ordinary(prompt))

    def test_everything_repaired_has_the_places_of_the_mode(self):
        for scope in ("system", "alone"):
            places, _ = layout(PROMPT, "overlap", scope)
            causal = np.tril(np.ones((len(places), len(places)), dtype=bool))
            expected = masked_logits(self.reference, PROMPT.flat(), places, causal)[-len(PROMPT.question):]
            for repair in ("first:4096", "share:1"):
                self.assert_close(self.reference.chunked_logits(PROMPT, (), "overlap", scope, repair), expected)

    def test_a_repair_of_nothing_is_no_repair(self):
        for mode in MODES:
            for repair in ("first:0", "share:0"):
                self.assert_close(self.reference.chunked_logits(PROMPT, (), *mode, repair),
                                  self.reference.chunked_logits(PROMPT, (), *mode))

    def test_with_scope_system_the_first_chunk_is_left_out(self):
        prompt = PROMPT._replace(chunks=PROMPT.chunks[:1])
        for repair in ("first:4", "share:0.5"):
            self.assert_close(self.reference.chunked_logits(prompt, (), "overlap", "system", repair),
                              self.reference.chunked_logits(prompt, (), "overlap", "system"))
            self.assertGreater(np.abs(self.reference.chunked_logits(prompt, (), "overlap", "alone", repair) -
                                      self.reference.chunked_logits(prompt, (), "overlap", "alone")).max(), 100 * CLOSE)

    def test_a_repair_lies_between_none_and_everything(self):
        # A share that is too small for the whole change differs from both.
        for mode in MODES:
            answers = [self.reference.chunked_logits(PROMPT, (), *mode, repair)
                       for repair in ("none", "first:4", "share:0.3", "first:4096")]
            for i, one in enumerate(answers):
                for other in answers[:i]:
                    self.assertGreater(np.abs(one - other).max(), 10 * CLOSE)

    def test_an_answer_continues_the_question(self):
        for mode in MODES:
            whole = PROMPT._replace(question=PROMPT.question + [5, 6])
            self.assert_close(self.reference.answer_logits(PROMPT, [5, 6, 7], mode),
                              self.reference.chunked_logits(whole, (), *mode)[-3:])

    def test_a_sliding_window_is_refused(self):
        with self.assertRaisesRegex(ValueError, "sliding window"):
            ChunkedReference(str(MODELS / "tiny-window-q4_0.gguf"))


class VerdictTest(unittest.TestCase):
    """The engine is played by the reference with a little noise."""

    @classmethod
    def setUpClass(cls):
        cls.reference = ChunkedReference(str(MODELS / "tiny-f32.gguf"))

    def play(self, mode_computed, seed=5):
        random = np.random.default_rng(seed)
        results = {}
        for mode in (None, *MODES):
            answer = []
            for _ in range(4):
                logits = self.reference.answer_logits(PROMPT, answer + [0], mode_computed(mode))[-1]
                answer.append(int(logits.argmax()))
            shown = chunk_accuracy.log_softmax(self.reference.answer_logits(PROMPT, answer, mode_computed(mode)))
            shown = shown + random.normal(0, 1e-4, shown.shape)
            tops = np.argsort(-shown, axis=-1)[:, :chunk_accuracy.TOP]
            results[0, mode] = {"token_ids": answer, "logprobs": [
                {"top": [{"token_id": int(t), "logprob": float(row[t])} for t in top]} for row, top in zip(shown, tops)]}
        return chunk_accuracy.verdicts(chunk_accuracy.compare(self.reference, [PROMPT], results))

    def test_an_engine_that_computes_every_mode_passes(self):
        self.assertEqual(self.play(lambda mode: mode), [])

    def test_an_engine_that_computes_another_mode_is_found(self):
        for other in (None, *MODES):
            missed = self.play(lambda mode, other=other: None if mode is None else other)
            for mode in MODES:
                named = any(line.startswith(chunk_accuracy.name_of(mode) + ":") for line in missed)
                self.assertEqual(named, mode != other, f"{mode} computed as {other}: {missed}")


class EngineTest(unittest.TestCase):
    """The engine on tiny models, whose context is 512. With f32 weights and KV it computes what the reference computes."""

    SHAPES = ((33, (100, 1, 96), 12), (0, (64, 130), 9), (64, (128,), 20), (5, (), 30))

    def figures(self, model, kv_type):
        path = MODELS / model
        prompts = chunk_accuracy.make_prompts(list(range(8, 300)) * 4, self.SHAPES)
        results = chunk_accuracy.ask(ARGUMENTS.baton, path, prompts, 6, ("--kv-blocks=256", "--threads=1", f"--kv-type={kv_type}"))
        figures = chunk_accuracy.compare(ChunkedReference(str(path)), prompts, results)
        self.assertEqual(chunk_accuracy.verdicts(figures), [])
        return figures

    def test_every_mode_is_as_accurate_as_an_ordinary_prompt(self):
        for model, kv_type in (("tiny-f32.gguf", "f32"), ("tiny-llama3-rope-q4_0.gguf", "f32"), ("tiny-ntk-rope-f16.gguf", "f32"),
                               ("tiny-yarn-rope-f16.gguf", "f32"), ("tiny-q8_0.gguf", "int8")):
            with self.subTest(model=model, kv_type=kv_type):
                self.figures(model, kv_type)

    def test_errors_are_far_smaller_than_the_distance_of_the_modes(self):
        figures = self.figures("tiny-f32.gguf", "f32")
        # Where everything is repaired at its place, the mode is the ordinary prompt.
        for mode in (*MODES, *(mode for mode in REPAIRED if mode[0] == "overlap")):
            self.assertLess(10 * figures[mode]["mean_error"], figures[mode]["apart_from_ordinary"], mode)


ARGUMENTS = argparse.Namespace()

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    ARGUMENTS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
