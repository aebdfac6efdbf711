#!/usr/bin/env python3
"""Choice of the slice for CI: by the changed paths, or else by the commit's number."""

import pathlib
import subprocess
import sys
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
