#!/usr/bin/env python3
"""Computes what exactness costs: our times for a layer of Llama 8B over those of the best free choice, from files with figures.

    exactness_cost.py FILE…     outputs of cuda_bench and of gpu_peers.py

The free choice of a product is the faster of cuBLASLt's best algorithm (exactness.NAME.tokens_T of cuda_bench) and PyTorch's
(peer.matmul.BF16.NAME.tokens_T). That of attention is the fastest backend of PyTorch, at 1,024 tokens of context for decode, and for
a chunk of 2,048 tokens without a prefix. Prints a table and one JSON line. For scripts/gpu_check.sh. Standard library only.

    exactness_cost.attention.tokens_T   our time over the peer's; the limit is 1.05
    exactness_cost.step.tokens_T        the same for the sums of four products and attention. `ops`: ours_us, best_us and the name of the best choice
"""

import json
import sys

PRODUCTS = ("qkv", "out", "gate_up", "down")
TOKENS = (1, 8, 32, 128, 2048)
MOST = 1.05
CHUNK = 2048


def figures_of(texts):
    """Returns the figures of the JSON lines by name. A line that a process left unfinished is skipped."""
    figures = {}
    for text in texts:
        for line in text.splitlines():
            if line.startswith("{"):
                try:
                    figures |= {figure["name"]: figure for figure in json.loads(line)["figures"] if figure["value"]}
                except (ValueError, KeyError, TypeError):
                    continue
    return figures


def product_times(figures, name, tokens):
    """Returns (our µs, the best µs, whose), or None if one side is missing."""
    library = figures.get(f"exactness.{name}.tokens_{tokens}")
    peer = figures.get(f"peer.matmul.BF16.{name}.tokens_{tokens}")
    own = figures.get(f"matmul.BF16.{name}.tokens_{tokens}")
    ours = library["ours_us"] if library else own["value"] if own else None
    choices = [(library["library_us"], "cuBLASLt")] if library else []
    choices += [(peer["value"], "PyTorch")] if peer else []
    return (ours, *min(choices)) if ours and choices else None


def attention_times(figures, tokens):
    """The same for attention. Both sides count the same bytes or operations, so only the rates matter."""
    if tokens == CHUNK:
        own, peer = figures.get(f"prefill.{tokens}"), figures.get(f"peer.prefill.{tokens}")
        work = 4 * 32 * 128 * tokens * (tokens + 1) / 2 / 1e12  # TFLOP of causal attention
    else:
        own = figures.get(f"attention.{tokens}x1024.blocks_of_64")
        peer = figures.get(f"peer.attention.{tokens}x1024")
        work = 4 * tokens * 1024 * 8 * 128 / 1e6  # MB of keys and values
    if not own or not peer:
        return None
    times = [figure["value"] if figure["unit"] == "us" else 1e6 * work / figure["value"] for figure in (own, peer)]
    return times[0], times[1], "PyTorch"


def costs(figures):
    """Yields figures. Pure."""
    for tokens in TOKENS:
        parts = {name: product_times(figures, name, tokens) for name in PRODUCTS}
        attention = attention_times(figures, tokens)
        if attention:
            yield figure_of(f"exactness_cost.attention.tokens_{tokens}", {"attention": attention})
        parts["attention"] = attention
        if all(parts.values()):
            yield figure_of(f"exactness_cost.step.tokens_{tokens}", parts)


def figure_of(name, parts):
    ratio = sum(ours for ours, _, _ in parts.values()) / sum(best for _, best, _ in parts.values())
    ops = {op: {"ours_us": ours, "best_us": best, "by": by} for op, (ours, best, by) in parts.items()}
    return {"name": name, "value": ratio, "unit": "times", "limit": MOST, "ratio": ratio / MOST, "ops": ops}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    texts = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    found = list(costs(figures_of(texts)))
    for figure in found:
        print(f"{figure['name']:44} {figure['value']:12.3f} times     {MOST:12.2f} {figure['ratio']:7.3f}")
    print(json.dumps({"bench": "exactness_cost", "seed": 16, "conditions": [], "figures": found}))


if __name__ == "__main__":
    main()
