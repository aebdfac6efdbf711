"""Quantises to Q4_K, Q5_K and Q6_K, which the `gguf` package reads but does not write.

Rounds to nearest with one scale per group, without ggml's search for better scales. This is good enough for tests of
correctness and speed, but not for measuring quality.
"""
import numpy as np

BLOCK = 256


def nearest(values, low, high):
    return np.clip(np.rint(values), low, high).astype(np.int32)


def divide(values, by):
    return np.divide(values, by, out=np.zeros_like(values), where=by != 0)


def halves(values):
    """Returns the bytes of the f16 values, and the values widened to float32."""
    half = values.astype(np.float16)
    return half.view(np.uint8), half.astype(np.float32)


def six_bit_bytes(scales, minima):
    """Packs two [n, 8] arrays of six-bit numbers into the twelve bytes of each block."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    third = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1).astype(np.uint8)


def nibble_bytes(q, width):
    """Packs [n, 256] four-bit numbers. Of 2 × `width` numbers, the first half goes into the low halves of `width` bytes, the rest
    into their high halves."""
    pairs = q.reshape(len(q), -1, 2, width)
    return (pairs[:, :, 0] | pairs[:, :, 1] << 4).reshape(len(q), -1).astype(np.uint8)


def with_minima(values, bits):
    """Quantises to Q4_K or Q5_K: w = d·s·q − e·m."""
    groups = values.reshape(-1, 8, 32)
    minimum = np.maximum(0, -groups.min(axis=2))
    scale = (np.maximum(0, groups.max(axis=2)) + minimum) / (2 ** bits - 1)
    d_bytes, d = halves(scale.max(axis=1, keepdims=True) / 63)
    e_bytes, e = halves(minimum.max(axis=1, keepdims=True) / 63)
    s = nearest(divide(scale, d), 0, 63)
    m = nearest(divide(minimum, e), 0, 63)
    q = nearest(divide(groups + (e * m)[..., None], (d * s)[..., None]), 0, 2 ** bits - 1).reshape(-1, BLOCK)
    parts = [d_bytes, e_bytes, six_bit_bytes(s, m)]
    if bits == 5:
        high = (q >> 4).reshape(-1, 8, 32) << np.arange(8).reshape(1, 8, 1)
        parts.append(high.sum(axis=1).astype(np.uint8))
    return np.concatenate(parts + [nibble_bytes(q & 15, 32)], axis=1)


def q6_k(values):
    """Quantises to Q6_K: w = d·s·(q − 32)."""
    groups = values.reshape(-1, 16, 16)
    at = np.abs(groups).argmax(axis=2)[..., None]
    scale = -np.take_along_axis(groups, at, axis=2)[..., 0] / 32
    largest = np.abs(scale).max(axis=1, keepdims=True)
    d_bytes, d = halves(largest / 127)
    s = nearest(divide(scale, d), -128, 127)
    q = (nearest(divide(groups, (d * s)[..., None]), -32, 31) + 32).reshape(-1, BLOCK)
    high = (q >> 4).reshape(-1, 2, 4, 32) << (2 * np.arange(4)).reshape(1, 1, 4, 1)
    high = high.sum(axis=2).reshape(-1, 64).astype(np.uint8)
    return np.concatenate([nibble_bytes(q & 15, 64), high, s.astype(np.int8).view(np.uint8), d_bytes], axis=1)


def quantize_k(values, name):
    """Quantises float32 [rows, cols] to uint8 [rows, bytes per row]. `cols` must be a multiple of 256."""
    flat = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, BLOCK)
    blocks = q6_k(flat) if name == "Q6_K" else with_minima(flat, int(name[1]))
    return blocks.reshape(values.shape[0], -1)
