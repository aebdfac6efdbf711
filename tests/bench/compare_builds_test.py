#!/usr/bin/env python3
"""Tests of bench/compare_builds.py: its statistics, and comparisons of fake benchmarks."""

import math
import pathlib
import random
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "compare_builds.py"
sys.dont_write_bytecode = True
sys.path.insert(0, str(SCRIPT.parent))
import compare_builds


class Statistics(unittest.TestCase):
    def test_a_ratio_above_one_is_faster_whatever_the_unit(self):
        self.assertEqual(compare_builds.speed_ratio("tokens/s", 100, 110), 1.1)
        self.assertEqual(compare_builds.speed_ratio("1/s", 100, 50), 0.5)
        self.assertEqual(compare_builds.speed_ratio("us", 10, 5), 2)
        self.assertEqual(compare_builds.speed_ratio("ms", 10, 20), 0.5)
        for unit, old, new in [("bytes", 1, 2), ("answers", 1, 2), ("us", 0, 1), ("us", 1, 0), ("1/s", -1, 1)]:
            self.assertIsNone(compare_builds.speed_ratio(unit, old, new))

    def test_ten_ratios_give_the_second_smallest_and_the_second_largest(self):
        low, high, coverage = compare_builds.median_interval([5, 3, 1, 2, 4, 10, 7, 8, 9, 6])
        self.assertEqual((low, high), (2, 9))
        self.assertAlmostEqual(coverage, 1 - 22 / 1024)

    def test_the_ranks_are_those_of_the_published_tables(self):
        for n, rank in [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (30, 10)]:
            self.assertEqual(compare_builds.median_interval(range(1, n + 1))[0], rank, n)

    def test_fewer_than_six_ratios_reach_no_95_percent(self):
        for n in range(1, 6):
            low, high, coverage = compare_builds.median_interval(range(1, n + 1))
            self.assertEqual((low, high), (1, n))
            self.assertLess(coverage, 0.95)

    def test_the_interval_holds_the_median_as_often_as_it_says(self):
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        draw, held, runs = random.Random(seed), 0, 4000
        for _ in range(runs):
            low, high, coverage = compare_builds.median_interval([draw.lognormvariate(0, 0.1) for _ in range(10)])
            held += low <= 1 <= high
        self.assertLess(abs(held / runs - coverage), 6 * math.sqrt(coverage * (1 - coverage) / runs))


class Comparison(unittest.TestCase):
    def compare(self, old, new, pairs="6"):
        """Compares two fake benchmarks that always print the given figures (JSON). Returns the finished process."""
        with tempfile.TemporaryDirectory() as directory:
            for name, figures in [("old", old), ("new", new)]:
                binary = pathlib.Path(directory) / name / "engine_bench"
                binary.parent.mkdir()
                binary.write_text(f"#!/bin/sh\necho a table\necho '{{\"bench\":\"engine\",\"seed\":0,\"figures\":{figures}}}'\n")
                binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
            return subprocess.run(
                [sys.executable, "-B", SCRIPT, "--old", f"{directory}/old", "--new", f"{directory}/new", "--pairs", pairs,
                 "--bench", "engine"], capture_output=True, text=True)

    def test_a_slower_figure_is_marked_and_a_faster_one_is_not(self):
        done = self.compare('[{"name":"a","unit":"us","value":10},{"name":"b","unit":"tokens/s","value":100}]',
                            '[{"name":"a","unit":"us","value":11},{"name":"b","unit":"tokens/s","value":200}]')
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
        self.assertRegex(lines["a"], r"0\.9091 +\[0\.9091, 0\.9091\] +1\.0000 +\[1\.0000, 1\.0000\] +SLOWER$")
        self.assertRegex(lines["b"], r"2\.0000 +\[2\.0000, 2\.0000\] +1\.0000 +\[1\.0000, 1\.0000\]$")

    def test_too_few_pairs_mark_nothing(self):
        figures = '[{"name":"a","unit":"us","value":%d}]'
        self.assertEqual(self.compare(figures % 10, figures % 20, pairs="5").returncode, 0)
        self.assertEqual(self.compare(figures % 10, figures % 20, pairs="6").returncode, 1)

    def test_equal_builds_pass_and_other_figures_are_compared_by_value(self):
        figures = '[{"name":"a","unit":"us","value":10},{"name":"blocks","unit":"blocks","value":%d}]'
        done = self.compare(figures % 3, figures % 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("different: none", done.stdout)
        self.assertIn("different: blocks", self.compare(figures % 3, figures % 4).stdout)

    def test_figures_of_one_build_alone_are_named(self):
        done = self.compare('[{"name":"gone","unit":"us","value":1}]', '[{"name":"added","unit":"us","value":1}]', pairs="1")
        self.assertIn("in one build only: added, gone", done.stdout)

    def test_a_benchmark_without_a_last_json_line_is_named(self):
        done = self.compare('"nonsense', '[]')
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("engine_bench is not a JSON object", done.stderr.replace("the last line of ", ""))


if __name__ == "__main__":
    unittest.main()
