#!/usr/bin/env python3
"""Files of jobs on the real model: batch form, order, progress, interrupts, and several routers of which one ends.

  service_jobs_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k resume]

Standard library only.
"""

import contextlib
import json
import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from cluster import START_TIMEOUT_S, wait_until
from fault_proxy import FaultProxy
from fleet import Process, free_port
from message_taps import GrpcTap
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, baton, main



def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


class JobFiles(unittest.TestCase):
    """Each test has a folder for its files of jobs and results."""

    def setUp(self):
        self.directory = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write_jobs(self, jobs):
        path = self.directory / "jobs.jsonl"
        path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
        return str(path)

    def jobs(self, count, **fields):
        return [{"id": f"job-{i}", "prompt": f"Once upon a time there were {i}", "max_tokens": 24, "temperature": 0,
                 "ignore_eos": True, **fields} for i in range(count)]

    def run_file(self, jobs, *arguments, **fields):
        return subprocess.run([baton(), "run", "--model", ARGUMENTS.model, "--jobs", self.write_jobs(jobs), *arguments],
                              capture_output=True, text=True, timeout=600, **fields)

    def token_ids(self, jobs):
        """Returns the reference {id: token ids} of one process that runs one job at a time."""
        done = self.run_file(jobs, "--json", "--no-prefix-cache")
        self.assertEqual(done.returncode, 0, done.stderr)
        return {result["id"]: result["token_ids"] for result in lines_of(done.stdout)}


