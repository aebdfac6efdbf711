#!/usr/bin/env python3
"""Compares Baton's results with an independent float32 reference, and optionally those of llama.cpp.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0 numpy xllamacpp
    /tmp/venv/bin/python tests/oracle/accuracy.py --baton build/release/bin/baton --peer

There are two criteria, both on the texts and conversations of tests/testdata/texts:

1. The perplexity of all texts, one after another, is within 1 % of the reference's.
2. Greedy continuations of 48 tokens. The reference reads each continuation once (teacher forcing)
   and reports where its own best token differs. At the first such position, its best logit may be
   at most 0.5 above the logit of the chosen token (so its two best are within 0.5 too).

All prompts of one text are prefixes of it. The reference therefore computes a text once, with the
longest prompt first, and then goes back to the end of each shorter prompt. Exit code 1 if Baton
misses a criterion. The peer's figures are only reported.
"""

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from reference_llama import ReferenceLlama

TEXTS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "texts"
LENGTHS = (1, 2, 15, 16, 17, 255, 256, 257, 1000, 2047, 2048, 2049, 4095, 4096)
CONTINUATION = 48
PERPLEXITY_LIMIT = 0.01
MARGIN_LIMIT = 0.5


class Baton:
    def __init__(self, binary, model):
        self.binary, self.model = str(binary), str(model)

    def _run(self, arguments, text=None):
        done = subprocess.run([self.binary, *arguments, "--model", self.model], input=text,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{self.binary} {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def tokens(self, texts):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        output = self._run(["inspect", "tokens"], lines)
        return [json.loads(line)["ids"] for line in output.splitlines()]

    def nll(self, tokens):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(tokens, file)
            file.flush()
            return json.loads(self._run(["perplexity", "--tokens", file.name, "--json"]))["nll"]

    def greedy(self, jobs):
        """Jobs are {"prompt_token_ids"} or {"messages"}; returns [(prompt ids, continuation ids)]."""
        fixed = {"temperature": 0, "max_tokens": CONTINUATION, "ignore_eos": True}
        lines = "".join(json.dumps({"id": str(i), **job, **fixed}) + "\n" for i, job in enumerate(jobs))
        output = self._run(["run", "--jobs", "-", "--json", "--concurrency", "8"], lines)
        results = {}
        for line in output.splitlines():
            result = json.loads(line)
            if "error" in result or len(result["token_ids"]) != CONTINUATION:
                sys.exit(f"no full continuation: {line[:500]}")
            results[int(result["id"])] = (result["prompt_token_ids"], result["token_ids"])
        return [results[i] for i in range(len(jobs))]


def make_jobs(texts):
    """Takes texts as (name, ids). Returns (groups, jobs). A group is (name, indices of jobs); all its
    prompts are prefixes of one text."""
    groups, jobs = [], []

    def add(name, prompts):
        groups.append((name, list(range(len(jobs), len(jobs) + len(prompts)))))
        jobs.extend(prompts)

    everything = [token for _, ids in texts for token in ids]
    add("all texts", [{"prompt_token_ids": everything[:n]} for n in LENGTHS])
    for name, ids in texts:
        add(name, [{"prompt_token_ids": ids[:len(ids) * part // 4]} for part in (1, 3)])
    for i, messages in enumerate(json.loads((TEXTS / "chats.json").read_text(encoding="utf-8"))):
        add(f"chat {i}", [{"messages": messages}])
    return groups, jobs


def first_departure(logits, chosen):
    """(index, best - chosen, best - second) of the first token where the reference prefers another
    one; None if there is none."""
    best = logits.argmax(axis=-1)
    departures = np.flatnonzero(best != chosen)
    if len(departures) == 0:
        return None
    row = logits[departures[0]]
    top_two = np.sort(row)[-2:]
    return (int(departures[0]), float(top_two[1] - row[chosen[departures[0]]]),
            float(top_two[1] - top_two[0]))


def judge(reference, groups, engines):
    """Maps each engine's name to a list of findings. `engines` maps a name to [(prompt,
    continuation)] by job."""
    findings = {name: [] for name in engines}
    for group, indices in groups:
        prompts = {i: next(iter(engines.values()))[i][0] for i in indices}
        for i in sorted(indices, key=lambda i: -len(prompts[i])):
            for name, results in engines.items():
                continuation = results[i][1]
                reference.advance_to(prompts[i][:-1])
                logits = reference.logits(prompts[i][-1:] + continuation[:-1])
                chosen = np.asarray(continuation)
                gaps = logits.max(axis=-1) - logits[np.arange(len(chosen)), chosen]
                findings[name].append({
                    "group": group, "prompt_tokens": len(prompts[i]),
                    "departure": first_departure(logits, chosen),
                    "other_choices": int((gaps > 0).sum()), "largest_gap": float(gaps.max())})
        print(f"  {group}: done", file=sys.stderr)
    return findings


def summarise(findings, nll, reference_nll):
    departures = [f["departure"] for f in findings if f["departure"]]
    return {
        "nll": nll, "perplexity": math.exp(nll),
        "perplexity_change": math.exp(nll - reference_nll) - 1,
        "continuations": len(findings), "identical": len(findings) - len(departures),
        "departures": sorted(({"group": f["group"], "prompt_tokens": f["prompt_tokens"],
                               "at": f["departure"][0], "best_minus_chosen": f["departure"][1],
                               "best_minus_second": f["departure"][2]}
                              for f in findings if f["departure"]),
                             key=lambda d: -d["best_minus_chosen"]),
        "largest_margin_at_departure": max((d[1] for d in departures), default=0.0),
        "tokens_judged": CONTINUATION * len(findings),
        "tokens_not_the_reference_best": sum(f["other_choices"] for f in findings),
        "largest_margin_anywhere": max(f["largest_gap"] for f in findings),
    }


def print_table(report):
    print(f"{report['tokens']} tokens of text; reference NLL {report['reference']['nll']:.5f}, "
          f"perplexity {report['reference']['perplexity']:.4f}")
    for name, s in report["engines"].items():
        print(f"{name}: NLL {s['nll']:.5f}, perplexity {s['perplexity']:.4f} "
              f"({s['perplexity_change']:+.3%}); {s['identical']} of {s['continuations']} continuations "
              f"identical, largest margin at a departure {s['largest_margin_at_departure']:.4f}; "
              f"{s['tokens_not_the_reference_best']} of {s['tokens_judged']} tokens are not the "
              f"reference's best in their own context, by at most {s['largest_margin_anywhere']:.4f}")
        for d in s["departures"]:
            print(f"  {d['group']}, {d['prompt_tokens']} tokens: leaves at {d['at']}, "
                  f"best - chosen {d['best_minus_chosen']:.4f}, best - second {d['best_minus_second']:.4f}")


def main():
    models = pathlib.Path(os.environ.get("BATON_MODEL_DIR") or pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "baton" / "models")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the baton binary")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file of the Llama architecture",
                        default=models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--peer", action="store_true", help="also measure llama.cpp (needs xllamacpp)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    baton = Baton(arguments.baton, arguments.model)
    names = sorted(TEXTS.glob("*.txt"))
    texts = list(zip([path.name for path in names],
                     baton.tokens([path.read_text(encoding="utf-8") for path in names])))
    everything = [token for _, ids in texts for token in ids]
    groups, jobs = make_jobs(texts)

    print("baton ...", file=sys.stderr)
    engines = {"baton": baton.greedy(jobs)}
    nlls = {"baton": baton.nll(everything)}
    if arguments.peer:
        from llamacpp_peer import LlamaCpp
        print("llama.cpp ...", file=sys.stderr)
        peer = LlamaCpp(arguments.model, len(everything) + CONTINUATION, os.cpu_count())
        nlls[peer.version] = peer.nll(everything)
        engines[peer.version] = [(prompt, peer.greedy(prompt, CONTINUATION))
                                 for prompt, _ in engines["baton"]]
    print("reference ...", file=sys.stderr)
    reference = ReferenceLlama(arguments.model)
    reference_nll = reference.nll(everything)
    findings = judge(reference, groups, engines)

    report = {"tokens": len(everything),
              "reference": {"nll": reference_nll, "perplexity": math.exp(reference_nll)},
              "engines": {name: summarise(findings[name], nlls[name], reference_nll)
                          for name in engines}}
    ours = report["engines"]["baton"]
    report["pass"] = (abs(ours["perplexity_change"]) <= PERPLEXITY_LIMIT
                      and ours["largest_margin_at_departure"] <= MARGIN_LIMIT)
    if arguments.json:
        print(json.dumps(report))
    else:
        print_table(report)
        print("pass" if report["pass"] else "FAIL")
    return 0 if report["pass"] else 1


if __name__ == "__main__":
    sys.exit(main())
