#!/usr/bin/env python3
"""The cost of exactness that bench/exactness_cost.py computes."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import exactness_cost


def figure(name, value, unit="us", **more):
    return name, {"name": name, "value": value, "unit": unit, "limit": None, "ratio": None} | more


def products(tokens, ours, library):
    return dict(figure(f"exactness.{name}.tokens_{tokens}", ours / library, "times", ours_us=ours, library_us=library)
                for name in exactness_cost.PRODUCTS)


class Costs(unittest.TestCase):
    def costs(self, figures):
        return {figure["name"]: figure for figure in exactness_cost.costs(figures)}

    def test_a_step_is_the_sum_of_its_ops_and_not_the_mean_of_their_ratios(self):
        figures = products(1, 10, 8) | dict([figure("attention.1x1024.blocks_of_64", 4 * 1024 * 8 * 128 / 60, "MB/s"),
                                             figure("peer.attention.1x1024", 48)])
        found = self.costs(figures)
        self.assertAlmostEqual(found["exactness_cost.step.tokens_1"]["value"], (40 + 60) / (32 + 48))
        self.assertAlmostEqual(found["exactness_cost.attention.tokens_1"]["value"], 60 / 48)
        self.assertAlmostEqual(found["exactness_cost.step.tokens_1"]["ratio"], 1.25 / 1.05)

    def test_the_faster_of_two_peers_is_the_free_choice(self):
        figures = products(8, 10, 9) | dict([figure("peer.matmul.BF16.qkv.tokens_8", 5)])
        self.assertEqual(exactness_cost.product_times(figures, "qkv", 8), (10, 5, "PyTorch"))
        self.assertEqual(exactness_cost.product_times(figures, "out", 8), (10, 9, "cuBLASLt"))

    def test_without_cublaslt_the_other_measurements_count(self):
        figures = dict([figure("matmul.BF16.qkv.tokens_8", 12), figure("peer.matmul.BF16.qkv.tokens_8", 10)])
        self.assertEqual(exactness_cost.product_times(figures, "qkv", 8), (12, 10, "PyTorch"))
        self.assertIsNone(exactness_cost.product_times(figures, "out", 8))

    def test_a_chunk_has_the_attention_of_its_prefill(self):
        figures = products(2048, 100, 100) | dict([figure("prefill.2048", 400, "TFLOP/s"), figure("peer.prefill.2048", 500, "TFLOP/s")])
        self.assertAlmostEqual(self.costs(figures)["exactness_cost.attention.tokens_2048"]["value"], 1.25)

    def test_a_step_with_a_missing_op_has_no_figure(self):
        figures = products(1, 10, 8)
        self.assertEqual(self.costs(figures), {})
        del figures["exactness.out.tokens_1"]
        figures |= dict([figure("attention.1x1024.blocks_of_64", 1e6, "MB/s"), figure("peer.attention.1x1024", 8)])
        self.assertEqual(list(self.costs(figures)), ["exactness_cost.attention.tokens_1"])

    def test_damaged_lines_and_figures_without_a_value_are_skipped(self):
        whole = json.dumps({"figures": [figure("peer.attention.1x1024", None)[1], figure("copy", 2)[1]]})
        self.assertEqual(list(exactness_cost.figures_of(["a table\n" + whole, '{"figures": [{"name": "co'])), ["copy"])

    def test_it_prints_a_line_for_the_check(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            values = products(1, 10, 8) | dict([figure("attention.1x1024.blocks_of_64", 1e6, "MB/s"), figure("peer.attention.1x1024", 8)])
            file.write(json.dumps({"bench": "cuda", "figures": list(values.values())}) + "\n")
            file.flush()
            done = subprocess.run([sys.executable, "-B", str(ROOT / "bench/exactness_cost.py"), file.name], capture_output=True, text=True,
                                  check=True)
        names = [figure["name"] for figure in json.loads(done.stdout.splitlines()[-1])["figures"]]
        self.assertEqual(names, ["exactness_cost.attention.tokens_1", "exactness_cost.step.tokens_1"])


if __name__ == "__main__":
    unittest.main()
