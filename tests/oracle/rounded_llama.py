"""The reference model with activations rounded to 8 bits in one of several ways, to study the error of each rounding.

`baton` is kernels/NUMERICS.md §3. Each other scheme changes one thing in it. Products stay float32 on dequantised
weights, so only the roundings differ. K and V are rounded to f16 as in both engines.

A scheme may end in `@` and parts of matrices' names, separated by `+`. Only the inputs of those matrices are rounded
(`baton@ffn_down`). A scheme may end in `~` and a number. The embedding is multiplied by 1 + that number of millionths.
This changes the roundings by chance, and shows how much of a figure is chance.
"""

import gguf
import numpy as np

from reference_llama import ReferenceLlama

GROUP = 32
MOST = np.float32(127)


def _divide(a, b):
    return np.divide(a, b, out=np.zeros_like(b), where=b != 0)


def _largest(groups):
    return np.abs(groups).max(axis=-1, keepdims=True)


def baton(x, group=GROUP):
    """One scale a group, largest magnitude / 127, to nearest even."""
    groups = x.reshape(len(x), -1, group)
    amax = _largest(groups)
    return (np.rint(groups * _divide(np.full_like(amax, MOST), amax)) * (amax / MOST)).reshape(x.shape)


def f16_scale(x):
    """The scale is stored as f16, as llama.cpp's Q8_0 and Q8_1 do; the integers come from the unrounded one."""
    groups = x.reshape(len(x), -1, GROUP)
    amax = _largest(groups)
    scale = (amax / MOST).astype(np.float16).astype(np.float32)
    return (np.rint(groups * _divide(np.full_like(amax, MOST), amax)) * scale).reshape(x.shape)


def groups_of_16(x):
    return baton(x, 16)


def groups_of_64(x):
    """The last group of a row whose length is no multiple of 64 stays one of 32."""
    whole = x.shape[1] // 64 * 64
    return np.concatenate([baton(part, group) for part, group in ((x[:, :whole], 64), (x[:, whole:], GROUP)) if part.size],
                          axis=1)


def power_of_two(x):
    """The scale is the next power of two above largest magnitude / 127."""
    groups = x.reshape(len(x), -1, GROUP)
    amax = _largest(groups)
    scale = np.where(amax > 0, np.exp2(np.ceil(np.log2(np.where(amax > 0, amax, 1) / MOST))), 1).astype(np.float32)
    return (np.rint(groups / scale) * scale).reshape(x.shape)


def full_range(x):
    """The value of largest magnitude becomes -128: the step is 0.8 % finer; values near the other end are clipped to 127."""
    groups = x.reshape(len(x), -1, GROUP)
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(axis=-1)[..., None], axis=-1)
    q = np.minimum(np.rint(groups * _divide(np.full_like(extreme, -128), extreme)), MOST)
    return (q * (extreme / np.float32(-128))).reshape(x.shape)


def refit(x):
    """The integers of `baton`; the scale that is best for them by least squares."""
    groups = x.reshape(len(x), -1, GROUP)
    amax = _largest(groups)
    q = np.rint(groups * _divide(np.full_like(amax, MOST), amax))
    scale = _divide((groups * q).sum(axis=-1, keepdims=True), (q * q).sum(axis=-1, keepdims=True))
    return (q * scale).reshape(x.shape)


def search(x, candidates=7):
    """The best of several steps from 127 to 133 of amax, values beyond 127 clipped, each with its least-squares scale."""
    groups = x.reshape(len(x), -1, GROUP)
    amax = _largest(groups)
    best, least = np.zeros_like(groups), np.full_like(amax, np.inf)
    for i in range(candidates):
        q = np.clip(np.rint(groups * _divide(np.full_like(amax, MOST + i), amax)), -MOST, MOST)
        scale = _divide((groups * q).sum(axis=-1, keepdims=True), (q * q).sum(axis=-1, keepdims=True))
        error = ((groups - q * scale) ** 2).sum(axis=-1, keepdims=True)
        best = np.where(error < least, q * scale, best)
        least = np.minimum(error, least)
    return best.reshape(x.shape)


