#!/usr/bin/env python3
"""Builds the library of CUDA kernels by the preset `cuda`, with a stand-in for nvcc that takes no time: the library has an image of every kernel file,
and the flags that decide about bits are those of scripts/compile_cuda.sh. The kernels themselves are compiled by compile_cuda.sh."""

import ctypes
import itertools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Writes the name of the source as the image, and the flags beside it.
STAND_IN = """#!/usr/bin/env bash
flags="$*"
while [ $# -gt 0 ]; do
  case $1 in
    -o) image=$2; shift ;;
    -MF) depfile=$2; shift ;;
    *.cu) source=$1 ;;
  esac
  shift
done
basename "$source" | tr '\\n' '\\0' > "$image"
echo "$flags" >> "$CALLS"
echo "$image: $source" > "$depfile"
"""


def numeric_flags(text):
    """The flags of nvcc that decide about bits. Pure."""
    return set(re.findall(r"-(?:fmad|ftz|prec-div|prec-sqrt|use_fast_math|std)\S*", text))


class CudaPreset(unittest.TestCase):
    def test_the_library_has_every_kernel_file(self):
        kernels = sorted(path.name for path in (ROOT / "kernels/cuda").glob("*.cu"))
        with tempfile.TemporaryDirectory() as folder:
            nvcc = pathlib.Path(folder, "bin", "nvcc")
            nvcc.parent.mkdir()
            nvcc.write_text(STAND_IN)
            nvcc.chmod(0o755)
            calls = pathlib.Path(folder, "calls")
            environment = os.environ | {"PATH": f"{nvcc.parent}:{os.environ['PATH']}", "CUDA_HOME": folder, "CALLS": str(calls)}
            build = pathlib.Path(folder, "build")
            for command in (["cmake", "--preset", "cuda", "-B", build, "-DBATON_GRPC=OFF"], ["cmake", "--build", build, "--target", "baton_cuda_kernels"]):
                done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            library = ctypes.CDLL(str(build / "bin/libbaton_cuda_kernels.so"))
            table = ctypes.cast(ctypes.addressof(ctypes.c_char_p.in_dll(library, "baton_cuda_images")), ctypes.POINTER(ctypes.c_char_p))
            images = list(itertools.takewhile(lambda image: image is not None, (table[i] for i in itertools.count())))
            self.assertEqual(sorted(image.decode() for image in images), kernels)
            built = calls.read_text().splitlines()
            self.assertEqual(len(built), len(kernels))
            checked = numeric_flags((ROOT / "scripts/compile_cuda.sh").read_text())
            self.assertIn("-fmad=false", checked)
            for flags in built:
                self.assertEqual(numeric_flags(flags), checked)
                self.assertIn("--Werror=all-warnings", flags)


if __name__ == "__main__":
    unittest.main()
