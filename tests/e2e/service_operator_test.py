#!/usr/bin/env python3
"""Operator's commands on a running fleet: workers by name, `baton status --watch`, notes after answers.

  service_operator_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k watch]

Standard library only.
"""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

from cluster import children_of, wait_until
from service_case import SEEN_TIMEOUT_S, ServiceTest, baton, main


def run(*arguments, **variables):
    return subprocess.run([baton(), *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **variables})


class WorkersByName(ServiceTest):
    decode = 2
    worker_arguments = ("--kv-blocks=100", "--kv-cache-max-mib=100", "--threads=1")

    def command(self, *arguments):
        return run(*arguments, "--router", self.cluster.router)

    def limits(self):
        return {name: worker["pool"]["limit_blocks"] for name, worker in self.cluster.workers().items()}

    def test_the_router_knows_the_new_size_when_resize_returns(self):
        for blocks in range(101, 121):
            done = self.command("resize", "--worker", "decode-1", "--blocks", str(blocks))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, rf"^{blocks} blocks, had \d+; \d+ reserved, 0 retiring\n$")
            self.assertEqual(self.limits()["decode-1"], blocks)

    def test_all_workers_are_resized_and_each_has_a_line(self):
        done = self.command("resize", "--all", "--blocks", "90")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertCountEqual(re.findall(r"(?m)^(\S+): 90 blocks", done.stdout), self.limits())
        self.assertEqual(set(self.limits().values()), {90})

    def test_one_failure_of_several_is_the_exit_code(self):
        done = self.command("resize", "--all", "--blocks", "100000000")
        self.assertEqual(done.returncode, 2)
        for name in self.limits():
            self.assertIn(f"{name}: ", done.stderr)

    def test_an_unknown_name_is_answered_with_the_nearest(self):
        done = self.command("inspect", "worker", "--worker", "decod-1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no worker decod-1; did you mean decode-1?", done.stderr)

    def test_names_work_for_inspect_and_clear_cache(self):
        done = self.command("inspect", "worker", "--worker", "prefill-0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("paged attention", done.stdout)
        done = self.command("inspect", "worker", "--all")
        self.assertCountEqual(re.findall(r"(?m)^(\S+) at 127", done.stdout), self.limits())
        done = self.command("clear-cache", "--all")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"(?m)^\S+: \d+ blocks freed$", done.stdout)), 3)

    def test_prompt_chunks_are_listed_and_cleared(self):
        done = self.command("chunks", "--worker", "prefill-0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"^key +tokens +blocks +position +refs +uses +age +idle +tier\n(.*\n)*"
                                      r"\d+ chunks in \d+ of \d+ blocks \([\d.]+ of [\d.]+ MiB\)\n$")
        done = self.command("chunks", "--all", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        lists = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertCountEqual([one["worker"] for one in lists], self.limits())
        for one in lists:
            self.assertGreater(one["budget_blocks"], 0)
            self.assertIsInstance(one["chunks"], list)
        done = self.command("clear-cache", "--all", "--chunks", "--tenant", "acme")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"(?m)^\S+: 0 blocks freed$", done.stdout)), 3)

    def test_help_and_version_are_commands_too(self):
        for words, flags in ((("help",), ("--help",)), (("help", "run"), ("run", "--help")), (("version",), ("--version",))):
            done, same = run(*words), run(*flags)
            self.assertEqual((done.returncode, done.stdout), (0, same.stdout))
            self.assertNotEqual(done.stdout, "")

    def test_a_router_is_no_worker(self):
        for command in (("set-role", "--role=both"), ("resize", "--blocks=100"), ("clear-cache",)):
            done = run(command[0], "--worker", self.cluster.router, *command[1:])
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"{self.cluster.router} is not a worker, or it is older: `baton status` shows the workers", done.stderr)

    def test_the_router_may_be_named_by_a_variable(self):
        done = run("clear-cache", "--worker", "decode-0", BATON_ROUTER=self.cluster.router)
        self.assertEqual(done.returncode, 0, done.stderr)


