#!/usr/bin/env python3
"""Runs clang-format and clang-tidy on the named C++ files, or else on those that the commit changed (scripts/ci_slice.py changed).

    check_style.py [--seconds N] [FILE …]

clang-tidy reads .cc files, each alone and without a precompiled header, so it finds missing includes. A header is read with the
.cc file of its name. For a commit, findings count only on changed lines; for named files, on every line. After N seconds (600)
clang-tidy stops, and the script prints the files that it did not read. The exit code is 1 if there was a finding.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

import ci_slice

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "tidy"
CODE = (".cc", ".h", ".cu", ".cuh")


def exists(path):
    return (ROOT / path).is_file()


def sources_of(paths):
    """Returns the .cc files in which clang-tidy sees these files. Leaves out tests/ and files that need CUDA's headers."""
    wanted = []
    for path in paths:
        source = path.removesuffix(".h") + ".cc" if path.endswith(".h") else path
        if source.endswith(".cc") and not source.startswith("tests/") and exists(source):
            wanted.append(source)
    return list(dict.fromkeys(wanted))


def changed_lines(diff):
    """Returns clang-tidy's --line-filter for the added lines of a diff without context."""
    filter = []
    for line in diff.splitlines():
        if line.startswith("+++ b/"):
            filter.append({"name": line[6:], "lines": []})
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            if count:
                filter[-1]["lines"].append([first, first + count - 1])
    return [file for file in filter if file["lines"]]


def tidy(source, seconds, arguments=()):
    """Returns the findings of clang-tidy, "" if there are none, or None if time ran out."""
    if seconds <= 0:
        return None
    try:
        done = subprocess.run(["clang-tidy", "--quiet", *arguments, "-p", BUILD, source], cwd=ROOT, capture_output=True, text=True,
                              timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="how long clang-tidy may run")
    parser.add_argument("files", nargs="*", help="paths from the root")
    options = parser.parse_args()
    os.chdir(ROOT)
    paths = [path for path in options.files or ci_slice.changed_paths() if path.endswith(CODE) and exists(path)]
    unformatted = [path for path in paths
                   if subprocess.run(["clang-format", "--dry-run", "--Werror", path], capture_output=True).returncode]
    for path in unformatted:
        print(f"{path}: clang-format would change it")

    sources = sources_of(paths)
    findings, left, arguments = {}, [], []
    if sources and not options.files:
        diff = subprocess.run(["git", "diff", "-U0", "--no-color", ci_slice.base_commit(), "HEAD", "--", *paths],
                              capture_output=True, text=True, check=True).stdout
        arguments = ["--line-filter=" + json.dumps(changed_lines(diff))]
    if sources:
        # Reads every file alone: no unity build, no precompiled header. Only the generated wire types must be built.
        subprocess.run(["cmake", "--preset", "tidy", "-Wno-dev"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", "--preset", "tidy", "--target", "proto_sources"], check=True,
                       stdout=subprocess.DEVNULL)
        end = time.monotonic() + options.seconds
        random.Random(ci_slice.commit_number()).shuffle(sources)  # unread files differ between commits
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda source: tidy(source, end - time.monotonic(), arguments), sources))
        findings = {source: found for source, found in zip(sources, results) if found}
        left = [source for source, found in zip(sources, results) if found is None]
    for found in findings.values():
        print(found)
    print(f"style: {len(paths)} files, {len(unformatted)} not formatted; clang-tidy on {len(sources) - len(left)} of "
          f"{len(sources)} sources, {len(findings)} with findings")
    for path in sorted(findings):
        print(f"  findings: {path}")
    for path in sorted(left):
        print(f"  left for lack of time: {path}")
    return 1 if unformatted or findings else 0


if __name__ == "__main__":
    sys.exit(main())
