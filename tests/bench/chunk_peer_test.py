#!/usr/bin/env python3
"""Tests bench/chunk_peer.py with stand-ins for llama-server and baton. Standard library only."""

import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "chunk_peer.py"

# Reuses what `llama-server --cache-reuse` does: the common prefix, then runs of the slot in rising order. A new token costs 1 ms.
SERVER = """#!{python}
import http.server, json, sys
flag = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert flag["-np"] == "1" and flag["--cache-reuse"] == "64" and flag["-t"] == "2", sys.argv
factor = {{"off": {off}, "on": {on}}}[flag["-fa"]]
slot, earlier = [], []
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def answer(self, body):
        text = json.dumps(body).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers(); self.wfile.write(text)
    def do_GET(self): self.answer({{"status": "ok"}})
    def do_POST(self):
        global slot
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, cache, at = body["prompt"], 0, 0
        while cache < len(slot) and at < len(prompt):
            run = 0
            while cache + run < len(slot) and at + run < len(prompt) and slot[cache + run] == prompt[at + run]: run += 1
            if run >= 64 or (cache == at == 0 and run): at += run; cache += run
            else: cache += 1
        for kept in earlier:  # whole prompts in host memory
            same = next((i for i, (a, b) in enumerate(zip(kept, prompt)) if a != b), min(len(kept), len(prompt)))
            at = max(at, same)
        earlier.append(prompt)
        slot = prompt
        self.answer({{"timings": {{"prompt_ms": factor * (len(prompt) - at), "cache_n": at}}}})
http.server.HTTPServer(("127.0.0.1", int(flag["--port"])), Handler).serve_forever()
"""
# Keeps chunks. The first token takes 10 ms, with sequential positions 20.
BATON = """#!{python}
import json, sys
assert sys.argv[1] == "run" and "--jobs" in sys.argv, sys.argv
known = []
for line in sys.stdin:
    job = json.loads(line)
    hits = sum(chunk in known for chunk in job["chunks"])
    if {keeps}: known += job["chunks"]
    ms = 20 if job["chunk_positions"] == "sequential" else 10
    print(json.dumps({{"id": job["id"], "ledger": {{"first_token_us": ms * 1000, "chunk_hits": hits}}}}), flush=True)
"""


class ChunkPeer(unittest.TestCase):
    def compare(self, off=1, on=1, keeps=True):
        with tempfile.TemporaryDirectory() as directory:
            for name, text in [("server", SERVER), ("baton", BATON)]:
                path = pathlib.Path(directory) / name
                path.write_text(text.format(python=sys.executable, off=off, on=on, keeps=keeps))
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
            return subprocess.run(
                [sys.executable, "-B", SCRIPT, "--baton", f"{directory}/baton", "--server", f"{directory}/server", "--model", "m",
                 "--threads", "2", "--rounds", "3", "--chunks", "4", "--chunk-tokens", "100"], capture_output=True, text=True)

    def figures(self, **arguments):
        done = self.compare(**arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {figure["name"]: figure for figure in json.loads(done.stdout.splitlines()[-1])["figures"]}

    def test_the_ratio_is_the_servers_time_divided_by_ours(self):
        figures = self.figures()
        dropped, turned = figures["first_token_to_peer_dropped"], figures["first_token_to_peer_reversed"]
        # The server computes the question alone, then the question and three of four chunks.
        self.assertEqual((dropped["peer_ms"], dropped["ours_ms"], dropped["value"]), (32, 10, 3.2))
        self.assertEqual((turned["peer_ms"], turned["value"], turned["limit"]), (332, 33.2, 20))
        self.assertEqual(figures["first_token_to_peer_reversed_sequential"]["value"], 16.6)
        self.assertIsNone(figures["first_token_to_peer_reversed_sequential"]["limit"])
        self.assertEqual(dropped["runs"], 3)

    def test_the_servers_faster_mode_counts(self):
        figures = self.figures(off=2, on=1)
        self.assertEqual(figures["first_token_to_peer_dropped"]["peer_ms"], 32)
        self.assertIn("-fa on", figures["first_token_to_peer_dropped"]["peer_name"])

    def test_a_miss_of_ours_is_no_figure(self):
        done = self.compare(keeps=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("Baton found 0 of ", done.stderr)


if __name__ == "__main__":
    unittest.main()
