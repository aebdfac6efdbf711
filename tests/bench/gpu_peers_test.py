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

    def test_a_damaged_file_leaves_the_peers_figures(self):
        for text in ("", "no driver\n", '{"bench": "cuda", "figures": [{"name": "co\n', '{"bench": "cuda"}\n'):
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write(text)
                file.flush()
                figures = [figure("peer.copy", 1, "MB/s")]
                gpu_peers.add_ours(figures, file.name)
            self.assertEqual(figures, [figure("peer.copy", 1, "MB/s")])
        gpu_peers.add_ours([figure("peer.copy", 1, "MB/s")], "/no/such/file")

    def test_each_section_of_cuda_bench_has_its_own_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            for ours in (figure("copy", 2, "MB/s"), figure("chunk.BF16", 300, "TFLOP/s")):
                file.write("a table\n" + json.dumps({"bench": "cuda", "seed": 16, "figures": [ours]}) + "\n")
            file.flush()
            figures = [figure("peer.copy", 1, "MB/s"), figure("peer.matmul.tflops.8192", 600, "TFLOP/s")]
            gpu_peers.add_ours(figures, file.name)
        self.assertEqual(figures[0]["to_peer"], 2)
        self.assertEqual(figures[2], {"name": "share_of_peak.chunk.BF16", "value": 300, "unit": "TFLOP/s", "limit": 600, "ratio": 0.5})

    def test_flex_attention_is_compared_too(self):
        self.assertEqual(self.compared(figure("peer.flex.prefill.8192", 200, "TFLOP/s"), figure("prefill.8192", 600, "TFLOP/s")), 3)


STAND_IN = """
# The parts of PyTorch that gpu_peers.py uses before its first figure. Every figure fails; `mode` hangs instead.
import sys, time
__version__ = "stand-in"
class Nothing:
    def __getattr__(self, name):
        if name == "randn" and {hangs}:
            time.sleep(60)
        raise RuntimeError("planted")
    def inference_mode(self):
        import contextlib
        return contextlib.nullcontext()
    def manual_seed(self, seed): pass
    __version__ = "stand-in"
sys.modules[__name__] = Nothing()
"""


class WithAFailingPyTorch(unittest.TestCase):
    def run_with(self, hangs):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "torch.py").write_text(STAND_IN.replace("{hangs}", str(hangs)))
            pathlib.Path(folder, "bench.txt").write_text("the device does not open\n")
            done = subprocess.run([sys.executable, "-B", str(ROOT / "bench/gpu_peers.py"), "--device", "cpu", "--tiny", "--seconds", "1",
                                   "--ours", f"{folder}/bench.txt"], capture_output=True, text=True, env={"PYTHONPATH": folder}, timeout=50)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def test_the_figures_come_although_all_fail(self):
        figures = self.run_with(False)["figures"]
        self.assertIn("peer.matmul.tflops.64", [figure["name"] for figure in figures])
        self.assertTrue(all(figure["value"] is None for figure in figures))

    def test_the_figures_come_although_a_backend_hangs(self):
        self.assertEqual(self.run_with(True)["bench"], "gpu_peers")


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
