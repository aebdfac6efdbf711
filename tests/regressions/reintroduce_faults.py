#!/usr/bin/env python3
"""Shows that tests detect the faults that earlier changes fixed. Puts each fault back, one at a time, and runs its test.

    reintroduce_faults.py [--here] [--check] [--results FILE] [NAME …]

Each *.patch file in this folder puts one fault into today's code. Its first lines say what the fault is:

    Fault: a sentence
    Target: what to build, if anything; several are separated by spaces
    Test: a command; {bin} is the build's folder of programs
    Shows: a regular expression that the output of the failed test contains
    Preset: a preset of CMakePresets.json, `release` by default

First every test must pass without a fault. Then a fault counts as detected if the code builds with it, the test fails, and its
output contains `Shows`. NAME is the beginning of a patch's name; without one, all patches count. Works on a checkout of its own
under build/regressions, at the commit that is checked out here. --here works in this checkout, which must have no changes.
--check says only which patches no longer apply.

Prints a table. --results also writes it to FILE. The exit code is 1 if a fault is not detected or a patch does not apply. Such a
patch must follow the code that it changes. Standard library only.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

PATCHES = pathlib.Path(__file__).resolve().parent
ROOT = PATCHES.parents[1]
LIMIT_S = 900  # of one test
FIELD = re.compile(r"^(Fault|Target|Test|Shows|Preset): (.+)$", re.M)
FAILED_CASE = re.compile(r"^(?:\[  FAILED  \]|FAIL:|ERROR:) (\S+?)(?:,|$| \()", re.M)
NO_CASES = re.compile(r"^\[==========\] 0 tests", re.M)


@dataclasses.dataclass
class Fault:
    path: pathlib.Path
    fault: str
    test: str
    shows: str
    target: str = ""
    preset: str = "release"
    verdict: str = ""
    detected: bool = False
    seconds: float = 0

    @property
    def name(self):
        return self.path.stem


def read_fault(path):
    header = path.read_text(encoding="utf-8").split("\n--- ", 1)[0]
    fields = {key.lower(): value.strip() for key, value in FIELD.findall(header)}
    missing = {"fault", "test", "shows"} - fields.keys()
    if missing:
        sys.exit(f"{path}: has no line {', '.join(sorted(field.capitalize() for field in missing))}")
    re.compile(fields["shows"])
    return Fault(path, **fields)


def run(command, root, limit_s=None):
    """Returns (exit code, output) of a command; the exit code is None if it did not end in time."""
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True, env={**os.environ, "GTEST_COLOR": "no"})
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def patch(root, fault, *arguments):
    return run(["git", "apply", "-C1", "--whitespace=nowarn", *arguments, str(fault.path)], root)


def build(root, fault, targets):
    return run(["scripts/build.sh", fault.preset, *targets], root) if targets else (0, "")


def run_test(root, fault):
    command = fault.test.format(bin=f"build/{fault.preset}/bin")
    return run(["bash", "-c", f"set -f; exec {command}"], root, LIMIT_S)


def last_lines(output, count=15):
    return "\n".join(f"    {line}" for line in output.splitlines()[-count:])


def checkout(commit):
    """Returns a checkout of its own at this commit. What was built there before is kept."""
    tree = ROOT / "build" / "regressions"
    if (tree / ".git").exists():
        subprocess.run(["git", "checkout", "--quiet", "--force", "--detach", commit], cwd=tree, check=True)
    else:
        subprocess.run(["git", "worktree", "add", "--force", "--detach", tree, commit], cwd=ROOT, check=True)
    return tree


def check_without_faults(root, faults):
    """Builds every target and runs every test without a fault. Returns the faults whose tests pass then."""
    passing = []
    for preset in dict.fromkeys(fault.preset for fault in faults):
        of_preset = [fault for fault in faults if fault.preset == preset]
        targets = list(dict.fromkeys(target for fault in of_preset for target in fault.target.split()))
        code, output = build(root, of_preset[0], targets)
        if code != 0:
            sys.exit(f"{preset} does not build without a fault\n{last_lines(output, 40)}")
        for fault in of_preset:
            code, output = run_test(root, fault)
            if code == 0 and not NO_CASES.search(output):
                passing.append(fault)
            else:
                fault.verdict = "NOT TESTED: the test does not pass without the fault"
                print(f"{fault.name}: exit code {code} without the fault\n{last_lines(output)}", file=sys.stderr, flush=True)
    return passing


def judge(root, fault):
    """Builds and tests with the fault, and sets the verdict."""
    code, output = build(root, fault, fault.target.split())
    if code != 0:
        fault.verdict = "NOT TESTED: does not build with the fault"
        return output
    code, output = run_test(root, fault)
    shown = re.search(fault.shows, output)
    failed = list(dict.fromkeys(FAILED_CASE.findall(output)))
    if code == 0:
        fault.verdict = "NOT DETECTED: the test passes with the fault"
    elif code is None:
        fault.verdict = f"NOT DETECTED: the test did not end within {LIMIT_S} s"
    elif not shown:
        fault.verdict = f"NOT DETECTED: the test fails for another reason (exit code {code})"
    else:
        fault.detected = True
        fault.verdict = "fails" + (f": {failed[0]}" if failed else "") + (f" and {len(failed) - 1} more" if len(failed) > 1 else "")
    return "" if fault.detected else output


def reintroduce(root, fault):
    code, output = patch(root, fault, "--check")
    if code != 0:
        fault.verdict = "NOT TESTED: the patch does not apply"
        print(f"{fault.name}: the patch no longer applies; make it follow the code\n{last_lines(output)}", file=sys.stderr)
        return
    begin = time.monotonic()
    patch(root, fault)
    try:
        output = judge(root, fault)
    finally:
        code, reverted = patch(root, fault, "--reverse")
        if code != 0:
            sys.exit(f"{fault.name}: the patch cannot be taken back:\n{reverted}")
    fault.seconds = time.monotonic() - begin
    print(f"{fault.name}: {fault.verdict} ({fault.seconds:.0f} s)" + (f"\n{last_lines(output)}" if output else ""), file=sys.stderr,
          flush=True)


def table(faults):
    rows = ["| Fault put back | Test | With the fault, the test |", "|---|---|---|"]
    for fault in faults:
        cells = [f"{fault.name}: {fault.fault}", f"`{fault.test.replace('{bin}/', '')}`", fault.verdict]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help="work in this checkout")
    parser.add_argument("--check", action="store_true", help="say only which patches no longer apply")
    parser.add_argument("--results", type=pathlib.Path, help="file for the table")
    parser.add_argument("names", nargs="*", help="beginnings of patch names")
    options = parser.parse_args()
    faults = [read_fault(path) for path in sorted(PATCHES.glob("*.patch"))
              if not options.names or path.stem.startswith(tuple(options.names))]
    if not faults:
        sys.exit(f"no patch is named {' or '.join(options.names)}")
    if options.check:
        stale = [fault.name for fault in faults if patch(ROOT, fault, "--check")[0] != 0]
        print("\n".join([f"{name}: no longer applies" for name in stale] + [f"{len(faults) - len(stale)} of {len(faults)} apply"]))
        return 1 if stale else 0
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    if options.here and subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode != 0:
        sys.exit("--here needs a checkout without changes; commit or stash them")
    root = ROOT if options.here else checkout(commit)
    for fault in check_without_faults(root, faults):
        reintroduce(root, fault)
    detected = sum(fault.detected for fault in faults)
    lines = [*table(faults), "", f"{detected} of {len(faults)} faults are detected at commit {commit[:12]}."]
    print("\n".join(lines))
    if options.results:
        options.results.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if detected == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
