#!/usr/bin/env python3
"""Measures the default of --threads under a CPU quota. Prints a table; the last line is one JSON object with the figure.

  quota_share.py --bin BUILD/bin [--model M.gguf] [--processors 1] [--rounds 5]

quota_share   Prompt and answer tokens a second with the default number of threads, divided by those with the best number, in a
              control group with a quota of so many processors.

Needs root and a control group of the controller `cpu`, version 1 or 2, in which groups can be made. Otherwise it prints `not run`
and ends with 77. Standard library only.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/e2e"))
from cluster import default_model, load_condition  # noqa: E402

PERIOD_US = 100_000


class Quota:
    """A control group with a CPU quota; a context manager."""

    def __init__(self, processors):
        root = pathlib.Path("/sys/fs/cgroup")
        self.version1 = (root / "cpu/cpu.cfs_quota_us").exists()
        self.folder = root / ("cpu" if self.version1 else "") / f"baton-quota-{os.getpid()}"
        try:
            self.folder.mkdir()
            if self.version1:
                (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
                (self.folder / "cpu.cfs_quota_us").write_text(str(int(processors * PERIOD_US)))
            else:
                (self.folder / "cpu.max").write_text(f"{int(processors * PERIOD_US)} {PERIOD_US}")
        except OSError as error:
            print(f"not run: no control group with a CPU quota: {error}")
            sys.exit(77)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.rmdir()

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))


def seconds(options, quota, threads):
    """Runs one job in the group. Returns the seconds of computation, without the start."""
    job = {"id": "a", "prompt_token_ids": [100 + i % 800 for i in range(options.prompt_tokens)], "max_tokens": options.answer_tokens,
           "min_tokens": options.answer_tokens, "temperature": 0}
    done = subprocess.run([os.path.join(options.bin, "baton"), "run", "--model", options.model, "--jobs", "-", "--json",
                           *(["--threads", str(threads)] if threads else [])], input=json.dumps(job), capture_output=True, text=True,
                          preexec_fn=quota.enter)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    ledger = json.loads(done.stdout.splitlines()[-1])["ledger"]
    return ledger["total_us"] / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--processors", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--answer-tokens", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    choices = [0, *range(1, max(2, len(os.sched_getaffinity(0))) + 1)]
    draw = random.Random(options.seed)
    times = {choice: [] for choice in choices}
    print(load_condition())
    with Quota(options.processors) as quota:
        for _ in range(options.rounds):
            # In a new order each time: what else runs on this machine shall not always meet the same number of threads.
            for choice in draw.sample(choices, len(choices)):
                times[choice].append(seconds(options, quota, choice))
        time.sleep(0.1)  # the kernel removes ended processes from the group
    medians = {choice: statistics.median(values) for choice, values in times.items()}
    for choice, median in medians.items():
        print(f"--threads {choice or 'default'}: {median:.3f} s")
    best = min(median for choice, median in medians.items() if choice)
    print(json.dumps({"bench": "quota_share", "seed": options.seed, "figures": [
        {"name": "quota_share", "value": round(best / medians[0], 4), "unit": "ratio", "limit": 1}]}))


main()
