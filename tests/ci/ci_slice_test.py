#!/usr/bin/env python3
"""Choice of the slice for CI: by the changed paths, or else by the commit's number."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import ci_slice


def chosen_over(changed, numbers):
    return [ci_slice.choose(changed, number) for number in numbers]


class Choice(unittest.TestCase):
    def test_consecutive_commits_cover_every_slice_where_no_path_names_one(self):
        for changed in ([], ["README.md"], ["docs/decisions/0001-layers.md", "bench/engine_bench.txt"]):
            self.assertEqual(chosen_over(changed, range(len(ci_slice.SLICES))), ci_slice.SLICES)

    def test_a_path_chooses_among_the_slices_that_test_it(self):
        for path, slices in [
                ("cli/chat_command.cc", {"tidy", "asan", "heavy"}),
                ("kernels/cpu/cpu_stream.h", {"tidy", "asan", "tsan"}),
                ("rpc/channel.cc", {"tidy", "asan-grpc"}),
                ("router/server/main.cc", {"tidy", "asan", "asan-grpc", "heavy"}),
                ("proto/baton/v1/worker.proto", {"asan-grpc"}),
                ("model/gguf_reader.cc", {"tidy", "asan", "tsan", "fuzz"}),
                ("kernels/cuda/ptx.cuh", {"tidy", "cuda"}),
                ("bench/read_bytes.cu", {"tidy", "cuda"}),
                ("scripts/kernel_spills.py", {"cuda"}),
                ("bench/read_bandwidth.h", {"tidy", "asan"}),
                ("router/failure_detector.cc", {"tidy", "asan", "tsan", "heavy"}),
                (".clang-tidy", {"tidy"}),
                ("scripts/fuzz.sh", {"fuzz"}),
                ("tests/gpu_emulator/fiber.cc", {"tidy", "cuda"}),
                ("tests/fuzz/gguf_fuzz.cc", {"tidy", "fuzz"}),
                ("tests/e2e/service_test.py", {"heavy"})]:
            with self.subTest(path=path):
                self.assertEqual(set(chosen_over([path], range(60))), slices)

    def test_more_paths_add_their_slices(self):
        self.assertEqual(set(chosen_over(["rpc/channel.cc", "text/jinja/lexer.cc", "README.md"], range(60))),
                         {"tidy", "asan", "asan-grpc", "fuzz"})

    def test_a_slice_on_trial_is_never_chosen(self):
        for changed in ([], ["kernels/cpu/cpu_stream.h"], ["cli/main.cc", "rpc/channel.cc"]):
            self.assertEqual(set(ci_slice.choose(changed, number, ["asan", "tidy"]) for number in range(60)) & {"asan", "tidy"}, set())
        self.assertLess(len(ci_slice.ON_TRIAL), len(ci_slice.SLICES))

    def test_consecutive_commits_run_every_slice_on_trial(self):
        for changed in ([], ["kernels/cpu/cpu_stream.h", "rpc/channel.cc"]):
            chosen = {ci_slice.choose_trial(changed, number) for number in range(60)}
            self.assertLessEqual(chosen, set(ci_slice.ON_TRIAL) or {None})
        self.assertEqual({ci_slice.choose_trial([], number) for number in range(60)}, set(ci_slice.ON_TRIAL) or {None})

    def test_the_same_commit_gives_the_same_slice(self):
        paths = ["cli/main.cc", "engine/engine.cc"]
        self.assertEqual(ci_slice.choose(paths, 17), ci_slice.choose(paths[::-1], 17))


class Kernels(unittest.TestCase):
    TEXT = {"k/a.cu": '#include "k/a.cuh"\n#include <math.h>\n', "k/a.cuh": '#include "k/p.h"\n#include "k/loop.h"\n',
            "k/loop.h": '#include "k/a.cuh"\n', "k/p.h": "", "k/b.cu": '#include "k/p.h"\n', "k/c.cu": ""}

    def affected(self, *changed):
        return ci_slice.affected(["k/a.cu", "k/b.cu", "k/c.cu"], changed, self.TEXT)

    def test_a_kernel_is_compiled_if_it_or_what_it_includes_has_changed(self):
        self.assertEqual(self.affected("k/p.h"), ["k/a.cu", "k/b.cu"])
        self.assertEqual(self.affected("k/loop.h"), ["k/a.cu"])
        self.assertEqual(self.affected("k/c.cu", "README.md"), ["k/c.cu"])
        self.assertEqual(self.affected("README.md"), [])

    def test_the_includes_of_this_tree_are_found(self):
        self.assertIn("kernels/cuda/paged_attention_int8.cu", ci_slice.affected_kernels(["kernels/cuda/ptx.cuh"]))
        self.assertEqual(ci_slice.affected_kernels(["kernels/cuda/rows.cu"]), ["kernels/cuda/rows.cu"])
        self.assertEqual(ci_slice.affected_kernels(["kernels/cpu/plain_kernels.cc"]), [])


class CudaSlice(unittest.TestCase):
    """The slice with stand-ins for its programs: each notes its call."""
    CALLS = {"install_packages.sh": "", "fetch_model.sh": "", "run_ctest.py": "", "build.sh": "", "ci_slice.py": "echo kernels/cuda/b.cu",
             "compile_cuda.sh": "exit 75"}

    def test_nvcc_compiles_changed_kernels_before_the_tests_and_the_others_after_them(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for path in ("scripts", "bin", "kernels/cuda", "tests/cuda", "bench"):
                (root / path).mkdir(parents=True)
            for path in ("kernels/cuda/a.cu", "kernels/cuda/b.cu", "tests/cuda/c.cu", "bench/d.cu"):
                (root / path).touch()
            shutil.copy(ROOT / "scripts/ci_slice.sh", root / "scripts")
            stand_ins = {root / "scripts" / name: text for name, text in self.CALLS.items()} | {root / "bin/cmake": ""}
            for path, text in stand_ins.items():
                path.write_text(f"#!/bin/sh\necho {path.name} $* >> '{root}/calls'\n{text}\n")
                path.chmod(0o755)
            done = subprocess.run([root / "scripts/ci_slice.sh", "cuda", "300"], capture_output=True, text=True, check=True,
                                  env=os.environ | {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"})
            calls = (root / "calls").read_text().splitlines()
        compiled = [call for call in calls if call.startswith("compile_cuda.sh")]
        self.assertEqual(compiled[0], "compile_cuda.sh --seconds 100 kernels/cuda/b.cu")
        self.assertEqual(set(compiled[1].split()[3:]), {"kernels/cuda/a.cu", "tests/cuda/c.cu", "bench/d.cu"})
        self.assertLess(calls.index(compiled[0]), next(i for i, call in enumerate(calls) if call.startswith("cmake")))
        self.assertEqual(calls[-1], compiled[1])
        # What nvcc did not compile is no success.
        self.assertIn("left: nvcc on changed kernels: see its last lines", done.stdout)
        self.assertIn("2 not finished", done.stdout)


class Rules(unittest.TestCase):
    def test_every_rule_names_known_slices_and_fits_a_file_of_the_tree(self):
        # Not `git ls-files`, because the tree may lack its history.
        files = [path.relative_to(ROOT).as_posix() for folder in ROOT.iterdir()
                 if folder.is_dir() and folder.name not in ("build", ".git") for path in folder.rglob("*") if path.is_file()]
        for pattern, slices in ci_slice.RULES:
            with self.subTest(pattern=pattern.pattern):
                self.assertLessEqual(set(slices), set(ci_slice.SLICES))
                self.assertTrue(any(pattern.search(path) for path in files))

    def test_every_slice_is_reached_by_a_path_and_known_to_the_runner(self):
        self.assertEqual({slice for _, slices in ci_slice.RULES for slice in slices}, set(ci_slice.SLICES))
        for slice in ci_slice.SLICES:
            self.assertEqual(subprocess.run([ROOT / "scripts" / "ci_slice.sh", "--knows", slice]).returncode, 0, slice)
        self.assertEqual(subprocess.run([ROOT / "scripts" / "ci_slice.sh", "--knows", "nothing"],
                                        capture_output=True).returncode, 2)


class Rotation(unittest.TestCase):
    def test_commits_of_one_slice_start_at_every_check(self):
        numbers = range(900, 900 + 60 * len(ci_slice.SLICES))
        for checks in (3, 4, 5, 13):
            done = subprocess.run([ROOT / "scripts" / "ci_slice.sh", "--first-of", str(checks), *map(str, numbers)],
                                  capture_output=True, text=True, check=True)
            first = dict(zip(numbers, map(int, done.stdout.split()), strict=True))
            for candidates in range(1, len(ci_slice.SLICES) + 1):
                for remainder in range(candidates):
                    with self.subTest(checks=checks, candidates=candidates, remainder=remainder):
                        starts = [first[number] for number in numbers if number % candidates == remainder]
                        self.assertEqual(set(starts), set(range(checks)))
                        self.assertEqual(set(starts[:4 * checks]), set(range(checks)), "it takes too many commits")

    def test_a_part_of_cuda_tests_is_first_for_every_preset(self):
        def first(checks):
            done = subprocess.run([ROOT / "scripts" / "ci_slice.sh", "--first-of", str(checks), *map(str, range(900, 960))],
                                  capture_output=True, text=True, check=True)
            return done.stdout.split()
        self.assertEqual(len(set(zip(first(2), first(5), strict=True))), 10)


if __name__ == "__main__":
    unittest.main(verbosity=2)
