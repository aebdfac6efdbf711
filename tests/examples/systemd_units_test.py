#!/usr/bin/env python3
"""The systemd units in examples/: their command lines and variables are understood by the built programs.

  systemd_units_test.py --bin build/release/bin

Standard library only.
"""

import argparse
import configparser
import os
import pathlib
import re
import subprocess
import sys
import unittest

UNITS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "systemd"
ARGUMENTS = argparse.Namespace()


def read_variables(path):
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


class Units(unittest.TestCase):
    def test_every_unit_starts_its_program_with_the_variables_of_its_file(self):
        units = sorted(UNITS.glob("*.service"))
        self.assertEqual(len(units), 4)
        for unit in units:
            with self.subTest(unit=unit.name):
                parser = configparser.ConfigParser(interpolation=None)
                parser.optionxform = str
                parser.read(unit)
                service = parser["Service"]
                self.assertEqual(service["RestartPreventExitStatus"], "2")
                variables = read_variables(UNITS / pathlib.Path(service["EnvironmentFile"]).name)
                program, *arguments = service["ExecStart"].split()
                self.assertEqual(pathlib.Path(program).name + ".service", unit.name)
                arguments = [re.sub(r"\$\{(\w+)\}", lambda match: variables[match.group(1)], argument)
                             for argument in arguments]
                shown = self.settings(pathlib.Path(program).name, arguments, variables)
                for name, value in variables.items():
                    if name.startswith("BATON_"):
                        self.assertRegex(shown, rf"(?m)^{name[6:].lower().replace('_', '-')} = {re.escape(value)}\b")

    def settings(self, program, arguments, variables):
        done = subprocess.run([os.path.join(ARGUMENTS.bin, program), *arguments, "--show-settings"], text=True,
                              capture_output=True, timeout=60, env={**os.environ, **variables})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", required=True, help="folder of the built programs")
    rest = arguments.parse_known_args(namespace=ARGUMENTS)[1]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
