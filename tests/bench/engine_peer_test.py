#!/usr/bin/env python3
"""Tests bench/engine_peer.py with stand-ins for engine_bench and the peer's programs. Standard library only."""

import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "engine_peer.py"

# Each run of the stand-in adds a line to a file and answers from a list, one answer for each round.
ENGINE = """#!{python}
import json, pathlib
rounds = pathlib.Path({directory!r}) / "order"
with rounds.open("a") as file:
    file.write("ours\\n")
number = rounds.read_text().count("ours") - 1
print("a table")
print(json.dumps({{"bench": "engine", "figures": [
    {{"name": name, "value": best[number], "mean_value": mean[number], "unit": "tokens/s", "limit": 1000, "ratio": 0.5}}
    for name, (best, mean) in {figures!r}.items()]}}))
"""
SINGLE = """#!{python}
import json, sys
if "--help" in sys.argv:
    sys.exit(print("{help}"))
mode = sys.argv[sys.argv.index("-fa") + 1] + " " + sys.argv[sys.argv.index("-ctv") + 1]
with open({directory!r} + "/order", "a") as file:
    file.write(mode + "\\n")
if mode in {failing!r}:
    sys.exit("no such mode")
samples = {samples!r}[mode]
print(json.dumps([{{"n_prompt": prompt, "n_gen": steps, "avg_ts": sum(samples) / len(samples), "samples_ts": samples}}
                  for prompt, steps in [(512, 0), (2048, 0), (0, 64)]]))
"""
BATCHED = """#!{python}
import sys
if "--help" in sys.argv:
    sys.exit(print("{help}"))
for batch in sys.argv[sys.argv.index("-npl") + 1].split(","):
    print("| 496 | 32 |", batch, "| 0 | 0 | 0 | 0 |", {batched!r}[batch], "| 0 | 0 |")
"""
SAMPLES = {"off f16": [10, 20], "on f16": [14, 18], "on q8_0": [5, 6]}


class EnginePeer(unittest.TestCase):
    def compare(self, figures, rounds=3, batches="1,4", samples=None, failing=(), batched=None,
                help_text="  -fa, --flash-attn <on|off>"):
        """Returns (finished process, figures of its JSON line by name, order of the runs)."""
        values = {"python": sys.executable, "figures": figures, "samples": samples or SAMPLES, "failing": list(failing),
                  "batched": batched or {"1": 30.0, "4": 50.0}, "help": help_text}
        with tempfile.TemporaryDirectory() as directory:
            for name, text in [("engine_bench", ENGINE), ("llama-bench", SINGLE), ("llama-batched-bench", BATCHED)]:
                path = pathlib.Path(directory) / name
                path.write_text(text.format(directory=directory, **values))
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            done = subprocess.run(
                [sys.executable, "-B", SCRIPT, "--engine-bench", f"{directory}/engine_bench", "--model", "m", "--threads", "2",
                 "--rounds", str(rounds), "--batches", batches, "--peer-bin", directory], capture_output=True, text=True)
            order = pathlib.Path(directory) / "order"
            order = order.read_text().split("\n")[:-1] if order.exists() else []
        found = {}
        if done.returncode == 0:
            found = {figure["name"]: figure for figure in json.loads(done.stdout.strip().splitlines()[-1])["figures"]}
        return done, found, order

    def test_the_best_is_compared_with_the_best_and_the_mean_with_the_mean(self):
        done, found, _ = self.compare({"prefill_512_tokens_per_s": ([40, 60, 50], [30, 30, 36])})
        self.assertEqual(done.returncode, 0, done.stderr)
        figure = found["prefill_512_tokens_per_s"]
        self.assertEqual((figure["value"], figure["best"], figure["peer"], figure["to_peer"]), (60, 60, 20, 3.0))
        self.assertIn("no flash attention, KV f16", figure["peer_name"])
        # The mean has another best mode than the best sample.
        self.assertEqual((figure["mean"], figure["peer_mean"], figure["to_peer_mean"]), (32, 16, 2.0))
        self.assertIn(": flash attention, KV f16", figure["peer_mean_name"])

    def test_decode_compares_the_best_means_because_the_peers_samples_are_means_of_many_steps(self):
        _, found, _ = self.compare({"decode_1_tokens_per_s": ([900, 900, 900], [32, 64, 48])})
        figure = found["decode_1_tokens_per_s"]
        self.assertEqual((figure["best"], figure["peer"], figure["to_peer"]), (64, 16, 4.0))
        self.assertEqual((figure["mean"], figure["to_peer_mean"]), (48, 3.0))

    def test_batches_are_compared_with_the_peers_best_batch(self):
        _, found, _ = self.compare({"decode_1x512_tokens_per_s": ([900, 900, 900], [40, 60, 50])})
        figure = found["decode_1x512_tokens_per_s"]
        self.assertEqual((figure["best"], figure["peer"], figure["to_peer"]), (60, 50.0, 1.2))
        self.assertEqual(figure["statistic"], "best mean of a round")
        self.assertIn("batch 4", figure["peer_name"])  # its best batch of any size
        self.assertEqual(figure["value"], 900)

    def test_rounds_alternate_and_every_mode_runs_in_each(self):
        _, _, order = self.compare({"decode_1_tokens_per_s": ([1] * 3, [1] * 3)})
        forward = ["ours", "off f16", "on f16", "off f16", "on q8_0"]  # the third has only its keys quantised
        self.assertEqual(order, forward + forward[::-1] + forward)

    def test_fewer_than_three_rounds_are_refused(self):
        done, _, _ = self.compare({"decode_1_tokens_per_s": ([1], [1])}, rounds=2)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--rounds is 2", done.stderr)

    def test_a_mode_that_fails_is_named_and_the_others_count(self):
        done, found, _ = self.compare({"decode_1_tokens_per_s": ([40] * 3, [40] * 3)}, failing=["off f16"])
        self.assertIn("no flash attention, KV f16: llama-bench ended with exit code 1: no such mode", done.stderr)
        self.assertEqual(found["decode_1_tokens_per_s"]["peer"], 16)

    def test_a_figure_that_no_peer_has_says_so(self):
        done, found, _ = self.compare({"decode_1_tokens_per_s": ([40] * 3, [40] * 3)}, failing=list(SAMPLES))
        figure = found["decode_1_tokens_per_s"]
        self.assertIsNone(figure["to_peer"])
        self.assertRegex(figure["absent"], "^not measured: .*no such mode")
        self.assertIn("not measured: ", done.stdout.split('{"bench"')[0])

    def test_older_versions_take_flash_attention_as_a_number(self):
        samples = {"0 f16": [1], "1 f16": [2], "1 q8_0": [3]}
        _, found, order = self.compare({"decode_1_tokens_per_s": ([6] * 3, [6] * 3)}, samples=samples,
                                       help_text="  -fa, --flash-attn <0|1>")
        self.assertIn("0 f16", order)
        self.assertEqual(found["decode_1_tokens_per_s"]["to_peer"], 2.0)


if __name__ == "__main__":
    unittest.main()
