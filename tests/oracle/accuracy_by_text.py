#!/usr/bin/env python3
"""Compares Baton and llama.cpp with a float32 reference, token by token.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0 numpy xllamacpp
    /tmp/venv/bin/python tests/oracle/accuracy_by_text.py --texts DIR --baton build/release/bin/baton --peer
    /tmp/venv/bin/python tests/oracle/accuracy_by_text.py --texts DIR --schemes baton,f16_scale,groups_of_16

DIR has one .txt file for each text. The program cuts each text into chunks of --chunk tokens. Every engine computes each
chunk from an empty cache, without a token before it. Schemes are roundings of rounded_llama.py within the reference.

For each predicted token and engine:
  nll     negative log-likelihood of the text's token, nats
  kl      Kullback-Leibler divergence of the reference's distribution to the engine's, nats
  coarse  the same over 22 events at most: the engine's 20 best tokens, the text's token, all others as one. It is a lower
          bound of kl. Baton's interface does not show more.
Differences are paired by token. Their standard errors come from a bootstrap that draws blocks of neighbouring tokens
within each text. All texts together have a second standard error, in parentheses. It draws whole texts, so it also holds
for other texts of such kinds.

Baton reports no log-likelihood of a given token. So each position is a job of one token, and a logit bias forces that
token to be the text's. The reported log-probabilities are those before the bias. The program compares their mean with
`baton perplexity`.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

import numpy as np

from accuracy import Baton
from paired_statistics import bootstrap
from reference_llama import ReferenceLlama
from rounded_llama import RoundedLlama, parse

TOP = 20
BIAS = 100
AGREEMENT = 1e-5  # of the mean of a chunk's forced tokens with `baton perplexity`, nats


class ForcedBaton(Baton):
    """Teacher forcing through `baton run`: see the top of the file."""

    def __init__(self, binary, model, threads):
        super().__init__(binary, model)
        self.threads = ["--threads", str(threads)]

    def check(self, tokens, nll):
        """The forced tokens' mean is that of `baton perplexity`."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(tokens, file)
            file.flush()
            expected = json.loads(self._run(["perplexity", "--tokens", file.name, "--json", *self.threads]))["nll"]
        if abs(float(nll.mean()) - expected) > AGREEMENT:
            sys.exit(f"forced tokens give {nll.mean():.6f} nats a token, `baton perplexity` {expected:.6f}")

    def positions(self, chunks):
        """For each chunk of tokens: [(log-probability of the next token, {token: log-probability} of the TOP best)]."""
        fixed = {"temperature": 0, "max_tokens": 1, "ignore_eos": True, "logprobs": TOP}
        # Whole chunks first: they fill the prefix cache, so that every other job computes one token.
        order = sorted(((end, c) for c, chunk in enumerate(chunks) for end in range(1, len(chunk))),
                       key=lambda job: (job[0] != len(chunks[job[1]]) - 1, job[0]))
        found = [[None] * (len(chunk) - 1) for chunk in chunks]
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for end, c in order:
                file.write(json.dumps({"id": f"{c} {end}", "prompt_token_ids": chunks[c][:end],
                                       "logit_bias": {str(chunks[c][end]): BIAS}, **fixed}) + "\n")
            file.flush()
            output = self._run(["run", "--jobs", file.name, "--json", "--concurrency", "64", "--block-size", "1",
                                "--kv-cache-mib", "2048", *self.threads])
        for line in output.splitlines():
            result = json.loads(line)
            c, end = map(int, result["id"].split())
            if result.get("token_ids") != [chunks[c][end]]:
                sys.exit(f"job {result['id']} did not give token {chunks[c][end]}: {line[:500]}")
            detail = result["logprobs"][0]
            found[c][end - 1] = detail["logprob"], {t["token_id"]: t["logprob"] for t in detail["top"]}
        return found