def outlier(x):
    """The value of largest magnitude stays float32; the others share a scale of their own."""
    groups = x.reshape(len(x), -1, GROUP)
    at = np.abs(groups).argmax(axis=-1)[..., None]
    others = groups.copy()
    np.put_along_axis(others, at, 0, axis=-1)
    rounded = baton(others.reshape(x.shape)).reshape(groups.shape)
    np.put_along_axis(rounded, at, np.take_along_axis(groups, at, axis=-1), axis=-1)
    return rounded.reshape(x.shape)


def stochastic(x):
    """Rounds up with the probability of the fraction; the same draws for the same shape."""
    groups = x.reshape(len(x), -1, GROUP)
    amax = _largest(groups)
    draws = np.random.default_rng(1).random(groups.shape, dtype=np.float32)
    return (np.floor(groups * _divide(np.full_like(amax, MOST), amax) + draws) * (amax / MOST)).reshape(x.shape)


def int16(x):
    """As `baton` with 15 bits and a sign: two int8 planes."""
    groups = x.reshape(len(x), -1, GROUP)
    amax, most = _largest(groups), np.float32(32767)
    return (np.rint(groups * _divide(np.full_like(amax, most), amax)) * (amax / most)).reshape(x.shape)


def worst_group(x):
    """The group of a row with the largest scale has 15 bits and a sign, the others are as in `baton`."""
    largest = np.abs(x).reshape(len(x), -1, GROUP).max(axis=-1)
    return _in_two_planes(x, largest.argmax(axis=-1))


def worst_group_of_all(x):
    """As `worst_group`, but one group for all rows: that with the largest sum of squared scales over the rows given.

    Position 0 does not vote: its values are like no other's.
    """
    largest = np.abs(x).reshape(len(x), -1, GROUP).max(axis=-1)
    return _in_two_planes(x, np.full(len(x), (largest[1:] ** 2).sum(axis=0).argmax()))


def _in_two_planes(x, at):
    line = np.arange(len(x))
    rounded = baton(x).reshape(len(x), -1, GROUP)
    rounded[line, at] = int16(x).reshape(rounded.shape)[line, at]
    return rounded.reshape(x.shape)


def four_apart(x):
    """The four columns of each group that are largest over the rows given have a scale of their own."""
    groups = x.reshape(len(x), -1, GROUP)
    order = np.argsort((groups[1:] ** 2).sum(axis=0), axis=-1)[None]
    ordered = np.take_along_axis(groups, np.broadcast_to(order, groups.shape), axis=-1)
    parts = [baton(np.ascontiguousarray(part).reshape(len(x), -1), part.shape[-1]).reshape(part.shape)
             for part in (ordered[..., :-4], ordered[..., -4:])]
    rounded = np.empty_like(groups)
    np.put_along_axis(rounded, np.broadcast_to(order, groups.shape), np.concatenate(parts, axis=-1), axis=-1)
    return rounded.reshape(x.shape)


