#!/usr/bin/env python3
"""Tests `baton bench` on the real model over gRPC, and on the mock server of known times over HTTP.

Only lower bounds of times are checked, because a busy machine may be slow.

  service_bench_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k stall]

Standard library only.
"""

import html.parser
import json
import pathlib
import signal
import subprocess
import tempfile
import unittest

from cluster import wait_until
from fleet import Process
from service_case import SEEN_TIMEOUT_S, ServiceTest, baton, main

FIGURES = ["ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms", "tpot_p50_ms", "e2e_p99_ms", "output_tokens_per_s",
           "goodput_per_s", "goodput_share", "cached_token_share", "requests_ok", "requests_refused", "requests_failed",
           "max_rate_per_s", "late_p99_ms", "harness_cpu_share"]


class Page(html.parser.HTMLParser):
    """Counts the elements of a page and finds what it would load."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads = {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.loads += [value for name, value in attrs if name in ("src", "href", "srcset", "data")]


class Bench(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def path(self, name):
        return str(self.directory / name)

    def bench(self, target, *arguments, code=0):
        """Returns the last line of the output. Its figures are also a dictionary, under `value`."""
        done = subprocess.run([baton(), "bench", "--target", target, *arguments], capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, code, done.stderr + done.stdout)
        last = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual([figure["name"] for figure in last["figures"]], FIGURES)
        last["value"] = {figure["name"]: figure["value"] for figure in last["figures"]}
        return last

    def refusal(self, *arguments, code=2):
        done = subprocess.run([baton(), "bench", *arguments], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def records(self, name):
        return [json.loads(line) for line in pathlib.Path(self.path(name)).read_text().splitlines()]


class OverGrpc(ServiceTest, Bench):
    worker_arguments = ("--kv-blocks=2048",)

    def run_bench(self, *arguments, **options):
        return self.bench(f"grpc://{self.cluster.router}", "--arrivals=closed", "--concurrency=2", "--output-tokens=4",
                          *arguments, **options)

    def decoded(self):
        return int(self.cluster.workers()["decode-0"]["decode_tokens"])

    def test_every_workload_is_answered(self):
        for workload, arguments in {
                "synthetic": ("--prompt-tokens=40", "--length-spread=0.5"),
                "shared-prefix": ("--prompt-tokens=16", "--prefixes=1", "--prefix-tokens=128"),
                "chat": ("--prompt-tokens=32", "--turns=3", "--think-s=0"),
                "chunks": ("--prompt-tokens=8", "--system-tokens=16", "--chunk-pool=3", "--chunks=2",
                           "--chunk-tokens=32")}.items():
            with self.subTest(workload):
                result = self.run_bench("--workload", workload, "--requests=9", *arguments,
                                        f"--records={self.path('records')}")
                self.assertEqual(result["value"]["requests_ok"], 9)
                self.assertIsNone(result["value"]["late_p99_ms"])
                for record in self.records("records"):
                    self.assertIn(record["output_tokens"], range(2, 7) if workload == "synthetic" else (4,))
                    self.assertGreater(record["ledger"]["total_us"], 0)
                if workload in ("shared-prefix", "chat"):
                    self.assertGreater(result["value"]["cached_token_share"], 0.2)

    def test_text_is_a_prompt_too(self):
        for workload in ("synthetic", "chat"):
            result = self.run_bench("--text", "--requests=4", "--workload", workload, "--prompt-tokens=20", "--think-s=0")
            self.assertEqual(result["value"]["requests_ok"], 4)

    def test_a_trace_is_played_with_its_shared_blocks_and_clipped_to_the_context(self):
        trace = self.path("trace.jsonl")
        lines = [{"timestamp": 10 * i, "input_length": 1536 + 100, "output_length": 3, "hash_ids": [1, 2, 3, 100 + i]}
                 for i in range(6)]
        lines.append({"timestamp": 100, "input_length": 512 * 400, "output_length": 2, "hash_ids": list(range(500, 900))})
        pathlib.Path(trace).write_text("".join(json.dumps(line) + "\n" for line in lines))
        result = self.bench(f"grpc://{self.cluster.router}", "--workload=mooncake", f"--trace={trace}",
                            "--trace-block-tokens=32", "--context-length=300", f"--records={self.path('records')}",
                            f"--json={self.path('report')}")
        self.assertEqual(result["value"]["requests_ok"], 7)
        records = self.records("records")
        self.assertEqual([record["prompt_tokens"] for record in records[:6]], [103] * 6)  # (1636 * 32 + 511) // 512
        self.assertEqual(records[6]["prompt_tokens"], 298)
        clipped = json.loads(pathlib.Path(self.path("report")).read_text())["clipped"]
        self.assertEqual((clipped["requests"], clipped["prompt_tokens"]), (1, 400 * 32 - 298))
        self.assertEqual(records[0]["output_tokens"], 3)
        # Afterwards, the blocks that all prompts share are cached.
        again = self.run_bench("--workload=mooncake", f"--trace={trace}", "--trace-block-tokens=32",
                               "--context-length=300", "--requests=6")
        self.assertGreater(again["value"]["cached_token_share"], 0.9)

    def test_the_azure_trace_is_played(self):
        trace = self.path("trace.csv")
        pathlib.Path(trace).write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,30,4\n"
                                       "2023-11-16 18:17:04.0000000,20,2\n")
        result = self.bench(f"grpc://{self.cluster.router}", "--workload=azure", f"--trace={trace}")
        self.assertEqual(result["value"]["requests_ok"], 2)

    def test_the_seed_decides_the_requests(self):
        prompts = []
        for seed in (5, 5, 6):
            self.run_bench(f"--seed={seed}", "--requests=6", "--prompt-tokens=30", "--length-spread=0.9",
                           f"--records={self.path('records')}")
            prompts.append(sorted((record["number"], record["prompt_tokens"]) for record in self.records("records")))
        self.assertEqual(prompts[0], prompts[1])
        self.assertNotEqual(prompts[0], prompts[2])

    def test_a_refused_request_is_counted_by_its_kind(self):
        result = self.run_bench("--requests=3", "--prompt-tokens=9000", "--context-length=20000", code=1)
        self.assertEqual(result["value"]["requests_failed"], 3)
        self.assertIsNone(result["value"]["ttft_p50_ms"])

    def test_ctrl_c_ends_the_run_and_reports_what_came(self):
        client = subprocess.Popen([baton(), "bench", "--target", f"grpc://{self.cluster.router}", "--arrivals=closed",
                                   "--concurrency=1", "--requests=100000", "--prompt-tokens=4", "--output-tokens=2"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        decoded = self.decoded()
        wait_until(lambda: self.decoded() > decoded, SEEN_TIMEOUT_S, "answers in the status")
        client.send_signal(signal.SIGINT)
        output, _ = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 130)
        last = json.loads(output.splitlines()[-1])
        self.assertIn("The run was interrupted.", last["conditions"])
        self.cluster.wait_at_rest()


class OnTheMock(Bench):
    def mock(self, *arguments):
        process = Process([baton(), "bench", "mock", "--listen=127.0.0.1:0", *arguments], "ready")
        self.addCleanup(process.close)
        return f"http://{process.address}/v1"

    def test_known_times_are_the_lower_bounds_of_what_is_measured(self):
        result = self.bench(self.mock("--ttft-ms=50", "--itl-ms=4"), "--rate=20", "--requests=40", "--output-tokens=10",
                            f"--json={self.path('report')}")
        self.assertEqual(result["value"]["requests_ok"], 40)
        self.assertGreaterEqual(result["value"]["ttft_p50_ms"], 50)
        self.assertGreaterEqual(result["value"]["tpot_p50_ms"], 4 * 0.98)
        self.assertEqual(json.loads(pathlib.Path(self.path("report")).read_text())["distributions"]["itl_ms"]["count"], 40 * 9)

    def test_a_stall_shows_in_the_quantiles(self):
        # 100 ms in every 500 ms: a fifth of the requests waits.
        target = self.mock("--ttft-ms=1", "--itl-ms=1", "--stall-ms=100", "--stall-every-ms=500")
        result = self.bench(target, "--arrivals=constant", "--rate=100", "--requests=200", "--output-tokens=1")
        self.assertGreaterEqual(result["value"]["ttft_p99_ms"], 80)

    def test_reports_parse_and_are_compared(self):
        for name, ttft_ms in (("a", 40), ("b", 400)):
            self.bench(self.mock(f"--ttft-ms={ttft_ms}", "--itl-ms=1"), "--rate=20", "--requests=30", "--output-tokens=3",
                       "--slo=ttft_ms=60000", f"--json={self.path(name)}", f"--html={self.path(name + '.html')}")
        page = Page(pathlib.Path(self.path("a.html")).read_text())
        self.assertEqual(page.loads, [])
        self.assertNotIn("script", page.tags)
        self.assertGreaterEqual(page.tags["svg"], 7)
        done = subprocess.run([baton(), "bench", "compare", self.path("a"), self.path("b")], capture_output=True, text=True,
                              timeout=60, check=True)
        figures = {figure["name"]: figure for figure in json.loads(done.stdout.splitlines()[-1])["figures"]}
        self.assertEqual(figures["ttft_p50_ms"]["verdict"], "worse")
        self.assertLessEqual(figures["ttft_p50_ms"]["low"], figures["ttft_p50_ms"]["value"])
        self.assertEqual(figures["goodput_share"]["value"], 0)
        self.assertIn("must be a report that", self.refusal("compare", self.path("a.html"), self.path("b")))

    def test_a_rate_that_cannot_hold_is_not_found(self):
        result = self.bench(self.mock("--ttft-ms=30", "--itl-ms=0"), "--find-rate", "--slo=ttft_ms=10", "--rate=200",
                            "--max-rate=200", "--requests=100", "--output-tokens=1", "--warmup=0", code=0)
        self.assertIsNone(result["value"]["max_rate_per_s"])
        self.assertEqual(result["value"]["goodput_share"], 0)

    def test_wrong_flags_and_traces_are_usage_errors(self):
        self.assertIn("--target is required", self.refusal())
        self.assertIn("must be grpc://HOST:PORT or http://HOST:PORT/v1", self.refusal("--target=localhost"))
        trace = self.path("trace.jsonl")
        pathlib.Path(trace).write_text('{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n{}\n')
        self.assertIn("line 2: timestamp is missing", self.refusal("--target=http://a:1/v1", "--workload=mooncake",
                                                                   f"--trace={trace}"))
        self.assertIn("cannot write /nowhere/x", self.refusal("--target=http://a:1/v1", "--json=/nowhere/x"))
        self.assertIn("must be below --stall-every-ms",
                      self.refusal("mock", "--stall-ms=5", "--stall-every-ms=5"))
        self.assertIn("no server answers at 127.0.0.1:9",
                      self.refusal("--target=http://127.0.0.1:9/v1", code=1))


if __name__ == "__main__":
    main(__doc__)