class Status(ServiceTest):
    worker_arguments = ("--kv-blocks=512", "--threads=1", "--drain-ms=60000")

    def status(self, *arguments):
        done = run("status", "--router", self.cluster.router, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def row(self, name):
        lines = self.status().splitlines()
        row = next(line.split() for line in lines if line.startswith(name))
        return dict(zip(lines[1].replace("RSS MiB", "RSS").split(), row))

    def test_a_worker_shows_its_state_uptime_and_rate(self):
        self.cluster.generate([{"id": "it", "prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True}])
        wait_until(lambda: float(self.row("decode-0")["answer/s"]) > 0, SEEN_TIMEOUT_S, "a rate")
        row = self.row("decode-0")
        self.assertEqual(row["state"], "serving")
        self.assertRegex(row["uptime"], r"^(\d+m)?\d+s$")
        self.assertNotIn("index:", self.status())
        self.assertIn("index:", self.status("--index"))

    def test_watch_appends_to_a_pipe_and_ends_with_0(self):
        with subprocess.Popen([baton(), "status", "--router", self.cluster.router, "--watch=0.1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            for _ in range(3):
                while "router: ready" not in watch.stdout.readline():
                    pass
            watch.send_signal(signal.SIGINT)
            rest, errors = watch.communicate(timeout=SEEN_TIMEOUT_S)
        self.assertEqual(watch.returncode, 0, errors)
        self.assertNotIn("\033", rest)

    def test_watch_in_json_has_a_line_each(self):
        with subprocess.Popen([baton(), "status", "--router", self.cluster.router, "--json", "--watch=0.1"],
                              stdout=subprocess.PIPE, text=True) as watch:
            for _ in range(2):
                self.assertTrue(json.loads(watch.stdout.readline())["ready"])
            watch.send_signal(signal.SIGTERM)
            watch.communicate(timeout=SEEN_TIMEOUT_S)
        self.assertEqual(watch.returncode, 0)

    def test_watch_redraws_a_terminal(self):
        master, slave = pty.openpty()
        watch = subprocess.Popen([baton(), "status", "--router", self.cluster.router, "--watch=0.1"], stdin=slave,
                                 stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        shown, end = "", time.monotonic() + SEEN_TIMEOUT_S
        while shown.count("router: ready") < 3 and time.monotonic() < end:
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 4096).decode(errors="replace")
        watch.send_signal(signal.SIGINT)
        self.assertEqual(watch.wait(SEEN_TIMEOUT_S), 0)
        os.close(master)
        self.assertGreaterEqual(shown.count("\033[H"), 3)
        self.assertGreaterEqual(shown.count("router: ready"), 3)

    def test_watch_continues_without_a_router(self):
        with subprocess.Popen([baton(), "status", "--router", "127.0.0.1:1", "--watch=0.1"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            for _ in range(2):
                self.assertIn("UNAVAILABLE", watch.stderr.readline())
            watch.send_signal(signal.SIGINT)
            watch.communicate(timeout=SEEN_TIMEOUT_S)
        self.assertEqual(watch.returncode, 0)

    def test_a_worker_that_drains_is_shown(self):
        pid = next(pid for pid, name in children_of(self.cluster.process.pid).items() if "decode" in name)
        with self.long_answer() as client:
            self.wait_for_work("DECODE")
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: self.row("decode-0")["state"] == "draining", SEEN_TIMEOUT_S, "a worker that drains")
            leaving = self.cluster.status()["leaving_workers"]
            self.assertEqual([worker["worker_id"] for worker in leaving], ["decode-0"])
            client.kill()
            client.communicate()
        wait_until(lambda: "decode-0" in self.cluster.workers(), SEEN_TIMEOUT_S, "a new incarnation")
        self.assertEqual(self.cluster.status()["leaving_workers"], [])


class NotesBelowAnswers(ServiceTest):
    worker_arguments = ("--kv-blocks=20", "--threads=1")

    def notes(self, *arguments, code=0):
        done = run("generate", "--router", self.cluster.router, "--no-ledger", "--temperature=0", *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def test_notes_say_why_an_answer_stopped(self):
        prompt = ("--prompt", "Once upon a time, there was a")
        self.assertEqual(self.notes(*prompt, "--max-tokens=3"), "(stopped: 3 tokens, --max-tokens)\n")
        self.assertEqual(self.notes(*prompt, "--stop", " the", "--max-tokens=200"), '(stopped: " the", --stop)\n')
        self.assertRegex(self.notes(*prompt, "--ignore-eos"),
                         r"^\(stopped: no room for more, prompt and answer have \d+ tokens\)\n$")
        done = run("generate", "--router", self.cluster.router, *prompt, "--ignore-eos", "--timeout-ms=300")
        self.assertEqual(done.returncode, 1, done.stderr)
        has_begun = done.stdout.strip() != ""
        self.assertIn("(stopped: the deadline passed, --timeout-ms)" if has_begun else "baton: DEADLINE_EXCEEDED",
                      done.stderr)

    def test_log_probabilities_have_the_tokens_texts(self):
        notes = self.notes("--prompt", "The capital of France is", "--max-tokens=2", "--logprobs=3")
        rows = [line for line in notes.splitlines() if re.search(r"-?\d+\.\d{3}", line)]
        self.assertEqual(len(rows), 2, notes)
        for row in rows:
            self.assertEqual(len(re.findall(r'"[^"]*" +-?\d+\.\d{3}', row)), 4, notes)

    def test_several_answers_have_one_ledger(self):
        done = run("generate", "--router", self.cluster.router, "--prompt=Once", "--n=3", "--max-tokens=2")
        self.assertEqual(done.stderr.count("latency ledger"), 1, done.stderr)
        self.assertEqual(done.stderr.count("(stopped: 2 tokens, --max-tokens)"), 3)

    def test_a_conversation_samples_with_its_own_defaults(self):
        """With a seed, the defaults give the same answer as flags with the same values."""
        ask = ("generate", "--router", self.cluster.router, "--chat=Tell me a story.", "--max-tokens=24", "--seed=7",
               "--no-ledger")
        answer = run(*ask).stdout
        self.assertEqual(answer, run(*ask, "--temperature=0.4", "--top-p=0.9").stdout)
        self.assertNotEqual(answer, run(*ask, "--temperature=1", "--top-p=1").stdout)
        lines = "/settings\nTell me a story.\n"
        done = subprocess.run([baton(), "chat", "--router", self.cluster.router, "--max-tokens=2", "--top-k=5"],
                              input=lines, capture_output=True, text=True, timeout=120)
        self.assertIn("sampling: temperature 0.4 (default), top-k 5 (flag), top-p 0.9 (default)", done.stderr)
        self.assertIn("(stopped: 2 tokens, --max-tokens)", done.stderr)


if __name__ == "__main__":
    main(__doc__)
