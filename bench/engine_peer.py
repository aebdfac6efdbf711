#!/usr/bin/env python3
"""Compares engine_bench with llama.cpp, in rounds that alternate. scripts/engine_peer.sh builds both and calls this.

    engine_peer.py --engine-bench FILE --model FILE [--threads N] [--rounds 3] [--prompts 512,2048] [--batches 1,4,16]
                   [--instruction-set NAME] [--peer-bin DIR]... [--peer-python FILE]...

A peer is a folder with llama-bench and llama-batched-bench (llama.cpp or a fork), or a Python that has the wheel xllamacpp.
Each round runs engine_bench and every mode of every peer; every second round runs them in reverse. The modes are flash
attention off and on, and keys and values as f16 and q8_0 (Baton always has f16). The script shows the peer's best mode.

Only equal statistics are compared:
    best   prefill: the best run of all rounds. Decode: the best mean of a round, because peers print means over many steps,
           while engine_bench's `value` is its fastest step.
    mean   the mean over the rounds of each round's mean

Same work for both: one prompt at a time; decode_1 at up to 64 tokens (the peer starts at 0, which favours it);
decode_Nx512 at 496 to 528 tokens, where the peer's best batch of any size counts.

The last line of the output is a JSON object. Its figures are those of engine_bench's best round, with these keys besides:
    peer, to_peer, peer_name          the peer's best value, our best divided by it, the peer with its mode
    mean, peer_mean, to_peer_mean, peer_mean_name, statistic
A figure that a peer does not have says so under `absent`. Standard library only.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

LEAST_ROUNDS = 3
SINGLE_STEPS = 64
DECODE_STEPS = 32
DECODE_CONTEXT = 512  # mean over the steps
# Name → (flash attention, type of keys, type of values). llama.cpp quantises values only with flash attention.
MODES = {
    "no flash attention, KV f16": (False, "f16", "f16"),
    "flash attention, KV f16": (True, "f16", "f16"),
    "no flash attention, K q8_0, V f16": (False, "q8_0", "f16"),
    "flash attention, KV q8_0": (True, "q8_0", "q8_0"),
}
WHEEL_PEER = pathlib.Path(__file__).resolve().parent / "llama_cpp_wheel.py"


class PeerFailed(Exception):
    """A peer's program failed. The text says which, and why."""


def run(arguments, environment=None):
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise PeerFailed(f"{pathlib.Path(arguments[0]).name} ended with exit code {done.returncode}: {last}")
    return done.stdout


def numbers(text):
    return [int(number) for number in text.split(",")]


def joined(values):
    return ",".join(map(str, values))


def is_single_run(figure):
    """A peer's sample of prefill is one run, as Baton's is. Its sample of decode is a mean over many steps."""
    return figure.startswith("prefill_")


def single_figures(prompts):
    """Returns {figure: (tokens of the prompt, decode steps)} of the figures with one sequence."""
    return {**{f"prefill_{prompt}_tokens_per_s": (prompt, 0) for prompt in prompts}, "decode_1_tokens_per_s": (0, SINGLE_STEPS)}


def batch_figure(batch):
    return f"decode_{batch}x512_tokens_per_s"


