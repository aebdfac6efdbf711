#!/usr/bin/env python3
"""Tests tests/regressions/reintroduce_faults.py on a small tree with its own patches and a stand-in for the build."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "regressions" / "reintroduce_faults.py"

# "Builds" by copying the source, which must contain the word `end`.
BUILD = """#!/bin/sh
grep -q end source || { echo "no end"; exit 1; }
mkdir -p "build/$1/bin" && cp source "build/$1/bin/$2"
"""
SOURCE = "one\ntwo\nthree\nfour\nfive\nend\n"
PATCH = """Fault: {fault}
Target: program
Test: {test}
Shows: {shows}

--- a/source
+++ b/source
@@ -1,6 +1,6 @@
{hunk}"""


def hunk(line, becomes):
    return "".join(f"-{one}\n+{becomes}\n" if one == line else f" {one}\n" for one in SOURCE.splitlines())


class ReintroduceFaults(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.write("source", SOURCE)
        self.write("scripts/build.sh", BUILD).chmod(0o755)
        self.write(".gitignore", "build/\n")
        script = self.write("tests/regressions/reintroduce_faults.py", "")
        shutil.copy(SCRIPT, script)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def git(self, *arguments):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments], cwd=self.root, check=True,
                       capture_output=True)

    def commit(self):
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "tree")

    def add(self, name, line, becomes, test="grep -q two {bin}/program", shows=".*", text=None):
        self.write(f"tests/regressions/{name}.patch",
                   text or PATCH.format(fault=f"{line} becomes {becomes}.", test=test, shows=shows, hunk=hunk(line, becomes)))

    def play(self, *arguments):
        done = subprocess.run([sys.executable, "-B", "tests/regressions/reintroduce_faults.py", *arguments], cwd=self.root,
                              capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    def test_a_fault_that_its_test_finds_is_detected(self):
        self.add("a", "two", "2", test="sh -c 'cat {bin}/program; grep -q two {bin}/program'", shows="one\\n2")
        self.commit()
        for arguments in ((), ("--here",)):
            code, output, _ = self.play(*arguments)
            self.assertEqual(code, 0, output)
            self.assertIn("| a: two becomes 2. |", output)
            self.assertIn("| fails |", output)
            self.assertIn("1 of 1 faults are detected", output)
            self.assertEqual((self.root / "source").read_text(), SOURCE)

    def test_a_fault_that_its_test_does_not_find_is_not_detected(self):
        self.add("a", "three", "3")
        self.add("b", "two", "2", shows="another reason")
        self.commit()
        code, output, _ = self.play()
        self.assertEqual(code, 1)
        self.assertIn("NOT DETECTED: the test passes with the fault", output)
        self.assertIn("NOT DETECTED: the test fails for another reason (exit code 1)", output)
        self.assertIn("0 of 2 faults are detected", output)

    def test_what_was_not_tested_does_not_count(self):
        self.add("a", "two", "2", text=PATCH.format(fault="f", test="true", shows="x", hunk=hunk("two", "2").replace("three", "drei")
                                                      .replace("one", "eins")))
        self.add("b", "end", "no more")
        self.add("c", "two", "2", test="false")
        self.commit()
        code, output, errors = self.play()
        self.assertEqual(code, 1)
        self.assertIn("the patch does not apply", output)
        self.assertIn("does not build with the fault", output)
        self.assertIn("the test does not pass without the fault", output)
        self.assertIn("a: the patch no longer applies", errors)
        code, output, _ = self.play("--check")
        self.assertEqual(code, 1)
        self.assertEqual(output, "a: no longer applies\n2 of 3 apply\n")

    def test_names_choose_patches_and_here_wants_no_changes(self):
        self.add("a", "two", "2")
        self.add("b", "three", "3")
        self.commit()
        code, output, _ = self.play("--here", "a")
        self.assertEqual(code, 0)
        self.assertNotIn("three becomes", output)
        self.write("source", SOURCE + "more\n")
        code, _, errors = self.play("--here")
        self.assertEqual(code, 1)
        self.assertIn("without changes", errors)
        self.assertEqual(self.play("z")[0], 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
