#!/usr/bin/env python3
"""The Python example without stubs: it says what it is and what it needs. Standard library only."""

import pathlib
import subprocess
import sys
import unittest

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python" / "client.py"


def client(*arguments):
    """-I and -S: no stubs and no packages, whatever this machine has."""
    return subprocess.run([sys.executable, "-I", "-S", "-B", CLIENT, *arguments], capture_output=True, text=True, timeout=60)


class WithoutStubs(unittest.TestCase):
    def test_the_help_is_shown(self):
        done = client("--help")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--max-tokens", done.stdout)
        self.assertIn("grpc_tools.protoc", done.stdout)

    def test_a_question_is_answered_with_how_to_make_them(self):
        done = client("127.0.0.1:1", "What is gravity?")
        self.assertEqual(done.returncode, 2)
        self.assertIn("No module named 'grpc'", done.stderr)
        self.assertIn("grpc_tools.protoc", done.stderr)
        self.assertNotIn("Traceback", done.stderr)

    def test_a_question_alone_goes_to_the_default_router(self):
        self.assertEqual(client("What is gravity?").returncode, 2)
        self.assertIn("error: the following arguments are required: question", client().stderr)

    def test_connection_flags_that_do_not_fit_are_refused(self):
        for flags, says in ((["--tls-cert", "c.pem"], "need --tls-ca"), (["--tls-key", "k.pem"], "need --tls-ca"),
                            (["--tls-ca", "a", "--tls-key", "k"], "--tls-key needs --tls-cert"),
                            (["--api-key-file", "key"], "--api-key-file needs --tls-ca"),
                            (["--tls-ca", "/nowhere/ca.crt"], "--tls-ca: "),
                            (["--tls-ca", CLIENT, "--api-key-file", "/dev/null"], "the first line is empty")):
            done = client("What is gravity?", *map(str, flags))
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(says, done.stderr)
            self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