class Programs:
    """llama-bench and llama-batched-bench in a folder."""

    def __init__(self, directory):
        self.name = str(directory)
        self.single, self.batched = (str(pathlib.Path(directory) / name) for name in ("llama-bench", "llama-batched-bench"))
        self.help = {program: self._help(program) for program in (self.single, self.batched)}
        self.modes = {name: self._repack(name) for name in [*MODES, *self._repack_modes()]}

    @staticmethod
    def _help(program):
        try:
            done = subprocess.run([program, "--help"], capture_output=True, text=True)
        except OSError as error:
            sys.exit(f"engine_peer: cannot run {program}: {error}")
        return done.stdout + done.stderr

    def _repack_modes(self):  # of ik_llama.cpp
        return ["repacked, flash attention, KV f16"] if "run-time-repack" in self.help[self.single] else []

    @staticmethod
    def _repack(name):
        repacked = name.startswith("repacked, ")
        return (*MODES[name.removeprefix("repacked, ")], repacked)

    def _flags(self, program, mode):
        """Returns the flags of a mode. Versions differ in how they write flash attention."""
        flash, keys, values, repacked = mode
        line = next((line for line in self.help[program].splitlines() if "--flash-attn" in line), "")
        if "on|off" in line:
            flags = ["-fa", "on" if flash else "off"]
        elif program == self.single:
            flags = ["-fa", "1" if flash else "0"]
        else:
            flags = ["-fa"] if flash else []
        if repacked:
            flags += ["-rtr", "1"] if program == self.single else ["-rtr"]
        return [*flags, "-ctk", keys, "-ctv", values]

    def measure(self, mode, options):
        """Yields {figure: (samples or None, mean)} in tokens/s from each of the two programs."""
        found = {}
        text = run([self.single, "-m", options.model, "-t", str(options.threads), "-p", joined(options.prompts), "-n",
                    str(SINGLE_STEPS), "-r", "3", *self._flags(self.single, mode), "-o", "json"])
        for entry in json.loads(text):
            for figure, shape in single_figures(options.prompts).items():
                if shape == (entry["n_prompt"], entry["n_gen"]):
                    found[figure] = (entry["samples_ts"] if is_single_run(figure) else None, entry["avg_ts"])
        yield found
        found = {}
        prompt = DECODE_CONTEXT - DECODE_STEPS // 2
        text = run([self.batched, "-m", options.model, "-t", str(options.threads), "-c",
                    str(max(options.batches) * (prompt + DECODE_STEPS)), "-b", "2048", "-ub", "512", "-npp", str(prompt), "-ntg",
                    str(DECODE_STEPS), "-npl", joined(options.batches), *self._flags(self.batched, mode)])
        for line in text.splitlines():  # PP TG B N_KV T_PP S_PP T_TG S_TG …
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) > 8 and cells[1].isdigit():
                found[batch_figure(int(cells[3]))] = (None, float(cells[8]))
        yield found


class Wheel:
    """llama.cpp in the wheel xllamacpp of a Python, which needs no build but may lack this processor's instructions."""

    def __init__(self, python):
        self.python = python
        self.modes = {name: (*mode, False) for name, mode in MODES.items()}
        about = json.loads(run([python, str(WHEEL_PEER), "--about"]))
        self.name = about["version"]
        print(f"{self.name} was built with {', '.join(about['instruction_sets']) or 'no vector instructions'}")

    def measure(self, mode, options):
        flash, keys, values, _ = mode
        text = run([self.python, str(WHEEL_PEER), "--model", options.model, "--threads", str(options.threads), "--prompts",
                    joined(options.prompts), "--batches", joined(options.batches), "--keys", keys, "--values", values,
                    *(["--flash-attention"] if flash else [])])
        yield {figure: (samples if is_single_run(figure) else None, statistics.mean(samples))
               for figure, samples in json.loads(text).items()}


class Results:
    """Figures of all rounds."""

    def __init__(self):
        self.ours = {}  # figure → one JSON object for each round
        self.peers = {}  # figure → {peer and mode: [(samples or None, mean) of each round]}
        self.failures = []

    def add_ours(self, line):
        for figure in json.loads(line)["figures"]:
            if figure["value"] is not None:
                self.ours.setdefault(figure["name"], []).append(figure)

    def add_peer(self, name, found):
        for figure, measured in found.items():
            self.peers.setdefault(figure, {}).setdefault(name, []).append(measured)

    def compared(self, name, batches):
        """Returns engine_bench's figure of its best round, with the comparison."""
        rounds = self.ours[name]
        out = dict(max(rounds, key=lambda figure: figure["value"]))
        out["mean"] = statistics.mean(figure["mean_value"] for figure in rounds)
        # decode_Nx512 is compared with the best batch of any size.
        sources = [batch_figure(batch) for batch in batches] if "x512" in name else [name]
        candidates = [(f"{peer}, batch {figure[7:].split('x')[0]}" if "x512" in figure else peer, runs)
                      for figure in sources for peer, runs in self.peers.get(figure, {}).items()]
        if not candidates:
            reason = "; ".join(sorted(set(self.failures))) or "no peer reports it"
            return {**out, "peer": None, "to_peer": None, "peer_mean": None, "to_peer_mean": None,
                    "absent": f"not measured: {reason}"}
        has_samples = is_single_run(name)
        best_of = (lambda runs: max(max(samples) for samples, _ in runs)) if has_samples else (
            lambda runs: max(mean for _, mean in runs))
        our_best = out["value"] if has_samples else max(figure["mean_value"] for figure in rounds)
        best_name, best_runs = max(candidates, key=lambda candidate: best_of(candidate[1]))
        mean_of = lambda runs: statistics.mean(mean for _, mean in runs)
        mean_name, mean_runs = max(candidates, key=lambda candidate: mean_of(candidate[1]))
        return {**out, "best": our_best, "peer": best_of(best_runs), "to_peer": our_best / best_of(best_runs),
                "peer_name": best_name, "peer_mean": mean_of(mean_runs), "to_peer_mean": out["mean"] / mean_of(mean_runs),
                "peer_mean_name": mean_name, "statistic": "best run" if has_samples else "best mean of a round"}


