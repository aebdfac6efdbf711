#!/usr/bin/env python3
"""Checks tensor parallelism on emulated GPUs: the answers of several ranks, with NCCL's stand-in between them, are those of the CPU.

    cuda_ranks_test.py --baton build/release/bin/baton

Token ids, and a hash over all sampled rows of logits, must equal those of one rank on the CPU, with the same numerics. Standard
library only.
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "testdata"))
import make_tiny_model  # pylint: disable=wrong-import-position

ARGUMENTS = argparse.Namespace()
# Neither the feed-forward network nor the vocabulary of 272 divides by 3.
THREE_HEADS = {"layers": 2, "hidden": 96, "heads": 6, "kv_heads": 3, "head_dim": 16, "ffn": 160, "context": 1024}
LENGTHS = (1, 17, 33, 70)


def jobs():
    rng = random.Random(5)
    made = []
    for index, length in enumerate(LENGTHS):
        job = {"id": f"p{length}", "prompt_token_ids": [rng.randint(10, 250) for _ in range(length)], "max_tokens": 5,
               "temperature": 0, "ignore_eos": True}
        if index % 3 == 1:  # the device samples
            job |= {"temperature": 0.9, "top_k": 40, "seed": 43 + index}
        elif index % 3 == 2:  # penalties need the host; choices fork at a part-full block
            job |= {"temperature": 0.8, "seed": 12 + index, "repetition_penalty": 1.1, "n": 2}
        made.append(job)
    return made


def run(model, *arguments, given=None, **emulator):
    """Answers the jobs, or those given. Returns ({id: [token ids, hash of the logits]}, the collectives of NCCL's stand-in, bytes that it received
    for transfers, the finished process)."""
    environment = {f"BATON_GPU_EMULATOR_{name}": str(value) for name, value in emulator.items()}
    with tempfile.NamedTemporaryFile("r") as report:
        done = subprocess.run(
            [ARGUMENTS.baton, "run", "--model", str(model), "--jobs", "-", "--json", "--hash-logits", "--block-size=16",
             "--threads=1", *arguments], input="\n".join(map(json.dumps, given or jobs())), capture_output=True, text=True, check=False,
            timeout=900, env=os.environ | {"BATON_FAKE_NCCL_REPORT": report.name} | environment)
        line = report.read().split()
    results = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {(result["id"], result.get("choice")): [result.get("token_ids"), result.get("logits_hash")] for result in results}
    return answers, int(line[5]) if line else 0, int(line[3]) if line else 0, done


class Ranks(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.three_heads = pathlib.Path(folder) / "three-heads.gguf"
        shape, make_tiny_model.SHAPE = make_tiny_model.SHAPE, THREE_HEADS
        try:
            make_tiny_model.write_model(cls.three_heads, seed=3)
        finally:
            make_tiny_model.SHAPE = shape
        cls.wanted = {}

    def want(self, model, numerics, kv_type):
        key = (model, numerics, kv_type)
        if key not in self.wanted:
            answers, _, _, done = run(model, "--device=cpu", f"--numerics={numerics}", f"--kv-type={kv_type}", "--kv-blocks=96",
                                      "--no-prefix-cache")
            self.assertEqual((done.returncode, len(answers)), (0, len(LENGTHS) + 1), done.stderr)
            self.wanted[key] = answers
        return self.wanted[key]

    def assert_answers(self, model, ranks, *arguments, numerics="r1", kv_type="f16", devices=None, transfers=False):
        want = self.want(model, numerics, kv_type)
        got, collectives, received, done = run(
            model, "--device=cuda-emulated", f"--numerics={numerics}", f"--tensor-parallel={ranks}", f"--kv-type={kv_type}",
            "--kv-blocks=96", *arguments, DEVICES=devices or ranks)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertEqual(got, want, f"{ranks} ranks {numerics} {kv_type} {arguments}")
        self.assertGreater(collectives, 40)
        self.assertEqual(received > 0, transfers)

    def test_graphs(self):
        self.assert_answers(self.three_heads, 3)

    def test_one_step_in_flight(self):
        self.assert_answers(self.three_heads, 3, "--steps-in-flight=1", "--concurrency=4", "--max-chunk-tokens=16")

    def test_draws_that_no_graph_has_room_for(self):
        """All ranks use the graph, or none does, although only the first one knows the draws."""
        bias = {str(token): 0.5 for token in range(272)}
        many_additions = [{"id": f"a{i}", "prompt_token_ids": list(range(4 + i, 9 + i)), "max_tokens": 6, "temperature": 0.7, "seed": i,
                           "logit_bias": bias, "min_tokens": 6, "stop_token_ids": list(range(100, 130))} for i in range(9)]
        many_draws = [{"id": f"d{i}", "prompt_token_ids": list(range(4 + i, 9 + i)), "max_tokens": 12, "temperature": 0} for i in range(8)]
        many_draws.append({"id": "choices", "prompt_token_ids": [7], "max_tokens": 3, "temperature": 0.9, "seed": 4, "n": 16})
        for given, arguments in ((many_additions, ("--max-running=10", "--concurrency=9")), (many_draws, ("--concurrency=9",))):
            want, _, _, done = run(self.three_heads, "--device=cpu", "--kv-blocks=96", "--no-prefix-cache", given=given)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            got, collectives, _, done = run(self.three_heads, "--device=cuda-emulated", "--numerics=r1", "--tensor-parallel=3",
                                            "--kv-blocks=96", *arguments, given=given, DEVICES=3)
            self.assertEqual((done.returncode, got), (0, want), done.stderr[-3000:])
            self.assertGreater(collectives, 40)

    def test_eager_layer_major_and_int8(self):
        self.assert_answers(self.three_heads, 3, "--no-graph", "--kv-layout=layer-major", "--concurrency=3", kv_type="int8")

    def test_contiguous_f32(self):
        self.assert_answers(self.three_heads, 3, "--no-paged", kv_type="f32")

    def test_a_pool_that_can_grow(self):
        self.assert_answers(self.three_heads, 3, "--kv-cache-max-mib=24")

    def test_tensor_cores(self):
        for model in ("tiny-f16", "tiny-bf16"):
            self.assert_answers(TESTS / "testdata" / "models" / f"{model}.gguf", 2, "--concurrency=2", numerics="t1-sm90")

    def test_hand_off_from_three_ranks_to_one(self):
        self.assert_answers(self.three_heads, 1, "--transport=tcp", "--prefill-tensor-parallel=3", "--max-chunk-tokens=16",
                            kv_type="int8", devices=3)
        self.assert_answers(self.three_heads, 1, "--transport=nccl", "--prefill-tensor-parallel=3", devices=3, transfers=True)

    def test_hand_off_from_one_rank_to_three(self):
        self.assert_answers(self.three_heads, 3, "--transport=tcp", "--prefill-tensor-parallel=1", "--prefill-block-size=32",
                            "--kv-layout=layer-major")
        self.assert_answers(self.three_heads, 3, "--transport=nccl", "--prefill-tensor-parallel=1", "--max-chunk-tokens=16",
                            kv_type="int8", transfers=True)

    def test_kv_of_a_divided_pool_passes_host_memory_only_without_peer_access(self):
        want = self.want(self.three_heads, "r1", "int8")
        for peers in (1, 0):
            got, _, received, done = run(
                self.three_heads, "--device=cuda-emulated", "--numerics=r1", "--tensor-parallel=3", "--prefill-tensor-parallel=1",
                "--kv-type=int8", "--transport=nccl", "--kv-blocks=96", DEVICES=3, PEERS=peers)
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            self.assertEqual(got, want, f"peers {peers}")
            self.assertGreater(received, 0)
            through_host = list(map(int, re.findall(r"transfers copied (\d+) bytes of KV", done.stderr)))
            self.assertEqual(len(through_host), 2, done.stderr[-3000:])
            self.assertEqual(max(through_host) > 0, peers == 0, through_host)

    def test_the_default_pool_takes_what_the_steps_leave_on_every_device(self):
        _, _, _, done = run(self.three_heads, "--device=cuda-emulated", "--tensor-parallel=3", "--verbose", DEVICES=3, MIB=64)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"(?s)3 ranks; CUDA device 0: .*; CUDA device 1: .*; CUDA device 2: ")
        pool = re.search(r"(\d+) MiB reserved on 3 devices", done.stderr)
        self.assertIsNotNone(pool, done.stderr)
        self.assertGreater(int(pool[1]), 3 * 64 // 2)
        self.assertLess(int(pool[1]), 3 * 64 * 9 // 10)

    def test_too_few_devices(self):
        answers, _, _, done = run(self.three_heads, "--device=cuda-emulated", "--tensor-parallel=3", DEVICES=2)
        self.assertEqual((answers, done.returncode), ({}, 1), done.stderr)
        self.assertIn("tensor-parallel is 3, which needs as many CUDA devices from device 0 on, but this machine has 2", done.stderr)

    def test_too_little_memory_on_every_device(self):
        answers, _, _, done = run(self.three_heads, "--device=cuda-emulated", "--tensor-parallel=3", "--kv-cache-mib=300", DEVICES=3,
                                  MIB=64)
        self.assertEqual((answers, done.returncode), ({}, 1), done.stderr)
        self.assertRegex(done.stderr, r"blocks of KV need \d+ MiB; the device has \d+ MiB available")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True, help="the built program")
    rest = parser.parse_known_args(namespace=ARGUMENTS)[1]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
