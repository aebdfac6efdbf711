#!/usr/bin/env python3
"""Chooses the slice of the longer checks that CI runs for a commit.

    ci_slice.py choose     prints the slice of the checked-out commit; prints the reason to standard error
    ci_slice.py trial      prints the slice on trial that this commit runs besides; nothing if none is on trial
    ci_slice.py changed    prints the paths that the commit changed, one on each line
    ci_slice.py kernels    prints the CUDA sources whose code these paths changed, also by their includes, one on each line
    ci_slice.py list       prints all slices

A submission runs one slice (scripts/ci_slice.sh). The changed paths name the slices that test them. The commit's number
picks one of those, so a few submissions cover all. If no path names a slice, only the number decides.

The paths changed since $BATON_CI_BASE count, or else since the fork from origin/main, or else since the commit's first parent.
Standard library only.
"""

import os
import pathlib
import re
import subprocess
import sys

SLICES = ["heavy", "asan", "tsan", "asan-grpc", "cuda", "fuzz", "tidy"]
# Slices of which some checks have never passed. CI runs one of them in the time that is left, and its faults do not fail CI;
# `.ci/run --slice NAME` and scripts/nightly.sh run them too. A slice leaves this list when each of its checks has passed on one tree
# or on later ones.
ON_TRIAL = []

# Pattern of a path → the slices that test it.
RULES = [(re.compile(pattern), slices) for pattern, slices in [
    (r"\.(cc|h|cu|cuh)$|^\.clang-(tidy|format)$|^scripts/check_style\.py$", ["tidy"]),
    (r"^(common|security|http|metrics|tracing|text|requests|openai|kernels|cache|scheduler|routing|router|model|kvtransfer|engine|loadtest|cli)/.*\.(cc|h)$", ["asan"]),
    (r"^(common|security|http|metrics|tracing|kernels|cache|model|kvtransfer|engine)/.*\.(cc|h)$|^router/[^/]*\.(cc|h)$", ["tsan"]),
    (r"^bench/.*\.h$|^tests/bench/.*\.cc$", ["asan"]),
    (r"^(proto|observe|rpc|tracing/otlp|worker_rpc|router/(grpc|http|server)|worker|prefill_worker|decode_worker)/", ["asan-grpc"]),
    (r"^(scheduler|router|routing|engine|kvtransfer|worker_rpc|worker|prefill_worker|decode_worker)/", ["heavy"]),
    (r"^(cli|tests/e2e)/", ["heavy"]),
    (r"^tests/(common|security|http|metrics|tracing|text|requests|openai|kernels|cache|scheduler|routing|router|model|kvtransfer|engine|loadtest|cli|sim)/", ["asan", "tsan"]),
    (r"^tests/(observe|rpc|tracing/otlp|worker_rpc|router/(grpc|http)|e2e)/.*\.cc$", ["asan-grpc"]),
    (r"^(kernels|tests)/cuda/|^tests/gpu_emulator/|^kernels/tensor_core/|\.cuh?$|^scripts/(compile_cuda\.sh|kernel_spills\.py|tensor_instructions\.py|early_accesses\.py)$", ["cuda"]),
    (r"^scripts/fuzz\.sh$|^(tests/fuzz|security|http|requests|openai|text/jinja|kvtransfer/protocol|kvtransfer/nccl)/|^model/gguf|^cache/index/kv_event"
     r"|^rpc/(chunked_prompt|prompt_chunks)_wire|^worker_rpc/request_conversion|^engine/(handoff_manifest|part_tickets)", ["fuzz"]),
]]


def choose(changed, number, on_trial=()):
    """Returns the slice for a commit with these changed paths and this number, none of `on_trial`. Pure."""
    named = {slice for path in changed for pattern, slices in RULES if pattern.search(path) for slice in slices}
    usable = [slice for slice in SLICES if slice not in on_trial]
    candidates = [slice for slice in usable if slice in named] or usable
    return candidates[number % len(candidates)]


def choose_trial(changed, number):
    """Returns the slice on trial for a commit, or None. Pure."""
    return choose(changed, number, [slice for slice in SLICES if slice not in ON_TRIAL]) if ON_TRIAL else None


def affected(sources, changed, text_of):
    """Returns those of the sources that are changed, or that include a changed file, directly or not. text_of: {path: text}. Pure."""
    def reach(path, seen):
        if path in text_of and path not in seen:
            seen.add(path)
            for included in re.findall(r'^#include "([^"]+)"', text_of[path], re.MULTILINE):
                reach(included, seen)
        return seen
    return [source for source in sources if not reach(source, set()).isdisjoint(changed)]


def affected_kernels(changed):
    root = pathlib.Path(__file__).resolve().parents[1]
    sources = sorted(path.relative_to(root).as_posix() for folder in ("kernels/cuda", "tests/cuda", "bench") for path in (root / folder).glob("*.cu"))
    text_of = {path.relative_to(root).as_posix(): path.read_text() for folder in ("kernels", "common", "tests/cuda", "bench")
               for path in (root / folder).rglob("*") if path.suffix in (".cu", ".cuh", ".h")}
    return affected(sources, changed, text_of)


def git(*arguments):
    """Returns the output of git, or None if it fails."""
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def base_commit():
    """Returns the commit from which changes count, or None if this clone does not have the commit's parent."""
    if given := os.environ.get("BATON_CI_BASE"):
        return given
    fork = git("merge-base", "HEAD", "origin/main")
    if fork and fork != git("rev-parse", "HEAD"):
        return fork
    return git("rev-parse", "--verify", "--quiet", "HEAD^")


def changed_paths():
    base = base_commit()
    names = git("diff", "--name-only", "--diff-filter=d", base, "HEAD") if base else None
    return names.splitlines() if names else []


def commit_number():
    """The commit's number in its history. A shallow clone lacks the history: the commit's hash stands in."""
    if git("rev-parse", "--is-shallow-repository") == "false":
        return int(git("rev-list", "--count", "HEAD"))
    return int(git("rev-parse", "HEAD") or "0", 16)


def main():
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command == "choose":
        changed, number = changed_paths(), commit_number()
        print(f"ci_slice: commit number {number}, {len(changed)} changed paths since {base_commit()}", file=sys.stderr)
        print(choose(changed, number, ON_TRIAL))
    elif command == "trial":
        if slice := choose_trial(changed_paths(), commit_number()):
            print(slice)
    elif command == "changed":
        print("\n".join(changed_paths()))
    elif command == "kernels":
        print("\n".join(affected_kernels(changed_paths())))
    elif command == "list":
        print("\n".join(SLICES))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
