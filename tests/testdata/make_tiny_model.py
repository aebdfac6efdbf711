#!/usr/bin/env python3
"""Writes a small Llama model with random weights, for tests that need a model file and no particular answers.

    make_tiny_model.py build/release/testdata/tiny.gguf [--seed N]

The build runs it. The model has byte tokens and a few merges, Q8_0 matrices, grouped queries and a chat template. Equal seeds
give equal files. Standard library only; tests/oracle/make_tiny_gguf.py writes the models with known answers.
"""

import argparse
import pathlib
import random
import struct

SHAPE = {"layers": 3, "hidden": 128, "heads": 4, "kv_heads": 2, "head_dim": 32, "ffn": 160, "context": 2048}
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "Ġ a", "i n", "h e", "r e", "o n", "e r", "Ġt he", "a t", "Ġ s", "in g", "n d", "Ġa nd"]
CHAT_TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
                 "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # value types of GGUF
NORMAL_TOKEN, CONTROL_TOKEN = 1, 3
F32, Q8_0 = 0, 8  # tensor types
ALIGNMENT = 32
GROUP = 32  # values of a Q8_0 block


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    if kind == STRING:
        return text(value)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], value)


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def array(key, kind, values):
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(scalar(kind, value) for value in values)


def byte_tokens():
    """Returns GPT-2's printable character for each byte, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(256 + hidden.index(b)) for b in range(256)]


def vector(rng, size):
    return F32, (size,), b"".join(struct.pack("<f", rng.gauss(1, 0.2)) for _ in range(size))


def matrix(rng, rows, cols, gain):
    blocks = []
    for _ in range(rows * cols // GROUP):
        values = [rng.gauss(0, gain / cols ** 0.5) for _ in range(GROUP)]
        scale = max(map(abs, values)) / 127 or 1.0
        blocks.append(struct.pack("<e32b", scale, *(max(-127, min(127, round(value / scale))) for value in values)))
    return Q8_0, (cols, rows), b"".join(blocks)


def tensors(rng, vocabulary):
    """Returns {name: (type, dimensions, bytes)}. The gains let layers outweigh the embedding, and logits vary."""
    s = SHAPE
    q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    result = {"token_embd.weight": matrix(rng, vocabulary, s["hidden"], 3.0), "output_norm.weight": vector(rng, s["hidden"])}
    for i in range(s["layers"]):
        for name, tensor in {
            "attn_norm": vector(rng, s["hidden"]), "ffn_norm": vector(rng, s["hidden"]),
            "attn_q": matrix(rng, q, s["hidden"], 1.5), "attn_k": matrix(rng, kv, s["hidden"], 1.5),
            "attn_v": matrix(rng, kv, s["hidden"], 1.5), "attn_output": matrix(rng, s["hidden"], q, 1.5),
            "ffn_gate": matrix(rng, s["ffn"], s["hidden"], 1.5), "ffn_up": matrix(rng, s["ffn"], s["hidden"], 1.5),
            "ffn_down": matrix(rng, s["hidden"], s["ffn"], 1.5),
        }.items():
            result[f"blk.{i}.{name}.weight"] = tensor
    return result


def metadata(tokens):
    s = SHAPE
    kinds = [CONTROL_TOKEN] * len(CONTROL) + [NORMAL_TOKEN] * (len(tokens) - len(CONTROL))
    return [
        entry("general.architecture", STRING, "llama"), entry("general.name", STRING, "tiny"),
        entry("llama.vocab_size", UINT32, len(tokens)), entry("llama.block_count", UINT32, s["layers"]),
        entry("llama.context_length", UINT32, s["context"]), entry("llama.embedding_length", UINT32, s["hidden"]),
        entry("llama.feed_forward_length", UINT32, s["ffn"]), entry("llama.attention.head_count", UINT32, s["heads"]),
        entry("llama.attention.head_count_kv", UINT32, s["kv_heads"]),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5), entry("llama.rope.freq_base", FLOAT32, 10000.0),
        entry("llama.rope.dimension_count", UINT32, s["head_dim"]), entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "smollm"), array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", INT32, kinds), array("tokenizer.ggml.merges", STRING, MERGES),
        entry("tokenizer.ggml.bos_token_id", UINT32, 1), entry("tokenizer.ggml.eos_token_id", UINT32, 2),
        entry("tokenizer.ggml.add_bos_token", BOOL, False), entry("tokenizer.chat_template", STRING, CHAT_TEMPLATE),
    ]


def write_model(path, seed):
    tokens = CONTROL + byte_tokens() + [merge.replace(" ", "") for merge in MERGES]
    contents = tensors(random.Random(seed), len(tokens))
    entries = metadata(tokens)
    head = [b"GGUF", struct.pack("<IQQ", 3, len(contents), len(entries)), *entries]
    offset, data = 0, []
    for name, (kind, dimensions, values) in contents.items():
        head.append(text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, offset))
        data.append(values + bytes(-len(values) % ALIGNMENT))
        offset += len(data[-1])
    header = b"".join(head)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(header + bytes(-len(header) % ALIGNMENT) + b"".join(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=20261123)
    args = parser.parse_args()
    write_model(args.out, args.seed)


if __name__ == "__main__":
    main()
