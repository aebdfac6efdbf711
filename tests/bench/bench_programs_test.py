#!/usr/bin/env python3
"""Runs the benchmarks at their smallest sizes, in their modes. Checks that they end well and give their figures. Times do not count.
cuda_bench has tests of its own (scripts/gpu_check.sh)."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

# Program and its arguments, and a figure that it must give, if any. $model and $folder are replaced.
SHORT = [
    ("chunk_bench --model $model --rounds 1 --chunks 2 --chunk-tokens 32 --answer-tokens 4", "ttft_full_over_cached"),
    ("chunk_bench --model $model --generated --sets one_fact_8x64 --limit 2", "one_fact_8x64_alone_share15_accuracy"),
    ("chunk_bench --model $model --generated --sets two_fact_8x64 --limit 2 --write-questions $folder/questions.jsonl", None),
    ("chunk_bench --model $model --questions $folder/questions.jsonl", "file_sequential_share15_accuracy"),
    ("chunk_bench --model $model --rotation --rounds 1", "kl_query_alone"),
    ("chunk_bench --model $model --wakes --rounds 1", "wake_us"),
    ("engine_bench --model $model --quick --only decode_1", "decode_1_tokens_per_s"),
    ("engine_bench --model $model --quick --profile $folder/profile.json", "profile_mixed_step_ratio"),
    ("grpc_bench --calls 10 --rest-ms 0", "grpc_hop_us"),
    ("http_bench --streams 10 --health-requests 100 --clients 2 --milliseconds 100 --rounds 1 --tokens 4", "health_p99_ms"),
    ("index_bench --synthetic 200 --workers 4 --runs 1 --laps 1", "block_ops_per_s"),
    ("paging_bench --model $model", "fork_copy_us"),
    ("radix_bench --most-nodes 1000", "match_us_64x64"),
    ("routing_bench --synthetic 200", "decisions_per_s"),
    ("routing_bench --scenario hot-prefix", "hot_prefix_workers_kv_aware"),
]
LONG = [
    ("kernel_bench --only rms_norm", "avx2/1 thread/rms_norm+quantize x512"),
    ("transfer_bench --max-mib 1 --sender-mib 1 --repeats 3 --no-table", "shm_to_memcpy"),
]


class Benchmarks(unittest.TestCase):
    def test_each_gives_its_figures(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        for words, figure in chosen:
            with self.subTest(words):
                program, *arguments = words.replace("$model", options.model).replace("$folder", folder).split()
                done = subprocess.run([pathlib.Path(options.bin, program), *arguments], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                if figure is None:
                    continue
                last = json.loads(done.stdout.splitlines()[-1])
                values = {one["name"]: one["value"] for one in last["figures"]}
                self.assertIn(figure, list(values))
                self.assertIsNotNone(values[figure])


class StoppedRuns(unittest.TestCase):
    def test_chunk_bench_goes_on(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())

        def figures(*arguments):
            command = [pathlib.Path(options.bin, "chunk_bench"), "--model", options.model, "--generated", "--sets", "one_fact_8x64"]
            done = subprocess.run([*command, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout.splitlines()[-1])

        scores = pathlib.Path(folder, "scores.jsonl")
        figures("--limit", "1", "--scores", scores)
        # A run that was killed while it wrote its second question.
        scores.write_text(scores.read_text() + scores.read_text()[:100])
        resumed = figures("--limit", "3", "--scores", scores)
        self.assertIn("one_fact_8x64: the scores of 1 of 3 questions come from earlier runs (--scores), perhaps of another build.", resumed["conditions"])
        self.assertEqual(resumed["figures"], figures("--limit", "3")["figures"])
        self.assertEqual(len(scores.read_text().splitlines()), 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder of the programs")
    parser.add_argument("--model", required=True)
    parser.add_argument("--long", action="store_true", help="those that take long even at their smallest sizes")
    options = parser.parse_args()
    chosen = LONG if options.long else SHORT
    for words, _ in chosen:
        if not pathlib.Path(options.bin, words.split()[0]).exists():
            print(f"not run: {words.split()[0]} is not built")
            sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2, defaultTest=["Benchmarks"] if options.long else None)
