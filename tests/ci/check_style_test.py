#!/usr/bin/env python3
"""Tests which sources scripts/check_style.py gives to clang-tidy, and how it reads the answer."""

import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import check_style


class Sources(unittest.TestCase):
    def test_a_header_is_read_with_the_source_of_its_name_once(self):
        self.assertEqual(check_style.sources_of(["common/settings.h", "common/settings.cc", "common/check.h"]),
                         ["common/settings.cc"])

    def test_tests_and_cuda_are_not_read(self):
        self.assertEqual(check_style.sources_of(["tests/common/crc32c_test.cc", "kernels/cuda/kv_staging.cu"]), [])


class Lines(unittest.TestCase):
    def test_added_lines_are_those_of_the_new_file(self):
        diff = ("diff --git a/cli/a.cc b/cli/a.cc\n--- a/cli/a.cc\n+++ b/cli/a.cc\n@@ -3 +3 @@ int\n-x\n+y\n@@ -8,0 +9,2 @@\n+a\n+b\n"
                "@@ -20,2 +22,0 @@\n-a\n-b\ndiff --git a/cli/b.h b/cli/b.h\n--- a/cli/b.h\n+++ b/cli/b.h\n@@ -1 +0,0 @@\n-a\n")
        self.assertEqual(check_style.changed_lines(diff), [{"name": "cli/a.cc", "lines": [[3, 3], [9, 10]]}])


class Tidy(unittest.TestCase):
    def answer(self, script, seconds=20):
        """Calls tidy() with a script in place of clang-tidy."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "clang-tidy")
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            path = os.environ["PATH"]
            os.environ["PATH"] = f"{folder}:{path}"
            try:
                return check_style.tidy("common/settings.cc", seconds)
            finally:
                os.environ["PATH"] = path

    def test_no_finding(self):
        self.assertEqual(self.answer("exit 0"), "")

    def test_findings_are_what_it_prints(self):
        self.assertIn("a.cc:1: error", self.answer("echo 'a.cc:1: error'; exit 1"))

    def test_a_source_that_takes_too_long_is_left(self):
        self.assertIsNone(self.answer("exec sleep 60", seconds=1))
        self.assertIsNone(self.answer("exit 1", seconds=0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