class Distribution:
    """Log-probabilities of a chunk's predictions, from logits [tokens, vocabulary], which are kept."""

    def __init__(self, logits, targets):
        self.logits = logits
        peak = logits.max(axis=-1, keepdims=True)
        self.powers = np.exp(logits - peak)
        sums = self.powers.sum(axis=-1, dtype=np.float64)
        self.log_sum = peak[:, 0] + np.log(sums)
        self.sums = sums
        self.nll = self.log_sum - logits[np.arange(len(targets)), targets]

    def divergence_to(self, other):
        """KL of this to `other`, by token."""
        difference = (self.powers * (self.logits - other.logits)).sum(axis=-1, dtype=np.float64) / self.sums
        return difference - self.log_sum + other.log_sum

    def best(self, count):
        """[{token: log-probability}] of the `count` best."""
        at = np.argpartition(self.logits, -count, axis=-1)[:, -count:]
        return [{int(t): float(self.logits[i, t] - self.log_sum[i]) for t in row} for i, row in enumerate(at)]

    def coarse_divergence_to(self, best, targets, nll):
        """KL to an engine of which the best tokens and the target are known, by token; all others are one event."""
        out = np.empty(len(targets))
        for i, (known, target) in enumerate(zip(best, targets)):
            known = {**known, int(target): -float(nll[i])}
            tokens, theirs = np.array(list(known)), np.array(list(known.values()))
            ours = self.logits[i, tokens].astype(np.float64) - self.log_sum[i]
            # What is left is at least a rounding error of the sum.
            rest_ours, rest_theirs = (max(1 - float(np.exp(x).sum()), 1e-7) for x in (ours, theirs))
            out[i] = float((np.exp(ours) * (ours - theirs)).sum()) + rest_ours * np.log(rest_ours / rest_theirs)
        return out


def cut(baton, folder, length, skip, most):
    """[(name, [chunk])] for every text of a folder; a rest of a quarter of `length` counts as a chunk."""
    paths = sorted(folder.glob("*.txt"))
    texts = baton.tokens([path.read_text(encoding="utf-8", errors="replace") for path in paths])
    cuts = []
    for path, tokens in zip(paths, texts):
        chunks = [tokens[i:i + length] for i in range(0, len(tokens), length)][skip:skip + most]
        chunks = [chunk for chunk in chunks if 4 * len(chunk) >= length]
        if chunks:
            cuts.append((path.stem, chunks))
    return cuts


def measure(arguments):
    """{"text", "chunk": indices by token, "texts": names, "reference nll", "ENGINE nll", "ENGINE kl", …}."""
    baton = ForcedBaton(arguments.baton, arguments.model, arguments.threads)
    cuts = cut(baton, arguments.texts, arguments.chunk, arguments.skip, arguments.chunks)
    places = [(t, c, chunk) for t, (_, chunks) in enumerate(cuts) for c, chunk in enumerate(chunks)]
    forced = None
    if arguments.engine:
        forced = baton.positions([chunk for _, _, chunk in places])
        print("baton: done", file=sys.stderr)
    peer = None
    if arguments.peer:
        from llamacpp_peer import BATCH, LlamaCpp
        peer = LlamaCpp(arguments.model, max(arguments.chunk, BATCH), arguments.threads)
    reference = ReferenceLlama(arguments.model)
    rounded = RoundedLlama(arguments.model) if arguments.schemes else None
    columns = {}

    def add(name, values):
        columns.setdefault(name, []).append(np.asarray(values))

    for index, (t, c, chunk) in enumerate(places):
        inputs, targets = chunk[:-1], np.asarray(chunk[1:])
        add("text", np.full(len(targets), t))
        add("chunk", np.full(len(targets), index))
        reference.reset()
        truth = Distribution(reference.logits(inputs), targets)
        add("reference nll", truth.nll)
        if forced:
            nll = -np.array([logprob for logprob, _ in forced[index]])
            if c == 0:
                baton.check(chunk, nll)
            add("baton nll", nll)
            add("baton coarse", truth.coarse_divergence_to([best for _, best in forced[index]], targets, nll))
        if peer:
            other = Distribution(peer.logits(inputs), targets)
            add("llama.cpp nll", other.nll)
            add("llama.cpp kl", truth.divergence_to(other))
            add("llama.cpp coarse", truth.coarse_divergence_to(other.best(TOP), targets, other.nll))
        for scheme in arguments.schemes:
            rounded.use(scheme)
            other = Distribution(rounded.logits(inputs), targets)
            add(f"rounded {scheme} nll", other.nll)
            add(f"rounded {scheme} kl", truth.divergence_to(other))
        print(f"{cuts[t][0]}, chunk {c}: done", file=sys.stderr)
        data = {"texts": np.array([name for name, _ in cuts]), **{k: np.concatenate(v) for k, v in columns.items()}}
        if arguments.save:
            np.savez(arguments.save, **data)
    return data


