#!/usr/bin/env python3
"""Batches of test files: equal names in two files stay separate, and files of another form are refused."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import batch_tests

TEST = '#include "a.h"\n\nnamespace baton {\nnamespace {\n\nint Same() { return 1; }\n\n}  // namespace\n}  // namespace baton\n'


class Batches(unittest.TestCase):
    def test_each_file_has_a_namespace_of_its_own(self):
        text = batch_tests.batch([("/x/one_test.cc", TEST), ("/x/two_test.cc", TEST)])
        self.assertIn("namespace in_x_one_test {\n", text)
        self.assertIn("namespace in_x_two_test {\n", text)
        self.assertNotIn("namespace {", text)

    def test_errors_name_the_line_of_the_original(self):
        lines = batch_tests.batch([("/x/one_test.cc", TEST), ("/x/two_test.cc", TEST)]).splitlines()
        at = lines.index('#line 1 "/x/two_test.cc"')
        self.assertEqual(lines[at + 1:], TEST.replace("namespace {", "namespace in_x_two_test {").splitlines())

    def test_a_file_of_another_form_is_refused_by_name(self):
        for text in (TEST.replace("namespace {\n", ""), TEST + "int after;\n", TEST + TEST,
                     TEST.replace("}  // namespace\n", "}  // namespace\nTEST(A, B) {}\n")):
            with self.assertRaisesRegex(ValueError, "/x/odd_test.cc"):
                batch_tests.batch([("/x/odd_test.cc", text)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
