#!/usr/bin/env python3
"""Compares Baton's answers to prompts in parts with an independent float32 reference, in all four modes and with repairs.

    scripts/oracle_python.sh          # prints a Python with gguf and numpy
    PYTHON tests/oracle/chunk_accuracy.py --baton build/release/bin/baton

The prompts are a system part, chunks and a question, cut from tests/testdata/texts. Baton answers each prompt greedily, in each
mode and once as one ordinary prompt of the same tokens, with log-probabilities. The reference reads the answer (teacher forcing)
and gives its own log-probabilities at the same places. There are two criteria:

1. The error of a mode is as small as that of ordinary prompts: the mean over its answers of |log-probability of Baton - that of
   the reference|, over the 20 tokens that Baton ranks highest, is at most 1.5 times the ordinary mean.
2. Where the reference would first choose another token, its best logit is at most 0.5 above the chosen token's.

"Apart" is how far the reference's first log-probabilities of a mode are from the ordinary ones. A mode whose error is much smaller
than that was really computed. Exit code 1 if Baton misses a criterion.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from chunked_reference import MODES, REPAIRED, ChunkedReference, Prompt

TEXTS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "texts"
TOP = 20
ERROR_LIMIT = 1.5
MARGIN_LIMIT = 0.5
# (system, chunks, question) in tokens. Lengths at and beside multiples of a block and of an attention tile, and parts longer than
# one tile.
SHAPES = ((64, (128, 128, 128, 128), 32), (17, (255, 1, 256, 100), 9), (0, (300, 40), 16), (256, (256,), 20), (5, (), 30))


def name_of(mode):
    return "ordinary" if mode is None else "/".join(mode)


def run_baton(binary, arguments, text):
    done = subprocess.run([str(binary), *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{binary} {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}\n{done.stdout[:2000]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def text_tokens(binary, model):
    lines = "".join(json.dumps({"text": path.read_text(encoding="utf-8")}) + "\n" for path in sorted(TEXTS.glob("*.txt")))
    results = run_baton(binary, ["inspect", "tokens", "--model", str(model)], lines)
    return [token for result in results for token in result["ids"]]


def make_prompts(tokens, shapes):
    """Cuts the parts from different places of the text, so that neighbours do not continue each other."""
    prompts, at = [], 0

    def take(count):
        nonlocal at
        at = (at + 7919) % (len(tokens) - count)
        return tokens[at:at + count]

    for system, chunks, question in shapes:
        prompts.append(Prompt(take(system), [take(count) for count in chunks], take(question)))
    return prompts


def job_of(name, prompt, mode, answer_tokens):
    job = {"id": name, "temperature": 0, "max_tokens": answer_tokens, "ignore_eos": True, "logprobs": TOP}
    if mode is None:
        return {**job, "prompt_token_ids": prompt.flat()}
    return {**job, "system": prompt.system, "chunks": prompt.chunks, "question": prompt.question,
            "chunk_positions": mode[0], "chunk_scope": mode[1], "chunk_repair": (*mode, "none")[2]}


def ask(binary, model, prompts, answer_tokens, flags=()):
    """Returns {(index of the prompt, mode): result}."""
    keys = [(i, mode) for i in range(len(prompts)) for mode in (None, *MODES, *REPAIRED)]
    lines = "".join(json.dumps(job_of(str(n), prompts[i], mode, answer_tokens)) + "\n" for n, (i, mode) in enumerate(keys))
    results = run_baton(binary, ["run", "--model", str(model), "--jobs", "-", "--json", *flags], lines)
    for result in results:
        if "error" in result or len(result["token_ids"]) != answer_tokens:
            sys.exit(f"no full answer: {json.dumps(result)[:500]}")
    return {keys[int(result["id"])]: result for result in results}


def log_softmax(logits):
    logits = logits.astype(np.float64)
    peak = logits.max(axis=-1, keepdims=True)
    return logits - peak - np.log(np.exp(logits - peak).sum(axis=-1, keepdims=True))


def errors(result, reference):
    """|log-probability of Baton - of the reference| of Baton's top tokens at every place. `reference`: logits."""
    expected = log_softmax(reference)
    return [abs(top["logprob"] - expected[i, top["token_id"]])
            for i, detail in enumerate(result["logprobs"]) for top in detail["top"]]


