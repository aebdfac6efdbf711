#!/usr/bin/env python3
"""Rehearses scripts/gpu_check.sh on the GPU emulator: packs a finished build, and runs the pack as on another machine.

    gpu_check_test.py --build build/release

The pack runs in a folder outside the tree, with an empty environment. Standard library only.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
PARTS = ["conformance", "ops", "model", "exactness", "services", "nccl", "bench", "peers", "sanitizer"]
PATH = "/usr/bin:/bin"
build = None


def run(script, *arguments, **environment):
    return subprocess.run(["bash", str(script), "--run", "--device", "cuda-emulated", *arguments], cwd="/", capture_output=True, text=True,
                          env={"PATH": PATH} | environment, timeout=2200)


def has_torch():
    """Whether the Python that a pack finds has PyTorch."""
    return subprocess.run(["python3", "-c", "import torch"], capture_output=True, env={"PATH": PATH}).returncode == 0


class GpuCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.pack = cls.scratch / "pack"
        packed = subprocess.run([SCRIPT, "--pack", "--build", build, "--to", cls.pack], capture_output=True, text=True)
        assert packed.returncode == 0, packed.stdout + packed.stderr
        cls.listing = packed.stdout

    def outcomes(self, output):
        """Part → its result, from the table."""
        lines = [line for line in output.splitlines() if line[:12].strip() in PARTS]
        return {line[:12].strip(): line[13:23].strip() for line in lines}

    def test_every_part_passes_in_another_folder(self):
        out = self.scratch / "out"
        out.mkdir()
        ended = run(self.pack / "gpu_check.sh", OUT=str(out))
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        wanted = dict.fromkeys(PARTS, "passed") | {"sanitizer": "not run"}
        if not has_torch():
            wanted["peers"] = "not run"
        self.assertEqual(self.outcomes(ended.stdout), wanted, ended.stdout)
        result = json.loads(ended.stdout.splitlines()[-1])
        self.assertEqual(json.loads((out / "result.json").read_text()), result)
        figures = {figure["name"]: figure for figure in result["figures"]}
        self.assertIn("ops passed", figures)
        self.assertGreater(figures["read"]["value"], 0)
        self.assertGreater(figures["decode.Q8_0.batch_1"]["value"], 0)
        self.assertGreater(figures["chunk.BF16"]["value"], 0)
        self.assertGreater(figures["prefill.80"]["value"], 0)
        self.assertEqual({file.name for file in out.iterdir()}, {"gpu_check.log", "result.json"})
        log = (out / "gpu_check.log").read_text()
        for part in PARTS:
            self.assertIn(f"== {part}: {wanted[part]}\n", log)
        self.assertIn("nccl passed", figures)
        for product in ("bf16", "f16", "wgmma bf16", "wgmma f16"):
            self.assertRegex(log, rf"\nconformance {product}, cancelling: 0 of [1-9]\d* results differ\n")

    def change_pack(self, name, change):
        """Copies the pack, calls change(its unpacked files), and returns the copy."""
        changed = self.scratch / name
        files = changed / "files"
        shutil.copytree(self.pack, changed)
        with tarfile.open(changed / "files.tar.gz") as archive:
            archive.extractall(files)
        change(files)
        subprocess.run(["tar", "-C", str(files), "-czf", str(changed / "files.tar.gz"), "."], check=True)
        return changed

    def test_without_nccl_its_part_is_not_run_and_says_why(self):
        changed = self.change_pack("no-nccl", lambda files: (files / "bin" / "libbaton_emulated_nccl.so").unlink())
        ended = run(changed / "gpu_check.sh", "nccl")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(self.outcomes(ended.stdout), {"nccl": "not run"}, ended.stdout)
        self.assertIn("not run: NCCL refuses two ranks on one GPU: ", ended.stdout)
        self.assertIn("libbaton_emulated_nccl.so", ended.stdout)

    def test_a_failed_part_hides_no_other(self):
        model = (ROOT / "tests/testdata/models/tiny-q4_1.gguf").read_bytes()[:3000]
        damaged = self.change_pack("damaged", lambda files: (files / "models" / "tiny-q4_1.gguf").write_bytes(model))
        ended = run(damaged / "gpu_check.sh", "model", "conformance")
        self.assertEqual(ended.returncode, 1, ended.stdout + ended.stderr)
        self.assertEqual(self.outcomes(ended.stdout), {"model": "failed", "conformance": "passed"}, ended.stdout)

    def test_the_pack_lists_its_contents_and_holds_the_libraries(self):
        self.assertIn("bin/cuda_tests", self.listing)
        self.assertRegex(self.listing, r"lib/libstdc\+\+\.so")
        self.assertNotRegex(self.listing, r"lib/libc\.so")
        self.assertIn(" MiB, version ", self.listing)

    def test_an_unknown_part_is_refused_with_the_list(self):
        ended = run(self.pack / "gpu_check.sh", "modell")
        self.assertEqual(ended.returncode, 1)
        self.assertIn('there is no part "modell"; the parts are: conformance ops', ended.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    arguments, rest = parser.parse_known_args()
    build = os.path.abspath(arguments.build)
    unittest.main(argv=[sys.argv[0], *rest])
