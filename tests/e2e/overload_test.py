#!/usr/bin/env python3
"""Tests the exit code of the overload test (overload.py) on made-up figures. Standard library only."""

import contextlib
import io
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
# overload.py needs these packages only to talk to a service.
PACKAGES = ("grpc", "baton", "baton.v1", "baton.v1.inference_pb2", "baton.v1.inference_pb2_grpc")
with mock.patch.dict(sys.modules, {name: types.ModuleType(name) for name in PACKAGES}):
    sys.modules["baton.v1"].inference_pb2 = sys.modules["baton.v1.inference_pb2"]
    sys.modules["baton.v1"].inference_pb2_grpc = sys.modules["baton.v1.inference_pb2_grpc"]
    import overload

GOOD = {"overload_goodput_share_per_cpu": 0.97, "refusal_p99_ms": 6, "recovered_share": 1.0, "peak_goodput_per_s": 3}


class RestingCluster(contextlib.nullcontext):
    def __init__(self, *_):
        super().__init__(self)

    def wait_at_rest(self):
        return {}


def play(figures, problems=()):
    """Returns (exit code, output) of a run that measures these figures."""
    class Played:
        def __init__(self, *_):
            self.problems = list(problems)

        async def run(self):
            for figure in figures.items():
                yield figure
    output = io.StringIO()
    with mock.patch.multiple(overload, Cluster=RestingCluster, Overload=Played, load_condition=lambda: "", default_model=lambda: ""), \
            mock.patch.object(sys, "argv", ["overload.py", "--bin", "bin"]), contextlib.redirect_stdout(output):
        try:
            overload.main()
        except SystemExit as end:
            return end.code, output.getvalue()
    raise AssertionError("main() returned")


class ExitCode(unittest.TestCase):
    def test_usual_figures_pass(self):
        self.assertEqual(play(GOOD)[0], 0)

    def test_every_bound_counts(self):
        bad = {"overload_goodput_share_per_cpu": 0.49, "refusal_p99_ms": 1001, "recovered_share": 0.69}
        self.assertEqual(bad.keys(), overload.BOUNDS.keys())
        for name, value in bad.items():
            with self.subTest(name=name):
                code, output = play(GOOD | {name: value})
                self.assertEqual(code, 1)
                self.assertIn(f"PROBLEM: {name} is {value:.2f}", output)

    def test_another_problem_counts(self):
        code, output = play(GOOD, ["no request was refused"])
        self.assertEqual(code, 1)
        self.assertIn("PROBLEM: no request was refused\nproblems 1", output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