def margin(result, reference):
    """How much the reference prefers another token at the first place where it does; 0 if it never does."""
    chosen = np.asarray(result["token_ids"])
    departures = np.flatnonzero(reference.argmax(axis=-1) != chosen)
    if len(departures) == 0:
        return 0.0
    first = departures[0]
    return float(reference[first].max() - reference[first, chosen[first]])


def compare(reference, prompts, results):
    """Returns {mode: figures}."""
    figures = {}
    ordinary = [reference.answer_logits(prompt, results[i, None]["token_ids"], None) for i, prompt in enumerate(prompts)]
    for mode in dict.fromkeys(mode for _, mode in results):
        all_errors, margins, apart, nll = [], [], [], []
        for i, prompt in enumerate(prompts):
            result = results[i, mode]
            logits = ordinary[i] if mode is None else reference.answer_logits(prompt, result["token_ids"], mode)
            all_errors.append(float(np.mean(errors(result, logits))))
            margins.append(margin(result, logits))
            nll.append(float(-log_softmax(logits)[np.arange(len(logits)), result["token_ids"]].mean()))
            # The first row has the same question behind it in every mode, so it shows the mode alone.
            apart.append(float(np.abs(log_softmax(logits[:1]) - log_softmax(ordinary[i][:1])).mean()))
        figures[mode] = {"mean_error": float(np.mean(all_errors)), "largest_error": max(all_errors), "margin": max(margins),
                         "nll_of_answer": float(np.mean(nll)), "apart_from_ordinary": float(np.mean(apart))}
        print(f"  {name_of(mode)}: done", file=sys.stderr)
    return figures


def verdicts(figures):
    """Returns a line for each criterion that a mode misses."""
    missed, limit = [], ERROR_LIMIT * figures[None]["mean_error"]
    for mode, f in figures.items():
        if mode is not None and f["mean_error"] > limit:
            missed.append(f"{name_of(mode)}: mean error {f['mean_error']:.5f}; at most {limit:.5f} is allowed")
        if f["margin"] > MARGIN_LIMIT:
            missed.append(f"{name_of(mode)}: margin {f['margin']:.4f}; at most {MARGIN_LIMIT} is allowed")
    return missed


def main(argv=None):
    models = pathlib.Path(os.environ.get("BATON_MODEL_DIR") or pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "baton" / "models")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the baton binary")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file of the Llama architecture",
                        default=models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--answer-tokens", type=int, default=16)
    parser.add_argument("--shapes", type=int, default=len(SHAPES), help="number of prompts, from the first on")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("flags", nargs="*", help="flags for `baton run`, after --")
    arguments = parser.parse_args(argv)
    prompts = make_prompts(text_tokens(arguments.baton, arguments.model), SHAPES[:arguments.shapes])
    results = ask(arguments.baton, arguments.model, prompts, arguments.answer_tokens, arguments.flags)
    figures = compare(ChunkedReference(str(arguments.model)), prompts, results)
    missed = verdicts(figures)
    if arguments.json:
        print(json.dumps({"modes": {name_of(mode): f for mode, f in figures.items()}, "missed": missed}))
    else:
        for mode, f in figures.items():
            print(f"{name_of(mode):18} mean error {f['mean_error']:.5f}, largest of a prompt {f['largest_error']:.5f}, margin "
                  f"{f['margin']:.4f}, NLL {f['nll_of_answer']:.4f}, apart from ordinary {f['apart_from_ordinary']:.4f}")
        print("\n".join(missed) or "pass")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
