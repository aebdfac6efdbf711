#!/usr/bin/env python3
"""Last lines of scripts/run_ctest.py for tests that pass, fail, cannot run on this machine, or do not end in time."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "run_ctest.py"

TESTS = {
    "good": "true",
    "bad": "false",
    "impossible": "echo 'not run: no such machine'; exit 77",
    "partly": "echo 'a_test.cc:3: Skipped'; echo 'not run: no AVX-512'; echo 'not run: no AVX-512'",
    "slow": "exec sleep 600",
    "gone": None,
}


class RunCtest(unittest.TestCase):
    def run_tests(self, *names, arguments=()):
        """Returns the exit code and the closing lines."""
        with tempfile.TemporaryDirectory() as folder:
            lines = []
            for name in names:
                command = TESTS[name]
                lines.append(f"add_test({name} " + (f'sh -c "{command}")' if command else f"{folder}/no-program)"))
                lines.append(f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 77 LABELS it)")
            pathlib.Path(folder, "CTestTestfile.cmake").write_text("\n".join(lines))
            done = subprocess.run([sys.executable, "-B", SCRIPT, folder, *arguments], capture_output=True, text=True)
        said = done.stdout.splitlines()
        closing = [index for index, line in enumerate(said) if line.startswith("tests: ")]
        return done.returncode, said[closing[-1]:] if closing else said

    def test_all_passed(self):
        self.assertEqual(self.run_tests("good"), (0, ["tests: 1 passed, 0 failed, 0 not run, 0 left"]))

    def test_what_failed_is_named_last(self):
        self.assertEqual(self.run_tests("good", "bad"), (1, ["tests: 1 passed, 1 failed, 0 not run, 0 left", "  failed: bad"]))

    def test_a_program_that_is_not_there_is_a_failure(self):
        self.assertEqual(self.run_tests("gone"), (1, ["tests: 0 passed, 1 failed, 0 not run, 0 left", "  failed: gone"]))

    def test_what_this_machine_cannot_run_is_counted_apart_with_its_reason(self):
        self.assertEqual(self.run_tests("good", "impossible", "partly"), (0, [
            "tests: 2 passed, 0 failed, 2 not run, 0 left",
            "  not run: impossible: no such machine",
            "  not run: cases of partly: no AVX-512"]))

    def test_a_test_that_has_not_ended_in_time_is_left_and_no_failure(self):
        self.assertEqual(self.run_tests("good", "slow", arguments=("--seconds", "8")), (75, [
            "tests: 1 passed, 0 failed, 0 not run, 1 left", "  left for lack of time: slow"]))

    def test_a_failure_counts_although_time_ran_out(self):
        code, closing = self.run_tests("bad", "slow", arguments=("--seconds", "8"))
        self.assertEqual((code, closing[0]), (1, "tests: 0 passed, 1 failed, 0 not run, 1 left"))

    def test_no_test_at_all_is_an_error(self):
        self.assertNotEqual(self.run_tests("good", arguments=("-R", "nothing"))[0], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
