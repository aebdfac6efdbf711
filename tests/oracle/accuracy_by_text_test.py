#!/usr/bin/env python3
"""Tests accuracy_by_text.py: its roundings, its figures, and one run on a tiny model.

    accuracy_by_text_test.py --baton build/release/bin/baton

Needs PyPI's gguf and numpy. If this Python lacks them, continues in $BATON_ORACLE_PYTHON (scripts/oracle_python.sh makes it). Without
one, prints `not run: REASON` and exits with code 77.
"""

import argparse
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    import numpy as np

    import accuracy_by_text
    import rounded_llama
    from paired_statistics import blocks_of, bootstrap
except ModuleNotFoundError as error:
    oracle_python = os.environ.pop("BATON_ORACLE_PYTHON", None)
    if oracle_python:
        os.execv(oracle_python, [oracle_python, *sys.argv])
    print(f"not run: {error}")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "testdata" / "models" / "tiny-q4_1.gguf"
TEXT = "A tiny model knows nothing, so every word surprises it. The engine must agree with the reference all the same. " * 3


def rows(seed=7, count=64, columns=96):
    return np.random.default_rng(seed).standard_normal((count, columns), dtype=np.float32) ** 3


def squared_error(x, rounded):
    return ((x - rounded).astype(np.float64) ** 2).reshape(len(x), -1, 32).sum(axis=-1)


class Roundings(unittest.TestCase):
    def test_baton_is_section_3_of_the_numerics(self):
        x = rows(count=4)
        x[0, :32] = 0
        expected = np.empty_like(x)
        for row in range(len(x)):
            for begin in range(0, x.shape[1], 32):
                amax = np.float32(0)
                for i in range(begin, begin + 32):
                    amax = max(amax, abs(x[row, i]))
                inverse = np.float32(127) / amax if amax > 0 else np.float32(0)
                for i in range(begin, begin + 32):
                    magic = np.float32(12582912)
                    q = np.float32(np.float32(np.float32(x[row, i] * inverse) + magic) - magic)
                    expected[row, i] = q * (amax / np.float32(127))
        np.testing.assert_array_equal(rounded_llama.baton(x), expected)

    def test_each_rounding_is_no_worse_than_the_one_that_it_refines(self):
        x = rows()
        error = {name: squared_error(x, f(x)) for name, f in rounded_llama.ROUNDINGS.items()}
        slack = 1e-9 + 1e-4 * error["baton"]  # float32 in sums and scales
        self.assertTrue((error["refit"] <= error["baton"] + slack).all())
        self.assertTrue((error["search"] <= error["refit"] + slack).all())
        self.assertTrue((error["none"] == 0).all())
        mean = {name: e.mean() for name, e in error.items()}
        for better, worse in [("groups_of_16", "baton"), ("baton", "groups_of_64"), ("baton", "power_of_two"),
                              ("outlier", "baton"), ("int16", "outlier"), ("baton", "stochastic"), ("baton", "f16_scale"),
                              ("worst_group", "worst_group_of_all"), ("worst_group_of_all", "baton"),
                              ("four_apart", "baton"), ("four_apart_by_shift", "baton"), ("word_apart", "baton")]:
            self.assertLess(mean[better], mean[worse], (better, worse))

    def test_a_column_that_is_always_large_gets_a_scale_of_its_own(self):
        x = rows()
        x[:, 40] = 1000
        for name in ("worst_group", "worst_group_of_all", "four_apart", "four_apart_by_shift", "word_apart"):
            rounded = rounded_llama.ROUNDINGS[name](x)
            others = np.delete(np.arange(32, 64), 8)
            of_baton = np.abs(rounded_llama.baton(x) - x)[:, others].mean()
            self.assertLess(np.abs(rounded - x)[:, others].mean(), of_baton / 5, name)
            if name.startswith("worst"):
                np.testing.assert_array_equal(rounded[:, :32], rounded_llama.baton(x)[:, :32])

    def test_a_word_apart_costs_itself_at_most_one_bit_and_the_rest_nothing(self):
        x = rows(columns=32)
        x[:8, 5] *= 1000  # at times beyond the shift
        x[8] = 0
        word = np.abs(x).argmax(axis=-1) // 4
        apart = np.arange(32)[None] // 4 == word[:, None]
        error = np.abs(rounded_llama.word_apart(x) - x)
        steps = [np.where(part, np.abs(x), 0).max(axis=-1, keepdims=True) / 127 for part in (apart, ~apart)]
        self.assertTrue((error[apart] <= (np.broadcast_to(steps[0], x.shape) * 1.001)[apart]).all())
        within = ~apart & (steps[0] <= 256 * steps[1])
        self.assertTrue((error[within] <= (np.broadcast_to(steps[1], x.shape) * 0.501)[within]).all())
        self.assertGreater(within.sum(), 28 * 50)

    def test_the_outlier_stays_as_it_was(self):
        x = rows()
        groups, rounded = x.reshape(-1, 32), rounded_llama.outlier(x).reshape(-1, 32)
        at = np.abs(groups).argmax(axis=-1)
        line = np.arange(len(groups))
        np.testing.assert_array_equal(rounded[line, at], groups[line, at])

    def test_a_scheme_names_parts_and_a_nudge(self):
        rounding, parts, factor = rounded_llama.parse("baton@attn_q+ffn_down~2")
        self.assertEqual((rounding, parts), (rounded_llama.baton, ["attn_q", "ffn_down"]))
        self.assertAlmostEqual(float(factor), 1.000002, places=7)
        self.assertEqual(rounded_llama.parse("none")[1:], (None, 1))
        with self.assertRaisesRegex(ValueError, "no rounding 'int4'"):
            rounded_llama.parse("int4")

    def test_only_the_parts_named_are_rounded(self):
        model = rounded_llama.RoundedLlama(MODEL)
        tokens = list(range(40, 80))
        model.use("none")
        exact = model.logits(tokens)
        model.use("baton@ffn_down")
        self.assertGreater(np.abs(model.logits(tokens) - exact).max(), 0)
        model.use("baton@no_such_part")
        np.testing.assert_array_equal(model.logits(tokens), exact)


