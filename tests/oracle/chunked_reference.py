"""Independent float32 reference of prompts in parts: a system part, chunks and a question with its answer.

It shares nothing with the C++ code. It keeps K before rotation and rotates it again for every part that sees it, so it needs
neither the runs nor the shifted queries of the engine. README and docs/decisions/0033 describe the modes:

    positions  overlap: every chunk begins behind the system part, the question behind the longest chunk
               sequential: each part begins behind the part before it
    scope      system: a chunk sees the system part and itself; alone: only itself

A chunk is computed as if it stood directly behind the system part (scope system) or at position 0 (scope alone), wherever it
stands in the prompt. The question and the answer see everything, each part at its position in the prompt.

A repair computes chosen tokens of the chunks again, at their positions in the prompt, with attention to everything before them
(issue 17, "Repair"; docs/decisions/0037). A token that it does not choose keeps its K and V:

    first:K    the first K tokens of each chunk
    share:R    the share R of all chunk tokens whose K and V of layer 1 change most, if layer 0 sees everything before them

With scope system, the first chunk is left out.
"""

import fractions
import math
import typing

import numpy as np

from reference_llama import ReferenceLlama

POSITIONS = ("overlap", "sequential")
SCOPES = ("system", "alone")
MODES = tuple((positions, scope) for positions in POSITIONS for scope in SCOPES)
# Some modes with a repair.
REPAIRED = tuple((*mode, repair) for mode in MODES for repair in ("first:4", "first:4096", "share:0.15", "share:1"))


class Prompt(typing.NamedTuple):
    """Token ids."""
    system: list
    chunks: list
    question: list

    def flat(self):
        return self.system + [token for chunk in self.chunks for token in chunk] + self.question


class Part:
    """K before rotation, and V, of a part in every layer: [tokens, kv_heads, head_dim]."""

    def __init__(self):
        self.keys = []
        self.values = []

    def at(self, layer, rotate, begin):
        """K of this part as it stands at position `begin`, and V."""
        return rotate(self.keys[layer], begin + np.arange(len(self.keys[layer]), dtype=np.float64)), self.values[layer]


def chunk_begins(prompt, positions):
    """Positions of the chunks, and of the question."""
    begins, end = [], len(prompt.system)
    for chunk in prompt.chunks:
        begins.append(len(prompt.system) if positions == "overlap" else end)
        end = max(end, begins[-1] + len(chunk))
    return begins, end


