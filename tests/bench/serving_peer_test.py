#!/usr/bin/env python3
"""Tests bench/serving_peer.py with stand-ins for llama-server and baton. Standard library only."""

import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "serving_peer.py"

# GET /speed: output tokens/s.
SERVER = """#!{python}
import http.server, sys
flag = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert flag["-t"] == "2" and int(flag["--threads-http"]) > int(flag["-np"]), sys.argv
speed = {{"off": {off}, "on": {on}}}[flag["-fa"]]
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(speed).encode())
http.server.HTTPServer(("127.0.0.1", int(flag["--port"])), Handler).serve_forever()
"""
# `up` serves with the speed {ours}; with two decode workers, one policy is faster. `bench` writes two answers in time, one that comes
# late and one that failed, so that the answers in time have half of the tokens.
BATON = """#!{python}
import http.server, json, sys, urllib.request
command, words = sys.argv[1], sys.argv[2:]
if command == "up":
    speed = {ours}
    if "--router-argument=--routing-policy=quick" in words: speed *= 2
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_): pass
        def do_GET(self):
            self.send_response(200); self.end_headers(); self.wfile.write(str(speed).encode())
    threads = "2" if words[words.index("--decode-workers") + 1] == "1" else "1"
    assert f"--worker-argument=--threads={{threads}}" in words, words
    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print("ready 127.0.0.1:1"); print(f"http 127.0.0.1:{{server.server_port}}", flush=True)
    server.serve_forever()
flag = dict(zip(words[0::2], words[1::2]))
speed = float(urllib.request.urlopen(flag["--target"].removesuffix("/v1") + "/health").read())
with open({log!r}, "a") as log: print(flag["--seed"], speed, flag.get("--concurrency"), flag.get("--workload"), file=log)
rows = [("ok", 10, 100), ("ok", 10, 600), ("ok", 20, 10**6), ("failed", 0, 0)]
with open(flag["--records"], "w") as out:
    for outcome, tokens, ms in rows: print(json.dumps({{"outcome": outcome, "output_tokens": tokens, "ttft_ms": ms}}), file=out)
with open(flag["--json"], "w") as out: json.dump({{"duration_s": 20 / speed}}, out)
"""


class ServingPeer(unittest.TestCase):
    def compare(self, *arguments, ours=300, off=100, on=50):
        with tempfile.TemporaryDirectory() as directory:
            log = pathlib.Path(directory) / "log"
            for name, text in [("server", SERVER), ("baton", BATON)]:
                path = pathlib.Path(directory) / name
                path.write_text(text.format(python=sys.executable, off=off, on=on, ours=ours, log=str(log)))
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            done = subprocess.run([sys.executable, "-B", SCRIPT, "--baton", f"{directory}/baton", "--server", f"{directory}/server",
                                   "--model", "m", "--threads", "2", "--rounds", "2", *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.log = [line.split() for line in log.read_text().splitlines()]
        return {figure["name"]: figure for figure in json.loads(done.stdout.splitlines()[-1])["figures"]}

    def test_only_answers_in_time_count_and_the_peers_better_mode(self):
        figures = self.compare("--clients", "1,4")
        one, four = figures["to_peer_output_tokens_1"], figures["to_peer_output_tokens_4"]
        # One client: the objective is 750 ms, so two answers of 10 tokens count, in 20 / speed seconds.
        self.assertEqual((one["ours_tokens_per_s"], one["peer_tokens_per_s"], one["value"], one["limit"]), (300, 100, 3, 1.5))
        self.assertEqual((four["value"], four["ratio"], four["runs"]), (3, 1, 2))
        self.assertEqual((one["ours_ttft_p50_ms"], one["ours_failed"]), (600, 1))
        self.assertIn("-fa off", one["peer_name"])

    def test_one_mode_of_the_peer_can_be_left_out(self):
        self.assertEqual(self.compare("--clients", "4", "--flash", "on")["to_peer_output_tokens_4"]["value"], 6)
        self.assertEqual(len(self.log), 4)

    def test_both_get_the_same_requests_and_rounds_alternate(self):
        self.compare("--clients", "4", "--seed", "7")
        self.assertEqual(self.log, [["7", "300.0", "4", "None"], ["7", "50.0", "4", "None"], ["7", "100.0", "4", "None"],
                                    ["8", "100.0", "4", "None"], ["8", "50.0", "4", "None"], ["8", "300.0", "4", "None"]])

    def test_a_trace_is_played_under_every_policy(self):
        figures = self.compare("--clients", "", "--trace", "t", "--policies", "quick,least-loaded")
        self.assertEqual({name: figure["value"] for name, figure in figures.items()},
                         {"to_peer_output_tokens_trace": 3, "to_peer_output_tokens_trace_quick": 6,
                          "to_peer_output_tokens_trace_least_loaded": 3})
        self.assertEqual({row[3] for row in self.log}, {"mooncake"})


if __name__ == "__main__":
    unittest.main()
