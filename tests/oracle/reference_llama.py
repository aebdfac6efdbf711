"""Independent float32 reference of the Llama forward pass, in numpy on weights that `gguf` dequantises.

Needs gguf and numpy from PyPI. It shares nothing with the C++ code.
"""

import math

import gguf
import numpy as np


class ReferenceLlama:
    """Float32 weights, float32 arithmetic, whole-sequence attention with a cache of K and V.

    A subclass may override `_product` and `_stored` to study what rounding activations or K and V does.
    """

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        field = lambda name, default=None: (
            reader.fields[name].contents() if name in reader.fields else default)
        self.layers = field("llama.block_count")
        self.hidden = field("llama.embedding_length")
        self.heads = field("llama.attention.head_count")
        self.kv_heads = field("llama.attention.head_count_kv", self.heads)
        self.head_dim = self.hidden // self.heads
        self.epsilon = np.float32(field("llama.attention.layer_norm_rms_epsilon"))
        self.weights = {
            t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(
                tuple(reversed([int(n) for n in t.shape])))
            for t in reader.tensors}
        # Number of last tokens that each layer sees; None: all tokens.
        window = field("llama.attention.sliding_window", 0)
        pattern = field("llama.attention.sliding_window_pattern", [])
        self.windows = [window if window and i < len(pattern) and pattern[i] else None for i in range(self.layers)]
        half = self.head_dim // 2
        base = field("llama.rope.freq_base", 10000.0)
        scaling = field("llama.rope.scaling.type", "none")
        factor = field("llama.rope.scaling.factor", 1.0)
        if scaling == "ntk":  # NTK-aware: the slowest pair is divided by the factor
            base *= factor ** (self.head_dim / (self.head_dim - 2))
        self.frequencies = base ** (-np.arange(half, dtype=np.float64) * 2 / self.head_dim)
        self.rope_magnitude = 1.0
        if scaling == "linear":
            self.frequencies /= factor
        elif scaling == "yarn":
            original = field("llama.rope.scaling.original_context_length", field("llama.context_length"))
            pair_of = lambda turns: self.head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
            first = max(0, math.floor(pair_of(field("llama.rope.scaling.yarn_beta_fast", 32.0))))
            last = min(self.head_dim - 1, math.ceil(pair_of(field("llama.rope.scaling.yarn_beta_slow", 1.0))))
            stretched = np.clip((np.arange(half) - first) / max(0.001, last - first), 0, 1)
            self.frequencies *= stretched / factor + (1 - stretched)
            self.rope_magnitude = 0.1 * math.log(factor) + 1
        if "rope_freqs.weight" in self.weights:
            self.frequencies /= self.weights["rope_freqs.weight"].astype(np.float64)
        self.reset()

    def reset(self):
        self.cache = [None] * self.layers
        self.tokens = []  # fed so far
        self.length = 0

    def advance_to(self, tokens, chunk=256):
        """Brings the cache to exactly `tokens`: keeps the common prefix, drops the rest, feeds the missing tokens."""
        shared = 0
        while shared < min(len(tokens), self.length) and tokens[shared] == self.tokens[shared]:
            shared += 1
        self.cache = [c and (c[0][:shared], c[1][:shared]) for c in self.cache]
        self.tokens, self.length = self.tokens[:shared], shared
        for begin in range(shared, len(tokens), chunk):
            self.feed(tokens[begin:begin + chunk])

    def _product(self, x, name):
        """x [tokens, columns] times the matrix `name` [rows, columns]."""
        return x @ self.weights[name].T

    def _stored(self, kv):
        """K or V as the cache keeps it."""
        return kv

    def _norm(self, x, name):
        scale = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon)
        return (x * scale * self.weights[name]).astype(np.float32)

    def _rotate(self, x, positions):
        angles = positions[:, None] * self.frequencies[None, :]
        cos = (np.cos(angles) * self.rope_magnitude).astype(np.float32)[:, None, :]
        sin = (np.sin(angles) * self.rope_magnitude).astype(np.float32)[:, None, :]
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * cos - odd * sin
        out[..., 1::2] = even * sin + odd * cos
        return out

    def _attention(self, layer, x):
        count = x.shape[0]
        name = f"blk.{layer}."
        positions = np.arange(self.length, self.length + count, dtype=np.float64)
        q = self._product(x, name + "attn_q.weight").reshape(count, self.heads, self.head_dim)
        k = self._product(x, name + "attn_k.weight").reshape(count, self.kv_heads, self.head_dim)
        v = self._product(x, name + "attn_v.weight").reshape(count, self.kv_heads, self.head_dim)
        q, k, v = self._rotate(q, positions), self._stored(self._rotate(k, positions)), self._stored(v)
        if self.cache[layer] is not None:
            k = np.concatenate([self.cache[layer][0], k])
            v = np.concatenate([self.cache[layer][1], v])
        self.cache[layer] = (k, v)
        group = self.heads // self.kv_heads
        total = k.shape[0]
        age = (self.length + np.arange(count))[:, None] - np.arange(total)[None, :]
        unseen = age < 0
        if self.windows[layer] is not None:
            unseen |= age >= self.windows[layer]
        out = np.empty((count, self.heads, self.head_dim), dtype=np.float32)
        for head in range(self.heads):
            scores = (q[:, head] @ k[:, head // group].T) / np.float32(math.sqrt(self.head_dim))
            scores[unseen] = -np.inf
            scores -= scores.max(axis=-1, keepdims=True)
            p = np.exp(scores)
            p /= p.sum(axis=-1, keepdims=True)
            out[:, head] = p @ v[:, head // group]
        return self._product(out.reshape(count, -1), name + "attn_output.weight")

    def feed(self, tokens):
        """Feeds tokens; returns their last hidden states [len(tokens), hidden], before the output norm."""
        w = self.weights
        x = w["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.layers):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm.weight"))
            y = self._norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = self._product(y, f"blk.{layer}.ffn_gate.weight")
            up = self._product(y, f"blk.{layer}.ffn_up.weight")
            x = x + self._product(gate / (1 + np.exp(-gate)) * up, f"blk.{layer}.ffn_down.weight")
        self.tokens = self.tokens + list(tokens)
        self.length += len(tokens)
        return x

    def logits(self, tokens):
        """Feeds tokens; returns float32 logits [len(tokens), vocabulary]."""
        name = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        return self._product(self._norm(self.feed(tokens), "output_norm.weight"), name)

    def nll(self, tokens, chunk=256):
        """Mean negative log-likelihood of tokens[1:], in nats."""
        self.reset()
        total = 0.0
        for begin in range(0, len(tokens) - 1, chunk):
            inputs = tokens[begin:min(begin + chunk, len(tokens) - 1)]
            logits = self.logits(inputs).astype(np.float64)
            targets = np.asarray(tokens[begin + 1:begin + 1 + len(inputs)])
            peak = logits.max(axis=-1)
            log_sum = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=-1))
            total += float((log_sum - logits[np.arange(len(inputs)), targets]).sum())
        return total / (len(tokens) - 1)