class ChunkedReference(ReferenceLlama):
    """Computes parts. A model with sliding windows is refused, as the engine refuses it."""

    def __init__(self, path):
        super().__init__(path)
        if any(window is not None for window in self.windows):
            raise ValueError(f"{path} has layers with a sliding window")

    def _compute(self, tokens, begin, before):
        """Computes a part at `begin`. `before`: [(part, its position)] that it sees. Returns (Part, last hidden states)."""
        part, w, count = Part(), self.weights, len(tokens)
        places = begin + np.arange(count, dtype=np.float64)
        x = w["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.layers):
            name = f"blk.{layer}."
            y = self._norm(x, name + "attn_norm.weight")
            q = self._rotate(self._product(y, name + "attn_q.weight").reshape(count, self.heads, self.head_dim), places)
            part.keys.append(self._product(y, name + "attn_k.weight").reshape(count, self.kv_heads, self.head_dim))
            part.values.append(self._product(y, name + "attn_v.weight").reshape(count, self.kv_heads, self.head_dim))
            seen = [other.at(layer, self._rotate, place) for other, place in before]
            seen.append(part.at(layer, self._rotate, begin))
            x = x + self._seen(q, np.concatenate([k for k, _ in seen]), np.concatenate([v for _, v in seen]),
                               name + "attn_output.weight")
            y = self._norm(x, name + "ffn_norm.weight")
            gate, up = self._product(y, name + "ffn_gate.weight"), self._product(y, name + "ffn_up.weight")
            x = x + self._product(gate / (1 + np.exp(-gate)) * up, name + "ffn_down.weight")
        return part, x

    def _seen(self, q, k, v, output):
        """Attention of the last len(q) of len(k) tokens: each sees all tokens before its part, and its part up to itself."""
        count, total, group = len(q), len(k), self.heads // self.kv_heads
        unseen = np.arange(total)[None, :] > (total - count + np.arange(count))[:, None]
        out = np.empty((count, self.heads, self.head_dim), dtype=np.float32)
        for head in range(self.heads):
            scores = (q[:, head] @ k[:, head // group].T) / np.float32(math.sqrt(self.head_dim))
            scores[unseen] = -np.inf
            p = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = p / p.sum(axis=-1, keepdims=True) @ v[:, head // group]
        return self._product(out.reshape(count, -1), output)

    def _full_frame_layer(self, layer, x, rows, places, keys, values):
        """One layer for the rows of a prompt. `keys` (before rotation) and `values` of all tokens get those of the rows, which
        see every token up to themselves. Returns the rows' hidden states behind the layer."""
        w, name, count = self.weights, f"blk.{layer}.", len(rows)
        y = self._norm(x, name + "attn_norm.weight")
        q = self._rotate(self._product(y, name + "attn_q.weight").reshape(count, self.heads, self.head_dim), places[rows])
        keys[rows] = self._product(y, name + "attn_k.weight").reshape(count, self.kv_heads, self.head_dim)
        values[rows] = self._product(y, name + "attn_v.weight").reshape(count, self.kv_heads, self.head_dim)
        k, unseen = self._rotate(keys, places), np.arange(len(keys))[None, :] > rows[:, None]
        out, group = np.empty((count, self.heads, self.head_dim), dtype=np.float32), self.heads // self.kv_heads
        for head in range(self.heads):
            scores = (q[:, head] @ k[:, head // group].T) / np.float32(math.sqrt(self.head_dim))
            scores[unseen] = -np.inf
            p = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = p / p.sum(axis=-1, keepdims=True) @ values[:, head // group]
        x = x + self._product(out.reshape(count, -1), name + "attn_output.weight")
        y = self._norm(x, name + "ffn_norm.weight")
        gate, up = self._product(y, name + "ffn_gate.weight"), self._product(y, name + "ffn_up.weight")
        return x + self._product(gate / (1 + np.exp(-gate)) * up, name + "ffn_down.weight")

    def _most_changed(self, tokens, rows, places, parts, share):
        """The rows whose K (after rotation, as stored) and V of layer 1 change most, rising. Rotation multiplies lengths by
        rope_magnitude."""
        keys, values = (np.concatenate([getattr(part, kind)[0] for part in parts]) for kind in ("keys", "values"))
        x = self._full_frame_layer(0, self.weights["token_embd.weight"][tokens[rows]], rows, places, keys, values)
        y = self._norm(x, "blk.1.attn_norm.weight")
        change = np.zeros(len(rows))
        for kind, weight, magnitude in (("keys", "blk.1.attn_k.weight", self.rope_magnitude), ("values", "blk.1.attn_v.weight", 1)):
            stored = np.concatenate([getattr(part, kind)[1] for part in parts])[rows].reshape(len(rows), -1)
            change += ((magnitude * (self._product(y, weight) - stored)).astype(np.float64) ** 2).sum(axis=-1)
        wanted = math.ceil(fractions.Fraction(share) * len(rows))
        return np.sort(rows[np.argsort(-change, kind="stable")[:wanted]])

    def repair(self, prompt, before, scope, repair):
        """Copies of the parts `before`, [(part, its position)], with the repaired K and V. One has the tokens of the prompt."""
        kind, _, amount = repair.partition(":")
        lengths = [len(prompt.system)] * bool(prompt.system) + [len(chunk) for chunk in prompt.chunks]
        begins = np.cumsum([0] + lengths)
        first = bool(prompt.system) + (scope == "system")
        rows = np.asarray([begin + i for begin, length in list(zip(begins, lengths))[first:]
                           for i in range(min(length, int(amount) if kind == "first" else length))], dtype=np.int64)
        if len(rows) == 0 or amount == "0":
            return before
        tokens = np.asarray(prompt.flat()[:begins[-1]])
        places = np.concatenate([place + np.arange(length, dtype=np.float64) for (_, place), length in zip(before, lengths)])
        parts = [part for part, _ in before]
        if kind == "share":
            rows = self._most_changed(tokens, rows, places, parts, amount)
        repaired = [Part() for _ in parts]
        x = self.weights["token_embd.weight"][tokens[rows]]
        for layer in range(self.layers):
            keys, values = (np.concatenate([getattr(part, kind)[layer] for part in parts]) for kind in ("keys", "values"))
            x = self._full_frame_layer(layer, x, rows, places, keys, values)
            for part, begin, length in zip(repaired, begins, lengths):
                part.keys.append(keys[begin:begin + length])
                part.values.append(values[begin:begin + length])
        return [(part, place) for part, (_, place) in zip(repaired, before)]

    def chunked_logits(self, prompt, answer=(), positions="overlap", scope="system", repair="none"):
        """Float32 logits behind each token of the question and of the answer: [tokens, vocabulary]."""
        before = []
        if prompt.system:
            before.append((self._compute(prompt.system, 0, [])[0], 0))
        frame = list(before) if scope == "system" else []
        frame_end = len(prompt.system) if scope == "system" else 0
        begins, question_begin = chunk_begins(prompt, positions)
        for chunk, begin in zip(prompt.chunks, begins):
            before.append((self._compute(chunk, frame_end, frame)[0], begin))
        if repair != "none":
            before = self.repair(prompt, before, scope, repair)
        _, x = self._compute(list(prompt.question) + list(answer), question_begin, before)
        name = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        return self._product(self._norm(x, "output_norm.weight"), name)

    def answer_logits(self, prompt, answer, mode):
        """Logits from which each token of the answer was chosen. `mode`: of MODES or REPAIRED; None: one ordinary prompt."""
        if mode is not None:
            return self.chunked_logits(prompt, answer[:-1], *mode)[len(prompt.question) - 1:]
        self.reset()
        tokens = prompt.flat()
        return self.logits(tokens + list(answer[:-1]))[len(tokens) - 1:]
