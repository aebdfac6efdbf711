#!/usr/bin/env python3
"""Runs ctest. The last lines show how many tests passed, failed and were not run, and why, so a cut log still has them.

    run_ctest.py BUILD [--seconds N] [ctest arguments …]

A test that this machine cannot run prints `not run: REASON` and exits with 77 (a script), or skips with that message (a case of
a gtest program). With --seconds, the run ends after N seconds; unfinished tests count neither as passed nor as failed. The exit
code is 1 if a test failed, 75 if none failed and some did not end, else 0. Standard library only.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import xml.etree.ElementTree as ElementTree

NOT_RUN = re.compile(r"\bnot run: (.+)")
RESULT = re.compile(r"^ *\d+/\d+ Test +#\d+: (\S+) \.*(.*) +[\d.]+ sec")
SOME_LEFT = 75
KEPT_OUTPUT = 1 << 20  # bytes of a passed test's output that are searched for reasons


class Outcome:
    """The outcome of each test of a run."""

    def __init__(self):
        self.passed, self.failed, self.not_run, self.left = [], [], [], []

    def lines(self):
        yield f"tests: {len(self.passed)} passed, {len(self.failed)} failed, {len(self.not_run)} not run, {len(self.left)} left"
        yield from (f"  failed: {name}" for name in self.failed)
        yield from (f"  not run: {name}: {reason}" for name, reason in self.not_run)
        yield from (f"  left for lack of time: {name}" for name in self.left)


def outcome_of(junit, names):
    """Returns the outcome of a run that ended by itself, from the file of ctest. A test without a result failed."""
    outcome, seen = Outcome(), set()
    for case in ElementTree.fromstring(junit).iter("testcase"):
        name = case.get("name")
        seen.add(name)
        reasons = list(dict.fromkeys(NOT_RUN.findall(case.findtext("system-out") or "")))
        failure, skipped = case.find("failure"), case.find("skipped")
        if skipped is not None and skipped.get("message", "").startswith("SKIP_"):
            outcome.not_run.append((name, reasons[0] if reasons else "it gave no reason"))
        elif failure is None and skipped is None:
            outcome.passed.append(name)
            outcome.not_run += [(f"cases of {name}", reason) for reason in reasons]
        else:
            outcome.failed.append(name)
    outcome.failed += [name for name in names if name not in seen]
    return outcome


def stopped_outcome(lines, names):
    """Returns the outcome of a run that was stopped, from ctest's lines."""
    outcome, seen = Outcome(), set()
    for name, result in (match.groups() for line in lines if (match := RESULT.match(line))):
        seen.add(name)
        if "Passed" in result:
            outcome.passed.append(name)
        elif "Skipped" in result:
            outcome.not_run.append((name, "see above"))
        else:
            outcome.failed.append(name)
    outcome.left = [name for name in names if name not in seen]
    return outcome


def test_names(command):
    """Returns the names of the tests that the command would run."""
    listed = subprocess.run([*command, "-N"], capture_output=True, text=True).stdout
    return re.findall(r"^ *Test +#\d+: (.+)$", listed, re.M)


def run(command, seconds):
    """Shows the output of ctest. Returns its exit code, its lines, and whether it was stopped after `seconds`."""
    lines, stopped = [], threading.Event()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace",
                               start_new_session=seconds is not None)

    def stop():
        stopped.set()
        os.killpg(process.pid, signal.SIGKILL)  # with its tests

    timer = threading.Timer(seconds, stop) if seconds else None
    if timer:
        timer.start()
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    code = process.wait()
    if timer:
        timer.cancel()
    return code, lines, stopped.is_set()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build, *arguments = sys.argv[1:]
    seconds = None
    if arguments[:1] == ["--seconds"]:
        seconds, arguments = int(arguments[1]), arguments[2:]
    command = ["ctest", "--test-dir", build, "--parallel", "2", "--output-on-failure", "--no-tests=error", *arguments]
    names = test_names(command)
    with tempfile.TemporaryDirectory() as folder:
        junit = os.path.join(folder, "junit.xml")
        code, lines, stopped = run([*command, "--output-junit", junit, "--test-output-size-passed", str(KEPT_OUTPUT)], seconds)
        if stopped:
            outcome = stopped_outcome(lines, names)
        elif os.path.exists(junit):
            with open(junit, encoding="utf-8", errors="replace") as file:
                outcome = outcome_of(file.read(), names)
        else:
            return code or 1
    print("\n".join(outcome.lines()), flush=True)
    return 1 if outcome.failed else SOME_LEFT if outcome.left else 0 if stopped else code


if __name__ == "__main__":
    sys.exit(main())