class InOneProcess(JobFiles):
    def test_ordered_results_have_the_order_of_their_jobs(self):
        jobs = self.jobs(12)
        for i, job in enumerate(jobs):
            job["max_tokens"] = 2 + 40 * (i % 3 == 0)  # every third job takes longer than those after it
        done = self.run_file(jobs, "--json", "--ordered", "--concurrency=6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([result["id"] for result in lines_of(done.stdout)], [job["id"] for job in jobs])

    def test_sampling_flags_are_the_defaults_of_jobs(self):
        done = self.run_file([{"prompt": "Once"}, {"id": 5, "prompt": "Once", "max_tokens": 3}], "--json", "--max-tokens=2",
                             "--ignore-eos", "--seed=7")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({result["id"]: result["usage"]["completion_tokens"] for result in lines_of(done.stdout)},
                         {"1": 2, 5: 3})

    def test_text_output_says_why_answers_ended_and_shows_logprobs(self):
        jobs = [{"id": "short", "prompt": "Once", "max_tokens": 2}, {"id": "own", "prompt": "Once", "max_tokens": 2, "n": 2}]
        for order in ((), ("--ordered",)):
            done = self.run_file(jobs, "--ignore-eos", "--temperature=0", "--logprobs=1", *order)
            self.assertEqual(done.returncode, 0, done.stderr)
            for name in ("[short]", "[own] choice 0", "[own] choice 1"):
                self.assertIn(f"{name} (stopped: 2 tokens, max_tokens or --max-tokens)\n  token", done.stderr)
            self.assertNotIn("stopped", done.stdout)

    def test_a_batch_has_the_answers_of_its_jobs_in_openais_form(self):
        content = [{"type": "text", "text": "Why is the sky"}, {"type": "text", "text": "blue?"}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 8, "temperature": 0}
        own = {"id": "own", **body, "messages": [{"role": "user", "content": "Why is the sky\nblue?"}]}
        batch = {"custom_id": 7, "method": "POST", "url": "/v1/chat/completions", "body": body | {"model": "any"}}
        text = {"custom_id": "text", "method": "POST", "url": "/v1/completions",
                "body": {"prompt": "Once upon", "max_tokens": 4, "n": 2, "logprobs": 1}}
        wrong = {"custom_id": "wrong", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "tools": []}}
        done = self.run_file([own, batch, text, wrong], "--json")
        self.assertEqual(done.returncode, 1, done.stderr)
        answers = {result.get("custom_id", result.get("id")): result for result in lines_of(done.stdout)}
        response = answers[7]["response"]
        self.assertIsNone(answers[7]["error"])
        self.assertEqual(response["status_code"], 200)
        self.assertEqual(response["body"]["model"], "any")
        self.assertEqual(response["body"]["choices"][0]["message"], {"role": "assistant", "content": answers["own"]["text"]})
        self.assertEqual(response["body"]["usage"]["completion_tokens"], answers["own"]["usage"]["completion_tokens"])
        choices = answers["text"]["response"]["body"]["choices"]
        self.assertEqual([choice["index"] for choice in choices], [0, 1])
        self.assertEqual(len(choices[1]["logprobs"]["tokens"]), 4)
        self.assertEqual(answers["wrong"]["response"]["status_code"], 400)
        self.assertRegex(answers["wrong"]["error"]["message"], r'^line 4, column \d+: "body.tools" is not a field of a job$')

    def test_an_interrupted_run_writes_no_result_of_jobs_that_never_began_and_resumes(self):
        jobs = self.jobs(200)
        results = self.directory / "results.jsonl"
        command = [baton(), "run", "--model", ARGUMENTS.model, "--jobs", self.write_jobs(jobs), "--json", "--resume",
                   str(results)]
        results.touch()
        with results.open("a") as output:
            first = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)
            wait_until(lambda: results.read_text().count("\n") > 3, SEEN_TIMEOUT_S, "results")
            first.send_signal(signal.SIGINT)
            error = first.communicate(timeout=SEEN_TIMEOUT_S)[1]
        self.assertEqual(first.returncode, 130)
        answered = [result for result in lines_of(results.read_text()) if "error" not in result]
        self.assertLess(len(answered), len(jobs))
        begun = results.read_text().count("\n")
        self.assertIn(f" {len(jobs) - begun} not begun; ", error.splitlines()[-1])

        # Two more jobs show that it continues after a torn line and repeats failed jobs.
        with results.open("a") as output:
            output.write('{"id": "job-199", "tok')
        short = jobs[:len(answered) + 2]
        self.write_jobs(short)
        with results.open("a") as output:
            second = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, timeout=600)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn(f" {len(answered)} answered before; ", second.stderr.splitlines()[-1])
        whole = {result["id"]: result["token_ids"] for result in lines_of(results.read_text()) if "error" not in result}
        self.assertEqual(whole, self.token_ids(short))

    def test_a_terminal_shows_progress_and_all_outputs_the_totals(self):
        master, slave = pty.openpty()
        command = [baton(), "run", "--model", ARGUMENTS.model, "--json", "--jobs", self.write_jobs(self.jobs(6))]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=slave, env={**os.environ, "TERM": "xterm"}) as run:
            os.close(slave)
            shown = b""
            with contextlib.suppress(OSError):  # the other end is closed
                while part := os.read(master, 4096):
                    shown += part
        os.close(master)
        shown = shown.decode()
        self.assertRegex(shown, r"\r3/6, \d+ tokens/s, \d+:\d\d left\033\[K")
        self.assertRegex(shown, r"\r\033\[K6 jobs: 6 answered; 144 tokens in \d+:\d\d, \d+ tokens/s\r\n$")
        piped = self.run_file(self.jobs(2), "--json")
        self.assertRegex(piped.stderr, r"^2 jobs: 2 answered; 48 tokens in \d+:\d\d, \d+ tokens/s\n$")


