#!/usr/bin/env python3
"""Writes the small GGUF files of tests/testdata/models and the golden file for dequantisation.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install gguf==0.19.0 numpy
    /tmp/venv/bin/python tests/oracle/make_tiny_gguf.py

All models except tiny-k-types and tiny-window have the same random weights (one seed). They differ only in their tensor
type or in the property that their name says. tiny-window has two KV groups: layer 1 has full attention, the other layers
have a sliding window. The same library versions always give the same bytes.
"""
import argparse
import pathlib
import typing

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

from k_quants import quantize_k

SEED = 20261121
CONTEXT = 512
ROPE_BASE = 10000.0
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>", "<filename>", "<empty_output>",
           "<reserved>"]
MERGES = ["Ġ t", "Ġ a", "i n", "h e", "r e", "o n", "e r", "Ġt he", "a t", "Ġ s", "Ġ o", "e n", "Ġ c", "e s", "Ġ w",
          "n d", "i t", "o r", "i s", "a l", "in g", "o u", "Ġ in", "Ġa nd", "l l", "h a", "o t", "Ġ p", "Ġ f", "Ġ b",
          "Ġ Ġ", "s t", "l e", "Ġo f", "Ġ m", "Ġt o", "i on", "i c", "Ġ d", "a n", "l o", "e d", "v e", "a r", "u r",
          "Ġ h", "a s", "he r", "ĠĠ ĠĠ", "Ġw or", "e l", "Ġ n", "r o", "he ll", "Ġ l", "Ġwor l"]
CHAT_TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
T = gguf.GGMLQuantizationType


class Shape(typing.NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int


TINY = Shape(layers=2, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=96)
# K types need rows of a multiple of 256. Each tensor has one K type; those of q, k and v differ.
TINY_K = Shape(layers=1, hidden=256, heads=8, kv_heads=2, head_dim=32, ffn=256)
# There are layers with a window before and after the one with full attention. The window is not a multiple of a block.
TINY_WINDOW = TINY._replace(layers=4)
WINDOW = 24
WINDOW_LAYERS = [True, False, True, True]
K_TYPES = {"token_embd": T.Q6_K, "attn_q": T.Q4_K, "attn_k": T.Q5_K, "attn_v": T.Q6_K, "attn_output": T.Q5_K,
           "ffn_gate": T.Q4_K, "ffn_up": T.Q4_K, "ffn_down": T.Q6_K}


def byte_tokens():
    """GPT-2's printable character for each byte, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + hidden.index(b)) for b in range(256)]


def vocabulary():
    tokens = CONTROL + byte_tokens()
    for merge in MERGES:
        left, right = merge.split(" ")
        assert left in tokens and right in tokens and left + right not in tokens, merge
        tokens.append(left + right)
    types = [gguf.TokenType.CONTROL] * len(CONTROL) + [gguf.TokenType.NORMAL] * (len(tokens) - len(CONTROL))
    return tokens, [int(t) for t in types]


def weights(rng, vocabulary_size, shape):
    """Maps names to float32 arrays, outputs first. The scale lets layers outweigh the embedding and logits vary."""
    def matrix(rows, cols, gain):
        return (rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)).astype(np.float32)

    def norm():
        return (1 + 0.2 * rng.standard_normal(shape.hidden)).astype(np.float32)

    hidden, ffn = shape.hidden, shape.ffn
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    result = {"token_embd.weight": matrix(vocabulary_size, hidden, 3.0), "output_norm.weight": norm()}
    for i in range(shape.layers):
        layer = {
            "attn_norm": norm(), "ffn_norm": norm(),
            "attn_q": matrix(q, hidden, 1.5), "attn_k": matrix(kv, hidden, 1.5),
            "attn_v": matrix(kv, hidden, 1.5), "attn_output": matrix(hidden, q, 1.5),
            "ffn_gate": matrix(ffn, hidden, 1.5), "ffn_up": matrix(ffn, hidden, 1.5), "ffn_down": matrix(hidden, ffn, 1.5),
        }
        result |= {f"blk.{i}.{name}.weight": value for name, value in layer.items()}
    result["output.weight"] = matrix(vocabulary_size, hidden, 3.0)
    return result


def llama3_factors(factor=8.0, low=1.0, high=4.0, original_context=256):
    """rope_freqs.weight as llama.cpp's converter computes it: divisors of the plain frequencies."""
    frequencies = 1.0 / ROPE_BASE ** (np.arange(0, TINY.head_dim, 2, dtype=np.float64) / TINY.head_dim)
    wavelengths = 2 * np.pi / frequencies
    smooth = (original_context / wavelengths - low) / (high - low)
    mixed = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelengths < original_context / high, 1.0,
                    np.where(wavelengths > original_context / low, factor, mixed)).astype(np.float32)


