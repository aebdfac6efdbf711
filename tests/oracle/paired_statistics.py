"""Standard error of a mean over tokens whose errors hang together with those of their neighbours."""

import numpy as np


def blocks_of(chunk, length):
    """Index ranges [(begin, end)] of at most `length` neighbours within one chunk; `length` None: whole chunks."""
    edges = [0, *(np.flatnonzero(np.diff(chunk)) + 1), len(chunk)]
    return [(start, min(start + length, end) if length else end)
            for begin, end in zip(edges, edges[1:]) for start in range(begin, end, length or end - begin)]


def bootstrap(values, chunk, text, length, seed, draws=2000):
    """Standard error of values.mean() where blocks are drawn anew within each text, with replacement.

    nan where a text has one block: nothing can be drawn there.
    """
    random = np.random.default_rng(seed)
    total, count = np.zeros(draws), np.zeros(draws)
    blocks = blocks_of(chunk, length)
    for t in np.unique(text):
        sums = np.array([(values[b:e].sum(), e - b) for b, e in blocks if text[b] == t])
        if len(sums) == 1:
            return float("nan")
        drawn = random.integers(0, len(sums), (draws, len(sums)))
        total += sums[drawn, 0].sum(axis=1)
        count += sums[drawn, 1].sum(axis=1)
    return float((total / count).std(ddof=1))
