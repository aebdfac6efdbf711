#!/usr/bin/env python3
"""A small run of bench/chunk_fleet.py with real processes: it measures both figures, and each request goes the way that it should.

  chunk_fleet_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Standard library only.
"""

import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
from service_case import ARGUMENTS, main


def run(*arguments):
    return subprocess.run([sys.executable, "-B", ROOT / "bench" / "chunk_fleet.py", "--bin", ARGUMENTS.bin, "--model", ARGUMENTS.model,
                           *arguments], capture_output=True, text=True)


class ChunkFleet(unittest.TestCase):
    def test_measures_both_figures(self):
        done = run("--rounds=3", "--chunks=2", "--chunk-tokens=32")
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(done.stdout.splitlines()[-1])["figures"]
        self.assertEqual([(figure["name"], figure["limit"]) for figure in figures],
                         [("ttft_full_over_cached_fleet", 20), ("pull_over_compute", 10)])
        for figure in figures:
            self.assertGreater(figure["low"], 0)
            self.assertLessEqual(figure["low"], figure["value"])
            self.assertLessEqual(figure["value"], figure["high"])
        self.assertEqual(done.stdout.count("round "), 6)

    def test_an_unknown_measurement_is_refused_before_anything_runs(self):
        done = run("--only=cached,pul")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--only: is pul; must be one of cached, pull", done.stderr)


if __name__ == "__main__":
    main(__doc__)
