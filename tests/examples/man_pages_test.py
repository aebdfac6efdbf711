#!/usr/bin/env python3
"""The manual pages that the built services print: each has every option of the program's --help.

  man_pages_test.py --bin build/release/bin

Standard library only.
"""

import argparse
import os
import re
import subprocess
import sys
import unittest

PROGRAMS = ["baton-router", "baton-worker", "baton-prefill-worker", "baton-decode-worker"]
ARGUMENTS = argparse.Namespace()


def output(program, flag):
    return subprocess.run([os.path.join(ARGUMENTS.bin, program), flag], text=True, capture_output=True, timeout=60,
                          check=True).stdout


class ManPages(unittest.TestCase):
    def test_every_service_has_a_page_with_all_its_options(self):
        for program in PROGRAMS:
            with self.subTest(program=program):
                page = output(program, "--man-page")
                title = program.upper().replace("-", "\\-")
                self.assertTrue(page.startswith(f".TH {title} 1 "), page[:80])
                options = re.findall(r"(?m)^  (?:-\w,)?(--[a-z][a-z0-9-]*)", output(program, "--help"))
                self.assertGreater(len(options), 20)
                for option in options:
                    self.assertIn("\\fB" + option.replace("-", "\\-") + "\\fR", page)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", required=True, help="folder of the built programs")
    rest = arguments.parse_known_args(namespace=ARGUMENTS)[1]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