def word_apart(x):
    """The four neighbours that hold the largest magnitude of a group have a scale of their own, which is a power of two
    times the scale of the other 28: a product of integers shifts one partial sum and stays one sum."""
    words = x.reshape(len(x), -1, GROUP // 4, 4)
    largest = np.abs(words).max(axis=-1, keepdims=True)
    apart = np.arange(GROUP // 4)[:, None] == largest.argmax(axis=-2, keepdims=True)
    return _by_shift(words, apart).reshape(x.shape)


def four_apart_by_shift(x):
    """`four_apart` with scales as in `word_apart`."""
    groups = x.reshape(len(x), -1, GROUP)
    order = np.argsort((groups[1:] ** 2).sum(axis=0), axis=-1)
    apart = np.zeros(groups.shape[1:], bool)
    np.put_along_axis(apart, order[:, -4:], True, axis=-1)
    return _by_shift(groups[..., None], np.broadcast_to(apart[None, ..., None], (*groups.shape, 1))).reshape(x.shape)


def _by_shift(words, apart, most_bits=8):
    """`words` [rows, groups, words, columns]; `apart` marks words. Scales differ by a factor of 2^0 to 2^most_bits."""
    magnitude = np.abs(words).max(axis=-1, keepdims=True)
    of_rest = np.where(apart, 0, magnitude).max(axis=-2, keepdims=True)
    of_apart = np.where(apart, magnitude, 0).max(axis=-2, keepdims=True)
    ratio = np.where(of_rest > 0, of_apart / np.where(of_rest > 0, of_rest, 1), np.inf)
    bits = np.clip(np.ceil(np.log2(np.maximum(ratio, 1))), 0, most_bits)
    scale = np.maximum(of_rest, of_apart / np.exp2(bits)) / MOST  # above the rest's own where the shift does not reach
    scale = np.where(apart, scale * np.exp2(bits), scale).astype(np.float32)
    return np.clip(np.rint(np.divide(words, scale, out=np.zeros_like(words), where=scale > 0)), -MOST, MOST) * scale


def none(x):
    """Activations stay float32: what is left is f16 K and V."""
    return x


ROUNDINGS = {f.__name__: f for f in (baton, f16_scale, groups_of_16, groups_of_64, power_of_two, full_range, refit, search,
                                     outlier, worst_group, worst_group_of_all, four_apart, four_apart_by_shift, word_apart,
                                     stochastic, int16, none)}


def parse(scheme):
    """`NAME[@PART+PART…][~MILLIONTHS]` as (rounding, parts or None, factor of the embedding)."""
    name, _, millionths = scheme.partition("~")
    name, _, parts = name.partition("@")
    if name not in ROUNDINGS:
        raise ValueError(f"no rounding {name!r}; there are {', '.join(ROUNDINGS)}")
    return ROUNDINGS[name], parts.split("+") if parts else None, np.float32(1 + float(millionths or 0) * 1e-6)


class RoundedLlama(ReferenceLlama):
    """`use(scheme)` chooses how activations are rounded."""

    def __init__(self, path):
        super().__init__(path)
        self.embedding = self.weights["token_embd.weight"]
        tied = "output.weight" not in self.weights
        if tied:
            self.weights["output.weight"] = self.embedding  # a nudge is for the input alone
        # The minima of Q4_1 by group: llama.cpp rounds their factor, the scaled sum of a group, to f16 on its own.
        self.minima = {
            t.name: t.data.reshape(int(t.shape[1]), -1, 20)[..., 2:4].copy().view(np.float16)[..., 0].astype(np.float32)
            for t in gguf.GGUFReader(path).tensors if t.tensor_type == gguf.GGMLQuantizationType.Q4_1}
        if tied and "token_embd.weight" in self.minima:
            self.minima["output.weight"] = self.minima["token_embd.weight"]
        self.use("baton")

    def use(self, scheme):
        self.rounding, self.parts, factor = parse(scheme)
        self.weights["token_embd.weight"] = self.embedding * factor
        self.last = None, None
        self.reset()

    def _stored(self, kv):
        return kv.astype(np.float16).astype(np.float32)

    def _product(self, x, name):
        if self.parts is not None and name.split(".")[-2] not in self.parts:
            return super()._product(x, name)
        if self.last[0] is not x:  # Q, K and V have one input, gate and up another
            self.last = x, self.rounding(x)
        y = super()._product(self.last[1], name)
        if self.rounding is f16_scale and name in self.minima:
            y += self._error_of_sums(x, self.last[1]) @ self.minima[name].T
        return y

    @staticmethod
    def _error_of_sums(x, rounded):
        groups = x.reshape(len(x), -1, GROUP)
        amax = _largest(groups)
        sums = np.rint(groups * _divide(np.full_like(amax, MOST), amax)).sum(axis=-1, keepdims=True) * (amax / MOST)
        stored = sums.astype(np.float16).astype(np.float32)
        return stored[..., 0] - rounded.reshape(groups.shape).sum(axis=-1)
