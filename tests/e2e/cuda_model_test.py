#!/usr/bin/env python3
"""Checks that the CUDA backend, on the GPU emulator, answers with a real model as the CPU does in numerics r1.

    cuda_model_test.py --baton build/release/bin/baton [--model M.gguf] [--tokens N]

The model is $BATON_TEST_MODEL, else the default model. Token ids and the hash over all sampled rows of logits must be equal.
Standard library only.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from exactness import default_model


def answer(args, device):
    begin = time.time()
    process = subprocess.run(
        [args.baton, "run", "--model", args.model, "--device", device, "--numerics", "r1", "--kv-blocks", "8", "--block-size", "16",
         "--jobs", "-", "--json", "--hash-logits"], text=True, capture_output=True,
        input=json.dumps({"id": "it", "messages": [{"role": "user", "content": args.prompt}], "max_tokens": args.tokens,
                          "temperature": 0, "ignore_eos": True}),
        env=os.environ | {"BATON_GPU_EMULATOR_MIB": "1024"})
    if process.returncode != 0:
        sys.exit(f"--device {device}: exit code {process.returncode}; {process.stdout[-500:]}; {process.stderr[-2000:]}")
    result = json.loads(process.stdout)
    print(f"  {device}: {result['token_ids']} {result['logits_hash']} {result['text']!r}, {time.time() - begin:.0f} s", flush=True)
    return result["token_ids"], result["logits_hash"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True)
    parser.add_argument("--model", default=default_model())
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--prompt", default="What is the capital of France?")
    args = parser.parse_args()
    want, got = answer(args, "cpu"), answer(args, "cuda-emulated")
    if len(want[0]) != args.tokens or got != want:
        print(f"FAILED cuda-emulated gave {got} instead of {want}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
