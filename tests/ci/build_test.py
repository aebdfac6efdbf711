#!/usr/bin/env python3
"""Tests which presets scripts/build.sh takes, and which instruction sets it configures: quickstart's build has the machine's own, every
other build has all."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/build.sh"
# Writes what configuring would write, and the calls.
CMAKE = """#!/bin/bash
echo "$*" >> calls
[ "$1" = --preset ] || exit 0
mkdir -p "build/$2"
sets=all
for argument; do
  case $argument in -DBATON_INSTRUCTION_SETS=*) sets=${argument#*=} ;; esac
done
echo "BATON_INSTRUCTION_SETS:STRING=$sets" > "build/$2/CMakeCache.txt"
[ -e gtest ] && echo "build tests: phony" > "build/$2/build.ninja" || : > "build/$2/build.ninja"
"""


class Build(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(SCRIPT, self.root / "scripts")
        shutil.copy(SCRIPT.parents[1] / "CMakePresets.json", self.root)
        (self.root / "cmake").write_text(CMAKE)
        (self.root / "cmake").chmod(0o755)

    def build(self, *arguments):
        """Returns the options that the preset was configured with, or None if it was not configured."""
        (self.root / "calls").write_text("")
        subprocess.run([self.root / "scripts/build.sh", *arguments], check=True, capture_output=True,
                       env={"PATH": f"{self.root}:/usr/bin:/bin"})
        calls = (self.root / "calls").read_text().splitlines()
        self.assertTrue(calls[-1].startswith("--build --preset release"), calls)
        return calls[0] if len(calls) == 2 else None

    def built_sets(self):
        return (self.root / "build/release/CMakeCache.txt").read_text().strip().rpartition("=")[2]

    def test_an_unknown_preset_is_refused_with_those_that_exist(self):
        for arguments in (["foo"], [], ["--native"], ["releas", "baton"]):
            done = subprocess.run([self.root / "scripts/build.sh", *arguments], capture_output=True, text=True,
                                  env={"PATH": f"{self.root}:/usr/bin:/bin"})
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"no preset .*; one of: asan cuda dev fuzz local release tidy tsan")
            self.assertFalse((self.root / "calls").exists())

    def test_a_fresh_native_build_has_the_kernels_of_this_machine_and_is_configured_once(self):
        self.assertIn("-DBATON_INSTRUCTION_SETS=native", self.build("--native", "release", "baton"))
        self.assertIsNone(self.build("--native", "release", "baton"))

    def test_a_build_for_tests_adds_the_kernels_that_a_native_build_left_out(self):
        (self.root / "gtest").touch()
        self.build("--native", "release", "baton")
        self.assertIsNotNone(self.build("release", "tests"))
        self.assertEqual(self.built_sets(), "all")
        self.assertIsNone(self.build("release", "tests"))

    def test_a_native_build_keeps_the_kernels_of_a_build_that_exists(self):
        (self.root / "gtest").touch()
        self.build("release", "tests")
        self.assertIsNone(self.build("--native", "release", "baton"))
        self.assertEqual(self.built_sets(), "all")

    def test_a_build_without_test_targets_is_configured_again(self):
        self.build("release", "baton")
        (self.root / "gtest").touch()
        self.assertIsNotNone(self.build("release", "tests"))


if __name__ == "__main__":
    unittest.main()