def add_tensor(writer, name, value, kind):
    if value.ndim == 1 or kind == T.F32:
        writer.add_tensor(name, value)
    elif kind == T.F16:
        writer.add_tensor(name, value.astype(np.float16))
    elif kind.name.endswith("_K"):
        writer.add_tensor(name, quantize_k(value, kind.name), raw_dtype=kind)
    else:
        writer.add_tensor(name, quantize(value, kind), raw_dtype=kind)


def write_model(path, kind, tensors, shape=TINY, scaling=None, llama3=False, untied=False, window=None):
    """Writes a model. `kind` None gives each matrix its type in K_TYPES. `scaling` is the type of the RoPE scaling and its
    factor. `window` is the number of slots, and for each layer whether it has the window."""
    tokens, types = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_vocab_size(len(tokens))
    writer.add_block_count(shape.layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(shape.head_dim)
    if scaling:
        writer.add_string("llama.rope.scaling.type", scaling[0])  # the library has no name for NTK
        writer.add_rope_scaling_factor(scaling[1])
        if scaling[0] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(int(CONTEXT / scaling[1]))
    if window:
        writer.add_sliding_window(window[0])
        writer.add_sliding_window_pattern(window[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, value in tensors.items():
        if name != "output.weight" or untied:
            add_tensor(writer, name, value, kind if kind is not None else K_TYPES.get(name.split(".")[-2], T.F32))
    if llama3:
        writer.add_tensor("rope_freqs.weight", llama3_factors())
    finish(writer, path)


def finish(writer, path):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{path.stat().st_size:8} {path}")


def write_dequant_golden(path, rng):
    """Writes for each type random blocks `<type>.blocks` and the values of gguf's dequantize, `<type>.floats`.
    The first blocks have special scales: zeros, subnormals, the largest, infinities, NaN."""
    # Offsets of the f16 values in a block.
    headers = {T.Q4_1: (0, 2), T.Q5_1: (0, 2), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,)}
    special = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E01], dtype="<u2")
    blocks_per_type = 40
    writer = gguf.GGUFWriter(path, "golden")
    for kind in (T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K):
        block_values, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        repeat = max(1, 32 // block_values)
        blocks = rng.integers(0, 256, (blocks_per_type, block_bytes * repeat), dtype=np.uint8)
        first, *second = headers.get(kind, (0,))
        blocks[: len(special), first:first + 2] = special.view(np.uint8).reshape(-1, 2)
        for at in second:
            blocks[-len(special):, at:at + 2] = special.view(np.uint8).reshape(-1, 2)
        with np.errstate(invalid="ignore", over="ignore"):
            floats = dequantize(blocks, kind)
        if kind == T.F16:
            writer.add_tensor("F16.blocks", blocks.view(np.float16))
        else:
            writer.add_tensor(f"{kind.name}.blocks", blocks, raw_dtype=kind)
        writer.add_tensor(f"{kind.name}.floats", np.ascontiguousarray(floats, dtype=np.float32))
    finish(writer, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent / "testdata" / "models")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    tensors = weights(np.random.default_rng(SEED), len(vocabulary()[0]), TINY)
    for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1):
        write_model(out / f"tiny-{kind.name.lower()}.gguf", kind, tensors)
    write_model(out / "tiny-linear-rope-q4_0.gguf", T.Q4_0, tensors, scaling=("linear", 4.0))
    write_model(out / "tiny-ntk-rope-f16.gguf", T.F16, tensors, scaling=("ntk", 4.0))
    write_model(out / "tiny-yarn-rope-f16.gguf", T.F16, tensors, scaling=("yarn", 4.0))
    write_model(out / "tiny-llama3-rope-q4_0.gguf", T.Q4_0, tensors, llama3=True)
    write_model(out / "tiny-untied-q4_0.gguf", T.Q4_0, tensors, untied=True)
    k_tensors = weights(np.random.default_rng(SEED + 2), len(vocabulary()[0]), TINY_K)
    write_model(out / "tiny-k-types.gguf", None, k_tensors, shape=TINY_K)
    window_tensors = weights(np.random.default_rng(SEED + 3), len(vocabulary()[0]), TINY_WINDOW)
    write_model(out / "tiny-window-q4_0.gguf", T.Q4_0, window_tensors, shape=TINY_WINDOW, window=(WINDOW, WINDOW_LAYERS))
    write_dequant_golden(out / "dequant_golden.gguf", np.random.default_rng(SEED + 1))


if __name__ == "__main__":
    main()