def measure_round(results, peers, options, backwards):
    figures = [*single_figures(options.prompts), *map(batch_figure, options.batches)]
    engine = [options.engine_bench, "--model", options.model, "--threads", str(options.threads), "--only", ",".join(figures)]
    if options.instruction_set:
        engine += ["--instruction-set", options.instruction_set]

    def measure_ours():
        results.add_ours(run(engine).strip().splitlines()[-1])

    def measure_peer(peer, mode_name, mode):
        try:
            for found in peer.measure(mode, options):
                results.add_peer(f"{peer.name}: {mode_name}", found)
        except (PeerFailed, ValueError, KeyError) as error:
            results.failures.append(f"{mode_name}: {error}")
            print(f"engine_peer: {mode_name}: {error}", file=sys.stderr)

    steps = [measure_ours] + [lambda peer=peer, item=item: measure_peer(peer, *item)
                              for peer in peers for item in peer.modes.items()]
    for step in reversed(steps) if backwards else steps:
        step()


def show(figures):
    print(f"{'figure':28} {'best':>9} {'peer':>9} {'to_peer':>8} {'mean':>9} {'peer':>9} {'to_peer':>8} {'ratio':>7}  "
          "peer's best by the mean")
    for figure in figures:
        if figure["peer"] is None:
            print(f"{figure['name']:28} {figure['value']:9.1f}  {figure['absent']}")
            continue
        print(f"{figure['name']:28} {figure['best']:9.1f} {figure['peer']:9.1f} {figure['to_peer']:8.2f} {figure['mean']:9.1f} "
              f"{figure['peer_mean']:9.1f} {figure['to_peer_mean']:8.2f} {figure['ratio']:7.3f}  {figure['peer_mean_name']}"
              + ("" if figure["statistic"] == "best run" else f" ({figure['statistic']})"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine-bench", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS)
    parser.add_argument("--prompts", type=numbers, default=[512, 2048], help="some of 512, 2048 and 8000")
    parser.add_argument("--batches", type=numbers, default=[1, 4, 16], help="some of 1, 4, 8, 16, 32 and 64")
    parser.add_argument("--instruction-set", help="of engine_bench, for a peer that lacks newer instructions")
    parser.add_argument("--peer-bin", action="append", default=[])
    parser.add_argument("--peer-python", action="append", default=[])
    options = parser.parse_args()
    if options.rounds < LEAST_ROUNDS:
        parser.error(f"--rounds is {options.rounds}; fewer than {LEAST_ROUNDS} do not show the noise")
    peers = [Programs(directory) for directory in options.peer_bin] + [Wheel(python) for python in options.peer_python]
    if not peers:
        parser.error("name a peer: --peer-bin or --peer-python")
    results = Results()
    for number in range(options.rounds):
        print(f"engine_peer: round {number + 1} of {options.rounds}", file=sys.stderr)
        measure_round(results, peers, options, backwards=number % 2 == 1)
    figures = [results.compared(name, options.batches) for name in results.ours]
    condition = (f"Baton and its peers take turns on the same {options.threads} threads, {options.rounds} rounds; "
                 "each calls its engine in its own process.")
    print(condition)
    show(figures)
    print(json.dumps({"bench": "engine_peer", "seed": 0, "rounds": options.rounds, "conditions": [condition],
                      "figures": figures}))


if __name__ == "__main__":
    main()
