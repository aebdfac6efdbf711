#!/usr/bin/env python3
"""Writes tests/testdata/window_golden.json: logits of tiny-window-q4_0 at some positions of a text.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0 numpy
    /tmp/venv/bin/python tests/oracle/window_golden.py

numpy computes the logits in binary32 on the weights that `gguf` dequantises (reference_llama.py).
"""
import json
import pathlib

import numpy as np

from reference_llama import ReferenceLlama

TESTDATA = pathlib.Path(__file__).parent.parent / "testdata"
TOKENS = 100
# The last token that sees all tokens before it, the first that does not, and tokens far beyond the window.
POSITIONS = [23, 24, 40, 99]


def main():
    model = ReferenceLlama(str(TESTDATA / "models" / "tiny-window-q4_0.gguf"))
    tokens = [int(t) for t in np.random.default_rng(20261122).integers(8, 320, TOKENS)]
    logits = model.logits(tokens)
    rows = [{"position": p, "logits": [float(f"{x:.6g}") for x in logits[p]]} for p in POSITIONS]
    path = TESTDATA / "window_golden.json"
    path.write_text(json.dumps({"tokens": tokens, "rows": rows}) + "\n")
    print(f"{path.stat().st_size:8} {path}")


if __name__ == "__main__":
    main()