class ThroughRouters(JobFiles):
    """Two routers of one decode worker."""

    def setUp(self):
        super().setUp()
        own = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.routers = [self.start_router(address) for address in own]
        # Clients reach the first router through a proxy, which strikes at a message.
        self.proxy = self.enterContext(FaultProxy(("127.0.0.1", int(own[0].split(":")[1])), GrpcTap))
        self.addresses = [self.proxy.address, own[1]]
        worker = Process([str(pathlib.Path(ARGUMENTS.bin) / "baton-decode-worker"), "--model", ARGUMENTS.model,
                          "--worker-id", "decode-0", "--kv-blocks=512", "--threads=1",
                          *(f"--router={address}" for address in own)], "ready")
        self.addCleanup(worker.close)
        for address in self.addresses:
            wait_until(lambda: self.status(address).get("ready"), START_TIMEOUT_S, "a router with a worker")

    def start_router(self, address):
        router = Process([str(pathlib.Path(ARGUMENTS.bin) / "baton-router"), "--listen", address, *PATIENT_ROUTER],
                         "listening")
        self.addCleanup(router.close)
        return router

    @staticmethod
    def status(address):
        done = subprocess.run([baton(), "status", "--router", address, "--json"], capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def end_first_router_under_way(self, end):
        """Sends the signal when an answer has some tokens. The message of the 20th token waits for that."""
        self.proxy.when("Generate<", 20, lambda _: self.routers[0].signal(end))

    def generate(self, jobs, *arguments, routers=None):
        return subprocess.Popen([baton(), "generate", "--json", "--jobs", self.write_jobs(jobs), "--concurrency=3", *arguments,
                                 *(f"--router={address}" for address in routers or self.addresses)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_jobs_continue_through_the_next_router_if_one_ends(self):
        jobs = self.jobs(12)
        want = self.token_ids(jobs)
        for end in (signal.SIGKILL, signal.SIGTERM):
            with self.subTest(end=end):
                self.end_first_router_under_way(end)
                client = self.generate([job | {"cache_salt": end.name} for job in jobs])
                output, error = client.communicate(timeout=600)
                self.assertEqual(client.returncode, 0, error + output)
                results = lines_of(output)
                self.assertEqual(len(results), len(jobs))  # each once
                self.assertEqual({result["id"]: result["token_ids"] for result in results}, want)
                self.assertRegex(error, r"^12 jobs: 12 answered; ")
                self.routers[0].popen.wait(60)
                self.routers[0] = self.start_router(self.routers[0].address)
                wait_until(lambda: self.status(self.addresses[0]).get("ready"), START_TIMEOUT_S, "the router again")

    def test_retries_wait_for_a_router_that_comes_back(self):
        self.routers[0].kill()
        jobs = self.jobs(3)
        client = self.generate(jobs, "--retries=1000", routers=self.addresses[:1])
        time.sleep(1)
        self.assertIsNone(client.poll())
        self.start_router(self.routers[0].address)
        output, error = client.communicate(timeout=600)
        self.assertEqual(client.returncode, 0, error + output)
        self.assertEqual(len(lines_of(output)), 3)

    def test_jobs_that_no_router_accepted_have_no_result_and_are_counted(self):
        jobs = self.jobs(60)
        self.end_first_router_under_way(signal.SIGKILL)
        client = self.generate(jobs, routers=self.addresses[:1])
        output, error = client.communicate(timeout=600)
        self.assertEqual(client.returncode, 1)
        results = lines_of(output)
        self.assertLess(len(results), len(jobs))
        for result in results:
            self.assertIn(result.get("error", {}).get("code", "OK"), ("OK", "UNAVAILABLE"))
        lines = error.splitlines()
        self.assertEqual(len(lines), 2, error)
        self.assertRegex(lines[0], "^baton: UNAVAILABLE: ")
        self.assertIn(f" {len(jobs) - len(results)} not begun; ", lines[1])
        # No job begins, and nothing is written.
        again = self.generate(jobs, routers=self.addresses[:1])
        self.assertEqual(again.communicate(timeout=60)[0], "")
        self.assertEqual(again.returncode, 1)

    def test_ctrl_c_ends_jobs_and_leaves_the_rest_unwritten(self):
        jobs = self.jobs(60, max_tokens=2000)
        begun = threading.Event()
        self.proxy.when("Generate<", 20, lambda _: begun.set())
        client = self.generate(jobs)
        self.assertTrue(begun.wait(SEEN_TIMEOUT_S))
        client.send_signal(signal.SIGINT)
        output, error = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 130)
        results = lines_of(output)
        self.assertLessEqual(len(results), 3)  # those that ran
        self.assertIn(f" {len(jobs) - len(results)} not begun; ", error.splitlines()[-1])


if __name__ == "__main__":
    main(__doc__)
