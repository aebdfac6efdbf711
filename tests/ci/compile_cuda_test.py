#!/usr/bin/env python3
"""Tests what scripts/compile_cuda.sh asks of nvcc, with a stand-in for nvcc, and that the CUDA build asks for the same architectures."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_IN = """#!/usr/bin/env bash
echo "$* append=${NVCC_APPEND_FLAGS-none} prepend=${NVCC_PREPEND_FLAGS-none}" >> "$CALLS"
cat <<'END'
ptxas info    : Compiling entry function 'baton_rms_norm' for 'sm_90a'
ptxas info    : Function properties for baton_rms_norm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for RoundsInASlowWay
    8 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
END
"""


class Nvcc(unittest.TestCase):
    def calls(self):
        with tempfile.TemporaryDirectory() as folder:
            calls = pathlib.Path(folder, "calls")
            nvcc = pathlib.Path(folder, "nvcc")
            nvcc.write_text(STAND_IN)
            nvcc.chmod(0o755)
            environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "CALLS": str(calls),
                                        "NVCC_APPEND_FLAGS": "-use_fast_math", "NVCC_PREPEND_FLAGS": "-ftz=true"}
            self.output = subprocess.run([ROOT / "scripts/compile_cuda.sh", "kernels/cuda/rows.cu"], env=environment, check=True,
                                         capture_output=True, text=True).stdout
            return calls.read_text().splitlines()

    def test_flags_of_the_environment_have_no_effect(self):
        calls = self.calls()
        self.assertTrue(calls)
        for call in calls:
            self.assertIn("append=none prepend=none", call)

    def test_a_function_that_spills_is_named(self):
        self.calls()
        self.assertEqual(self.output, "kernels/cuda/rows.cu: RoundsInASlowWay for sm_90a spills:     8 bytes stack frame, 4 bytes spill "
                                      "stores, 8 bytes spill loads\n")

    def test_ptxas_assembles_every_architecture_of_the_build(self):
        built = set(re.findall(r"arch=(compute_\w+)", (ROOT / "kernels/cuda/CMakeLists.txt").read_text()))
        self.assertIn("compute_90", built)
        assembled = {arch for call in self.calls() for arch in re.findall(r"arch=(compute_\w+),code=sm_", call)}
        self.assertEqual(assembled, built)


if __name__ == "__main__":
    unittest.main()
