#!/usr/bin/env python3
"""The comparison of bench/gpu_peers.py with cuda_bench, and its exit where PyTorch is missing."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench"))
import gpu_peers


def figure(name, value, unit):
    return {"name": name, "value": value, "unit": unit, "limit": None, "ratio": None}


class AddOurs(unittest.TestCase):
    def compared(self, peer, ours):
        """Returns to_peer after the comparison of one figure, or None if they were not compared."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("a table\n" + json.dumps({"bench": "cuda", "seed": 16, "figures": [ours]}) + "\n")
            file.flush()
            gpu_peers.add_ours([peer], file.name)
        self.assertEqual("ours" in peer, "to_peer" in peer)
        return peer.get("to_peer")

    def test_a_shorter_time_and_a_higher_rate_are_faster(self):
        self.assertEqual(self.compared(figure("peer.matmul.BF16.qkv.tokens_1", 30, "us"), figure("matmul.BF16.qkv.tokens_1", 10, "us")), 3)
        self.assertEqual(self.compared(figure("peer.prefill.8192", 200, "TFLOP/s"), figure("prefill.8192", 600, "TFLOP/s")), 3)

    def test_paged_attention_is_compared_in_blocks_of_64(self):
        self.assertEqual(self.compared(figure("peer.attention.64x8192", 2e6, "MB/s"), figure("attention.64x8192.blocks_of_64", 3e6, "MB/s")), 1.5)
        self.assertIsNone(self.compared(figure("peer.attention.64x8192", 2e6, "MB/s"), figure("attention.64x8192.blocks_of_16", 3e6, "MB/s")))

    def test_what_was_not_measured_or_has_another_unit_is_not_compared(self):
        self.assertIsNone(self.compared(figure("peer.copy", None, "MB/s"), figure("copy", 1, "MB/s")))
        self.assertIsNone(self.compared(figure("peer.copy", 1, "MB/s"), figure("copy", None, "MB/s")))
        self.assertIsNone(self.compared(figure("peer.copy", 1, "MB/s"), figure("copy", 1, "us")))


class WithoutPyTorch(unittest.TestCase):
    def test_it_says_that_it_did_not_run(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "torch.py").write_text("raise ImportError('planted')\n")
            done = subprocess.run([sys.executable, "-B", str(ROOT / "bench/gpu_peers.py"), "--device", "cpu", "--tiny"],
                                  capture_output=True, text=True, env={"PYTHONPATH": folder})
        self.assertEqual(done.returncode, 77)
        self.assertIn("not run: no PyTorch", done.stdout)


if __name__ == "__main__":
    unittest.main()