def join(parts):
    """Figures of several runs as of one; texts of one name are one text. Keeps the columns that all have."""
    texts, chunks, columns = [], 0, {}
    for part in parts:
        named = part["texts"][np.unique(part["text"])]  # a run that was broken off names texts without a token
        texts += [name for name in named if name not in texts]
        part["text"] = np.array([texts.index(name) if name in texts else -1 for name in part["texts"]])[part["text"]]
        part["chunk"] = part["chunk"] + chunks
        chunks = part["chunk"].max() + 1
    for name in parts[0]:
        if name != "texts" and all(name in part for part in parts):
            columns[name] = np.concatenate([part[name] for part in parts])
    return {"texts": np.array(texts), **columns}


def rows_of(data):
    """Rows of the table: (what, values by token)."""
    nll = [name[:-len(" nll")] for name in data if name.endswith(" nll") and name != "reference nll"]
    rows = [(f"nll {name} - reference", data[f"{name} nll"] - data["reference nll"]) for name in nll]
    rows += [(f"nll {nll[0]} - {name}", data[f"{nll[0]} nll"] - data[f"{name} nll"]) for name in nll[1:]]
    for kind in ("kl", "coarse"):
        names = [name for name in nll if f"{name} {kind}" in data]
        rows += [(f"{kind} {name}", data[f"{name} {kind}"]) for name in names]
        rows += [(f"{kind} {names[0]} - {name}", data[f"{names[0]} {kind}"] - data[f"{name} {kind}"])
                 for name in names[1:]]
    return rows


def print_table(data, block, seed):
    texts = [(name, data["text"] == t) for t, name in enumerate(data["texts"])]
    print(f"standard errors by bootstrap: 2,000 draws, seed {seed}; blocks of {block} tokens (whole texts)")
    print("tokens: " + ", ".join(f"{name} {int(mask.sum())}" for name, mask in texts) + f"; all {len(data['text'])}")
    print("reference nll: " + ", ".join(f"{name} {data['reference nll'][mask].mean():.4f}" for name, mask in texts)
          + f"; all {data['reference nll'].mean():.4f}")
    for what, values in rows_of(data):
        print(what)
        for name, mask in texts:
            error = bootstrap(values[mask], data["chunk"][mask], data["text"][mask], block, seed)
            print(f"  {name:16} {values[mask].mean():+.5f} ± {error:.5f}")
        errors = [bootstrap(values, data["chunk"], data["text"], block, seed),
                  bootstrap(values, data["text"], np.zeros_like(data["text"]), None, seed)]
        print(f"  {'all':16} {values.mean():+.5f} ± {errors[0]:.5f} ({errors[1]:.5f})")


def main():
    models = pathlib.Path(os.environ.get("BATON_MODEL_DIR") or pathlib.Path(
        os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "baton" / "models")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=pathlib.Path, help="folder of .txt files")
    parser.add_argument("--baton", type=pathlib.Path, help="the baton binary; it cuts texts into tokens, too")
    parser.add_argument("--model", type=pathlib.Path, help="a GGUF file of the Llama architecture",
                        default=models / "SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--no-engine", dest="engine", action="store_false", help="leave Baton's own figures out")
    parser.add_argument("--peer", action="store_true", help="llama.cpp beside it (needs xllamacpp)")
    parser.add_argument("--schemes", type=lambda text: [s for s in text.split(",") if s], default=[],
                        help="roundings to emulate, separated by commas: see rounded_llama.py")
    parser.add_argument("--chunk", type=int, default=1024, help="tokens of a chunk")
    parser.add_argument("--chunks", type=int, default=3, help="chunks of a text, at most")
    parser.add_argument("--skip", type=int, default=0, help="chunks of a text to leave out before those")
    parser.add_argument("--threads", type=int, default=1, help="threads of Baton and llama.cpp; OPENBLAS_NUM_THREADS: numpy's")
    parser.add_argument("--block", type=int, default=64, help="tokens of a block of the bootstrap")
    parser.add_argument("--seed", type=int, default=1, help="seed of the bootstrap")
    parser.add_argument("--save", type=pathlib.Path, help=".npz file for the figures of every token, written after each chunk")
    parser.add_argument("--load", type=pathlib.Path, nargs="+", help="print the table of such files; measure nothing")
    arguments = parser.parse_args()
    for scheme in arguments.schemes:
        parse(scheme)  # says what is wrong before minutes of work
    if arguments.load:
        data = join([dict(np.load(path)) for path in arguments.load])
    else:
        if not arguments.texts or not arguments.baton:
            parser.error("--texts and --baton are needed")
        data = measure(arguments)
    print_table(data, arguments.block, arguments.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