class Figures(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(3)
        self.targets = random.integers(0, 50, 20)
        logits = random.standard_normal((20, 50), dtype=np.float32) * 3
        self.truth = accuracy_by_text.Distribution(logits, self.targets)
        self.other = accuracy_by_text.Distribution(logits + random.standard_normal((20, 50), dtype=np.float32), self.targets)

    def test_divergence_is_the_sum_over_the_vocabulary(self):
        for i, found in enumerate(self.truth.divergence_to(self.other)):
            p, q = ([math.exp(x - d.log_sum[i]) for x in d.logits[i].astype(np.float64)] for d in (self.truth, self.other))
            self.assertAlmostEqual(found, sum(a * math.log(a / b) for a, b in zip(p, q)), places=5)
            self.assertAlmostEqual(self.truth.nll[i], -math.log(p[self.targets[i]]), places=5)

    def test_coarse_divergence_is_a_lower_bound_that_all_tokens_reach(self):
        full = self.truth.divergence_to(self.other)
        few, all_but_one = (self.truth.coarse_divergence_to(self.other.best(n), self.targets, self.other.nll) for n in (5, 49))
        self.assertTrue((few <= full + 1e-6).all())
        self.assertTrue((few >= 0).all())
        np.testing.assert_allclose(all_but_one, full, atol=1e-5)

    def test_runs_of_the_same_text_are_joined(self):
        part = {"texts": np.array(["a", "broken off"]), "text": np.array([0, 0]), "chunk": np.array([0, 1]), "x nll": np.array([1.0, 2.0])}
        other = {**part, "texts": np.array(["b", "a"]), "text": np.array([0, 1]), "x nll": np.array([3.0, 4.0])}
        joined = accuracy_by_text.join([part, {**other, "y nll": np.zeros(2)}])
        self.assertEqual({name: list(values) for name, values in joined.items()},
                         {"texts": ["a", "b"], "text": [0, 0, 1, 0], "chunk": [0, 1, 2, 3], "x nll": [1, 2, 3, 4]})


class Errors(unittest.TestCase):
    def test_blocks_end_where_a_chunk_does(self):
        chunk = np.array([0, 0, 0, 1, 1, 2])
        self.assertEqual(blocks_of(chunk, 2), [(0, 2), (2, 3), (3, 5), (5, 6)])
        self.assertEqual(blocks_of(chunk, None), [(0, 3), (3, 5), (5, 6)])

    def test_independent_values_give_the_textbook_error(self):
        values = np.random.default_rng(5).standard_normal(6400)
        zeros = np.zeros(6400, int)
        self.assertAlmostEqual(bootstrap(values, zeros, zeros, 64, 1) * 80, 1, delta=0.2)

    def test_errors_that_hang_together_count_as_few(self):
        values = np.repeat(np.random.default_rng(5).standard_normal(100), 64)
        zeros = np.zeros(6400, int)
        self.assertAlmostEqual(bootstrap(values, zeros, zeros, 64, 1) * 10, 1, delta=0.2)

    def test_one_block_has_no_error_to_show(self):
        zeros = np.zeros(10, int)
        self.assertTrue(math.isnan(bootstrap(np.ones(10), zeros, zeros, None, 1)))


class TinyModel(unittest.TestCase):
    def test_a_run_gives_what_the_emulation_gives(self):
        with tempfile.TemporaryDirectory() as folder:
            texts = pathlib.Path(folder) / "texts"
            texts.mkdir()
            (texts / "one.txt").write_text(TEXT)
            (texts / "two.txt").write_text(TEXT[::-1])
            saved = pathlib.Path(folder) / "figures.npz"
            done = subprocess.run(
                [sys.executable, str(HERE / "accuracy_by_text.py"), "--texts", str(texts), "--baton", BATON, "--model",
                 str(MODEL), "--chunk", "64", "--schemes", "baton,none", "--save", str(saved)],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            again = subprocess.run([sys.executable, str(HERE / "accuracy_by_text.py"), "--load", str(saved)],
                                   capture_output=True, text=True, check=True)
            self.assertEqual(again.stdout, done.stdout)
            data = dict(np.load(saved))
        self.assertEqual(list(data["texts"]), ["one", "two"])
        self.assertEqual(len(data["text"]) % 63, 0)
        # The engine is nearer to its emulation than to the reference, and its emulation differs from no rounding.
        off = np.abs(data["baton nll"] - data["rounded baton nll"]).mean()
        self.assertLess(off, np.abs(data["baton nll"] - data["reference nll"]).mean() / 5)
        self.assertGreater(data["rounded baton kl"].mean(), 5 * data["rounded none kl"].mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--baton", required=True)
    arguments, rest = parser.parse_known_args()
    BATON = arguments.baton
    unittest.main(argv=[sys.argv[0], *rest])
