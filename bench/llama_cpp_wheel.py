#!/usr/bin/env python3
"""Measures llama.cpp of the wheel xllamacpp through its C interface. bench/engine_peer.py calls this with a Python that has it.

    llama_cpp_wheel.py --about
    llama_cpp_wheel.py --model FILE --threads N --prompts 512,2048 --batches 1,4,16 [--keys f16] [--values f16] [--flash-attention]

Prints one JSON object: {figure of engine_bench: [tokens/s of each run]}. With --about, prints the wheel's version and the
instruction sets that it was built with. Only llama_decode is timed, as in llama-bench: no sampling, no tokenising.
"""

import argparse
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "oracle"))
import llamacpp_peer  # noqa: E402

RUNS = 3
SINGLE_STEPS = 64
STEPS, CONTEXT = 32, 512  # decode_Nx512: steps, and the mean context over them
VOCABULARY_USED = 40_000  # token ids of the measured prompts are below this


class Timer:
    def __init__(self, options, sequences, context):
        self.llama = llamacpp_peer.LlamaCpp(options.model, context, options.threads, sequences=sequences,
                                            flash_attention=options.flash_attention, keys=options.keys, values=options.values)

    def fill(self, slots):
        """Writes the batch: (sequence, position, whether its logits are wanted) of each token."""
        batch = self.llama.batch
        batch.n_tokens = len(slots)
        for i, (sequence, position, wanted) in enumerate(slots):
            batch.token[i], batch.pos[i] = (position * 7919 + sequence * 31 + 13) % VOCABULARY_USED, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wanted

    def decode(self):
        """Returns the seconds of one call."""
        begin = time.perf_counter()
        status = self.llama.lib.llama_decode(self.llama.context, self.llama.batch)
        self.llama.lib.llama_synchronize(self.llama.context)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return time.perf_counter() - begin

    def prefill(self, sequence, tokens):
        seconds = 0
        for begin in range(0, tokens, llamacpp_peer.BATCH):
            end = min(begin + llamacpp_peer.BATCH, tokens)
            self.fill([(sequence, position, position == tokens - 1) for position in range(begin, end)])
            seconds += self.decode()
        return seconds

    def steps(self, sequences, first, count):
        seconds = 0
        for position in range(first, first + count):
            self.fill([(sequence, position, True) for sequence in range(sequences)])
            seconds += self.decode()
        return seconds


def measure(options):
    samples = {}
    timer = Timer(options, 1, max(*options.prompts, llamacpp_peer.BATCH))
    timer.prefill(0, llamacpp_peer.BATCH)  # warm-up
    for _ in range(RUNS):
        for tokens in options.prompts:
            timer.llama.clear()
            samples.setdefault(f"prefill_{tokens}_tokens_per_s", []).append(tokens / timer.prefill(0, tokens))
        timer.llama.clear()
        samples.setdefault("decode_1_tokens_per_s", []).append(SINGLE_STEPS / timer.steps(1, 0, SINGLE_STEPS))
    for batch in options.batches:
        timer = Timer(options, batch, batch * (CONTEXT + STEPS))
        for sequence in range(batch):
            timer.prefill(sequence, CONTEXT - STEPS // 2)
        samples[f"decode_{batch}x512_tokens_per_s"] = [batch * STEPS / timer.steps(batch, CONTEXT - STEPS // 2, STEPS)]
    return samples


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--about", action="store_true")
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompts", type=numbers, default=[512])
    parser.add_argument("--batches", type=numbers, default=[1])
    parser.add_argument("--keys", choices=llamacpp_peer.KV_TYPES, default="f16")
    parser.add_argument("--values", choices=llamacpp_peer.KV_TYPES, default="f16")
    parser.add_argument("--flash-attention", action="store_true")
    options = parser.parse_args()
    print(json.dumps(llamacpp_peer.about() if options.about else measure(options)))


if __name__ == "__main__":
    main()
