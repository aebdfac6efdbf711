#!/usr/bin/env python3
"""Tests `baton run` on emulated GPUs with less shared memory or less device memory than the largest ones.

    cuda_limits_test.py --baton build/release/bin/baton

A start is refused with the value and the limit, or every answer equals that of the CPU. Standard library only.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "testdata"))
import make_tiny_model  # pylint: disable=wrong-import-position

SM_90, SM_80, SM_86 = 232448, 166912, 101376  # shared memory of a thread block in bytes
ARGUMENTS = argparse.Namespace()


def run(model, *arguments, emulator=None):
    """Answers two prompts. Returns ({id: [token ids, hash of the logits]}, exit code, errors)."""
    jobs = [{"id": f"p{length}", "prompt_token_ids": [10 + 7 * i % 240 for i in range(length)], "max_tokens": 4, "temperature": 0,
             "ignore_eos": True} for length in (3, 40)]
    environment = {f"BATON_GPU_EMULATOR_{name}": str(value) for name, value in (emulator or {}).items()}
    done = subprocess.run(
        [ARGUMENTS.baton, "run", "--model", str(model), "--jobs", "-", "--json", "--hash-logits", "--numerics=r1", "--threads=1",
         *arguments], input="\n".join(json.dumps(job) for job in jobs), capture_output=True, text=True, check=False, timeout=600,
        env=os.environ | environment)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return {result["id"]: [result.get("token_ids"), result.get("logits_hash")] for result in results}, done.returncode, done.stderr


class SharedMemory(unittest.TestCase):
    """Heads of 256, with which attention needs the most shared memory."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.model = pathlib.Path(folder) / "wide-heads.gguf"
        shape, make_tiny_model.SHAPE = make_tiny_model.SHAPE, {
            "layers": 1, "hidden": 512, "heads": 2, "kv_heads": 1, "head_dim": 256, "ffn": 160, "context": 512}
        try:
            make_tiny_model.write_model(cls.model, seed=1)
        finally:
            make_tiny_model.SHAPE = shape

    def assert_cpus_answers(self, kv_type, shared_bytes):
        want, _, _ = run(self.model, "--device=cpu", f"--kv-type={kv_type}", "--kv-blocks=32")
        got, code, errors = run(self.model, "--device=cuda-emulated", f"--kv-type={kv_type}", "--kv-blocks=32",
                                emulator={"SHARED_BYTES": shared_bytes})
        self.assertEqual(code, 0, errors)
        self.assertEqual(got, want, f"{kv_type}, {shared_bytes} bytes of shared memory")

    def test_f32_pools_fit_sm_80(self):
        for shared_bytes in (SM_90, SM_80):
            self.assert_cpus_answers("f32", shared_bytes)

    def test_pools_of_one_and_two_bytes_fit_sm_86(self):
        for kv_type in ("f16", "bf16", "int8", "fp8"):
            self.assert_cpus_answers(kv_type, SM_86)

    def test_f32_pools_are_refused_on_sm_86(self):
        answers, code, errors = run(self.model, "--device=cuda-emulated", "--kv-type=f32", "--kv-blocks=32",
                                    emulator={"SHARED_BYTES": SM_86})
        self.assertEqual((answers, code), ({}, 2), errors)
        self.assertRegex(errors, r"heads of 256 and KV of type f32 cannot run on this device: kernel \"baton_paged_decode_f32_256\" "
                                 r"needs \d+ bytes of shared memory, but a thread block of emulated GPU has 101376")


class DeviceMemory(unittest.TestCase):

    def test_a_start_is_refused_or_all_answers_are_right(self):
        model = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "models" / "tiny-q4_1.gguf"
        refused, served = 0, 0
        for arguments in ([], ["--kv-cache-mib=6"], ["--kv-blocks=20", "--kv-cache-max-mib=8"], ["--no-graph"]):
            want, _, _ = run(model, "--device=cpu")
            for mib in (8, 10, 12, 14, 16, 20, 30, 200):
                got, code, errors = run(model, "--device=cuda-emulated", *arguments, emulator={"MIB": mib})
                if code == 0:
                    self.assertEqual(got, want, f"{mib} MiB {arguments}")
                    served += 1
                else:
                    self.assertEqual((got, code), ({}, 1), f"{mib} MiB {arguments}: {errors}")
                    self.assertRegex(errors, r"blocks of KV need \d+ MiB; the device has \d+ MiB available"
                                             r"|cannot allocate \d+ bytes of device memory, of which \d+ bytes are available")
                    refused += 1
        self.assertGreater(refused, 4)
        self.assertGreater(served, 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baton", required=True, help="the built program")
    rest = parser.parse_known_args(namespace=ARGUMENTS)[1]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
