#!/usr/bin/env python3
"""Writes tests/testdata/tokenizer_vocab.json and tokenizer_golden.jsonl. Needs PyPI `tokenizers`.

The script trains a small vocabulary with every byte, three control tokens and a user-defined token.
Each golden line is a text with its ids under every pre-tokenizer. `untrusted` recognises only the
user-defined token, `trusted` also the control tokens.
"""

import json
import pathlib

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenizer_lines import COMBINING, CONTRACTIONS, EMOJI, SENTENCES, SPACES, varied_lines
from tokenizer_oracle import PRES, encode, oracle

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "testdata"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<tool>"]
VOCAB_SIZE = 1500
LINES = 120
SEED = 3


def train():
    tokenizer = Tokenizer(models.BPE())
    # Llama 3's pattern allows merges across the cuts of the other patterns, so the golden lines tell all patterns apart.
    tokenizer.pre_tokenizer = oracle("llama-bpe", [], []).pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE - len(USER_DEFINED), special_tokens=CONTROL, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    spaces = [" " * n + "x" + "\n" * n for n in range(1, 9)] * 8 + ["1998 2024 100 000 12 34"] * 8
    tokenizer.train_from_iterator(SENTENCES * 2 + spaces, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get) + USER_DEFINED
    return tokens, [" ".join(pair) for pair in model["merges"]]


def golden_texts():
    texts = SENTENCES + [c + "x " + c for c in SPACES] + ["it" + c + " a" for c in CONTRACTIONS]
    texts += [" ".join(EMOJI), " ".join(COMBINING), "a" * 300, " " * 70 + "a", "\n \n  \n", "1234567 " * 9, ""]
    texts += ["x\U00011f50\U00011f02 1\U00011de0 \u180e.", "<tool><|im_end|>a <tool>b<|im_start|>user\n"]
    return texts + varied_lines(LINES, SEED)


def main():
    tokens, merges = train()
    types = [3 if t in CONTROL else 4 if t in USER_DEFINED else 1 for t in tokens]
    vocab = {"tokens": tokens, "token_types": types, "merges": merges}
    (TESTDATA / "tokenizer_vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, separators=(",", ":")) + "\n")
    texts = golden_texts()
    lines = [{"text": text, "untrusted": {}, "trusted": {}} for text in texts]
    for pre in PRES:
        for trust, control in (("untrusted", []), ("trusted", CONTROL)):
            for line, ids in zip(lines, encode(oracle(pre, tokens, merges, control, USER_DEFINED), texts)):
                line[trust][pre] = ids
    for line in lines:
        if line["trusted"] == line["untrusted"]:
            del line["trusted"]
    with open(TESTDATA / "tokenizer_golden.jsonl", "w") as out:
        for line in lines:
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    print(f"{len(tokens)} tokens, {len(lines)} texts")


if __name__ == "__main__":
    main()
