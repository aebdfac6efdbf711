#!/usr/bin/env python3
"""Runs the benchmarks of two builds in turn and compares their figures. scripts/compare_builds.sh builds both and calls this.

    compare_builds.py --old DIR --new DIR --pairs N --bench engine,index [-- benchmark arguments …]

A round runs each benchmark three times: old, new, and old again for the A/A comparison. The order changes with the round, so
that a machine that slows down or warms up favours neither build. A round gives one ratio per figure and comparison.

The interval is the distribution-free one of a median: of n sorted ratios, from the k-th smallest to the k-th largest, with the
largest k whose coverage by the binomial distribution is at least 95 %. Fewer than 6 ratios have no such interval; then the
smallest and the largest are shown, with a question mark, and no figure is marked.

Standard library only.
"""

import argparse
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys

COVERAGE = 0.95
MUST_REACH = 0.99
TIMES = {"s", "ms", "us", "ns"}


def direction(unit):
    """1 if larger values are faster, -1 if smaller values are faster, 0 if the unit is not a speed or time."""
    if unit in TIMES:
        return -1
    return 1 if unit.endswith("/s") else 0


def speed_ratio(unit, old, new):
    """How many times faster `new` is than `old`; None if the figures have no such ratio."""
    if old <= 0 or new <= 0 or direction(unit) == 0:
        return None
    return new / old if direction(unit) > 0 else old / new


def median_interval(ratios):
    """Rank-based interval of the median of `ratios`: (low, high, coverage)."""
    ordered, n = sorted(ratios), len(ratios)

    def coverage(k):  # probability that the median lies between the k-th smallest and the k-th largest ratio
        return 1 - 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    k = 1
    while k + 1 <= (n + 1) // 2 and coverage(k + 1) >= COVERAGE:
        k += 1
    return ordered[k - 1], ordered[n - k], coverage(k)


def last_json_line(text):
    """Returns {figure name: (unit, value)} from the last line of a benchmark's output."""
    lines = text.strip().splitlines()
    report = json.loads(lines[-1]) if lines else {}
    return {figure["name"]: (figure["unit"], float(figure["value"])) for figure in report["figures"]
            if figure["value"] is not None}


class Comparison:
    """One benchmark's figures over all rounds."""

    def __init__(self):
        self.figures = {}  # name -> (unit, ratios new/old, ratios old/old)
        self.without_speed = {}  # name -> whether both builds always reported the same value
        self.lacking = set()  # names of figures that only one build has

    def add(self, old, new, again):
        for name in {**old, **new}:
            if name not in old or name not in new or name not in again:
                self.lacking.add(name)
                continue
            (unit, before), (_, after), (_, once_more) = old[name], new[name], again[name]
            ratio, noise = speed_ratio(unit, before, after), speed_ratio(unit, before, once_more)
            if ratio is None or noise is None:
                self.without_speed[name] = self.without_speed.get(name, True) and before == after
            else:
                _, ratios, noises = self.figures.setdefault(name, (unit, [], []))
                ratios.append(ratio)
                noises.append(noise)

    def slower(self):
        """Names of figures whose whole 95 % interval lies below MUST_REACH; none if there are too few ratios."""
        intervals = {name: median_interval(ratios) for name, (_, ratios, _) in self.figures.items()}
        return [name for name, (_, high, coverage) in intervals.items() if coverage >= COVERAGE and high < MUST_REACH]

    def table(self):
        yield f"{'figure':44} {'unit':10} {'new/old':>8} {'95 % interval':>19} {'A/A':>8} {'95 % interval':>19}"
        slower = set(self.slower())
        for name, (unit, ratios, noises) in self.figures.items():
            yield (f"{name:44} {unit:10} {shown(ratios)} {shown(noises)}" + ("  SLOWER" if name in slower else "")).rstrip()
        differing = sorted(name for name, same in self.without_speed.items() if not same)
        if self.without_speed:
            yield f"{len(self.without_speed)} figures without a speed; different: {', '.join(differing) or 'none'}"
        if self.lacking:
            yield f"in one build only: {', '.join(sorted(self.lacking))}"


def shown(ratios):
    low, high, coverage = median_interval(ratios)
    interval = f"[{low:.4f}, {high:.4f}]" + (" " if coverage >= COVERAGE else "?")
    return f"{statistics.median(ratios):8.4f} {interval:>19}"


def run(directory, bench, arguments):
    binary = pathlib.Path(directory) / f"{bench}_bench"
    done = subprocess.run([binary, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"compare_builds: {binary} ended with exit code {done.returncode}")
    try:
        return last_json_line(done.stdout)
    except (ValueError, KeyError, TypeError):
        sys.exit(f"compare_builds: the last line of {binary} is not a JSON object with figures")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="directory of the old binaries")
    parser.add_argument("--new", required=True, help="directory of the new binaries")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--bench", required=True, help="names of benchmarks without _bench, comma-separated")
    parser.add_argument("arguments", nargs="*", help="arguments for every benchmark")
    options = parser.parse_args()
    slower = []
    for bench in options.bench.split(","):
        comparison = Comparison()
        orders = itertools.cycle(itertools.permutations(["old", "new", "again"]))
        for round_number, order in zip(range(options.pairs), orders):
            print(f"{bench}: round {round_number + 1} of {options.pairs}", file=sys.stderr)
            figures = {}
            for which in order:
                figures[which] = run(options.new if which == "new" else options.old, bench, options.arguments)
            comparison.add(figures["old"], figures["new"], figures["again"])
        print(f"\n{bench}_bench, {options.pairs} pairs; ratios above 1 are faster; rank-based interval of the median")
        print("\n".join(comparison.table()), flush=True)
        slower += [f"{bench}: {name}" for name in comparison.slower()]
    print(f"\n{len(slower)} figures do not reach {MUST_REACH}" + "".join(f"\n  {name}" for name in slower))
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
