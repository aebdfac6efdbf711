#!/usr/bin/env python3
"""The device that quickstart.sh chooses: a driver alone is not enough, and the reason is said."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/choose_device.sh"
DRIVER = "\tlibcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1"
OTHER = "\tlibcudart.so.13 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcudart.so.13"


class ChooseDevice(unittest.TestCase):
    def choose(self, libraries, nvcc, driver_in_path=False):
        """Returns (device, reason) on a machine with these lines of `ldconfig -p`, with or without nvcc. driver_in_path: the driver is in the
        second folder of LD_LIBRARY_PATH."""
        with tempfile.TemporaryDirectory() as folder:
            def program(path, text):
                path.parent.mkdir(exist_ok=True)
                path.write_text(f"#!/bin/sh\n{text}\n")
                path.chmod(0o755)
            pathlib.Path(folder, "libraries").write_text(libraries + "\n")
            for name in ("cat", "grep"):
                pathlib.Path(folder, name).symlink_to(shutil.which(name))
            program(pathlib.Path(folder, "ldconfig"), f"exec cat '{folder}/libraries'")
            if driver_in_path:
                pathlib.Path(folder, "driver").mkdir()
                pathlib.Path(folder, "driver", "libcuda.so.1").touch()
            if nvcc:
                program(pathlib.Path(folder, "bin", "nvcc"), "exit 1")
            done = subprocess.run(["/bin/bash", str(SCRIPT)], capture_output=True, text=True, check=True,
                                  env={"PATH": folder, "CUDA_HOME": folder, "LD_LIBRARY_PATH": f"/nowhere:{folder}/driver"})
            return done.stdout.strip(), done.stderr

    def test_cuda_needs_the_driver_and_the_compiler(self):
        self.assertEqual(self.choose(f"{OTHER}\n{DRIVER}", nvcc=True)[0], "cuda")

    def test_many_libraries_after_the_driver_change_nothing(self):
        # More than a pipe holds, so a reader that stops at the driver's line makes ldconfig fail.
        self.assertEqual(self.choose("\n".join([DRIVER] + 20000 * [OTHER]), nvcc=True)[0], "cuda")

    def test_a_driver_that_only_the_library_path_names_is_found(self):
        self.assertEqual(self.choose(OTHER, nvcc=True, driver_in_path=True)[0], "cuda")

    def test_without_a_driver_it_is_the_cpu(self):
        device, reason = self.choose(OTHER, nvcc=True)
        self.assertEqual(device, "cpu")
        self.assertIn("no CUDA driver", reason)

    def test_a_driver_without_the_compiler_names_what_to_install(self):
        device, reason = self.choose(DRIVER, nvcc=False)
        self.assertEqual(device, "cpu")
        self.assertIn("nvcc", reason)
        self.assertIn("CUDA_HOME", reason)


if __name__ == "__main__":
    unittest.main()
