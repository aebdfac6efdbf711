#!/usr/bin/env python3
"""Compares `baton inspect tokens` with PyPI `tokenizers` on varied lines, on every code point and on hostile texts.

Needs `tokenizers` and `gguf`. Exit code 0 if all ids are equal for every requested pre-tokenizer. For pre-tokenizers
other than the model's own, the script uses a copy of the model file that names the other one.
"""

import argparse
import glob
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf

from tokenizer_lines import every_code_point, hostile_texts, varied_lines
from tokenizer_oracle import PRES, encode, oracle


def source_lines():
    """Program code of this machine: Python's library and C headers."""
    paths = sorted(glob.glob("/usr/lib/python3*/*.py") + glob.glob("/usr/include/*.h") + glob.glob("/usr/include/c++/*/*"))
    lines = []
    for path in paths:
        if pathlib.Path(path).is_file():
            lines += pathlib.Path(path).read_text(errors="replace").split("\n")
    return lines


def with_pre(model, reader, pre, folder):
    """Path of a model with pre-tokenizer `pre`: the model file itself, or a changed copy in `folder`."""
    field = reader.fields["tokenizer.ggml.pre"]
    old = field.contents().encode()
    if old == pre.encode():
        return model
    data = pathlib.Path(model).read_bytes()
    text_at = field.offset + sum(part.nbytes for part in field.parts) - len(old)
    header_end = max(t.field.offset + sum(part.nbytes for part in t.field.parts) for t in reader.tensors)
    header = data[:text_at - 8] + len(pre).to_bytes(8, "little") + pre.encode() + data[text_at + len(old):header_end]
    header += bytes(-len(header) % reader.alignment)
    path = pathlib.Path(folder) / f"{pre}.gguf"
    path.write_bytes(header + data[reader.data_offset:])
    return path


def baton_ids(binary, model, texts):
    requests = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([binary, "inspect", "tokens", "--model", str(model)], input=requests.encode(),
                          stdout=subprocess.PIPE, check=True)
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def compare(pre, texts, ours, theirs):
    if len(ours) != len(texts):
        print(f"{pre}: {len(ours)} answers for {len(texts)} lines")
        return False
    wrong = [i for i in range(len(texts)) if ours[i] != theirs[i]]
    tokens = sum(map(len, theirs))
    print(f"{pre}: {len(texts)} lines, {tokens} tokens, {len(wrong)} lines differ")
    for i in wrong[:5]:
        print(f"  {texts[i][:200]!r}\n    baton      {ours[i][:40]}\n    tokenizers {theirs[i][:40]}")
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", help="the baton program")
    parser.add_argument("model", help="a GGUF file with a gpt2 tokenizer")
    parser.add_argument("--lines", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pre", nargs="*", default=PRES, choices=PRES)
    args = parser.parse_args()

    reader = gguf.GGUFReader(args.model)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    types = reader.fields["tokenizer.ggml.token_type"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    user_defined = [token for token, kind in zip(tokens, types) if kind == 4]
    texts = varied_lines(args.lines, args.seed, source_lines()) + every_code_point()
    texts += hostile_texts(50000, args.seed)
    equal = True
    print(f"seed {args.seed}")
    for pre in args.pre:
        theirs = encode(oracle(pre, tokens, merges, user_defined=user_defined), texts)
        with tempfile.TemporaryDirectory() as folder:
            ours = baton_ids(args.binary, with_pre(args.model, reader, pre, folder), texts)
        equal = compare(pre, texts, ours, theirs) and equal
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
