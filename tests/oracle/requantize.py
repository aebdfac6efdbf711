#!/usr/bin/env python3
"""Writes a copy of a GGUF model with its matrices in another type, to measure speed or compare results.

    tests/oracle/requantize.py in.gguf out.gguf Q4_K

If a row is not a multiple of the type's block, its type falls back as in llama.cpp: Q4_K to Q5_0, Q5_K to Q5_1, Q6_K to
Q8_0. K types are rounded to nearest (k_quants.py), so do not judge their quality by such a file.
"""
import argparse

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

from k_quants import quantize_k

T = gguf.GGMLQuantizationType
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def encode(values, name):
    if name in FALLBACK:
        if values.shape[1] % 256 != 0:
            return encode(values, FALLBACK[name])
        return quantize_k(values, name), T[name]
    return quantize(values, T[name]), T[name]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("type", choices=sorted(FALLBACK) + ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
    parser.add_argument("--embedding", help="type of token_embd; default: unchanged")
    arguments = parser.parse_args()
    reader = gguf.GGUFReader(arguments.source)
    writer = gguf.GGUFWriter(arguments.out, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        item = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], item)
    for tensor in reader.tensors:
        kind = arguments.embedding if tensor.name == "token_embd.weight" else arguments.type
        if len(tensor.shape) == 1 or kind is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            continue
        values = dequantize(tensor.data, tensor.tensor_type).reshape(int(tensor.shape[1]), int(tensor.shape[0]))
        data, encoded = encode(np.ascontiguousarray(values, dtype=np.float32), kind)
        writer.add_tensor(tensor.name, data, raw_dtype=encoded)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
