#!/usr/bin/env python3
"""Tests the real service with cancelled clients, deadlines, killed workers, and the end of the whole service.

  service_failure_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments, such as -k killed]

Standard library only.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from cluster import Cluster, busy, children_of, end_with_parent, is_running, wait_until
from fleet import Fleet, free_port
from service_case import (ARGUMENTS, BLOCK, CHUNK, CONTEXT, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, baton, blocks_of, inspect_tokens,
                          main, read_texts, run)


class CallingOff(ServiceTest):
    # One thread, so that the work also takes long enough to observe on a large machine.
    worker_arguments = ("--kv-blocks=1024", f"--max-chunk-tokens={CHUNK}", "--threads=1")

    def test_an_interrupted_client_frees_its_blocks_while_decoding(self):
        client = self.long_answer()
        self.wait_for_work("DECODE")
        client.send_signal(signal.SIGINT)
        output, _ = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 130)
        self.assertEqual(json.loads(output)["error"]["code"], "CANCELLED")
        workers = self.cluster.wait_at_rest()
        self.assertLess(int(workers["decode-0"]["decode_tokens"]), CONTEXT - 200)

    def test_an_interrupted_client_frees_its_blocks_while_a_prefill_worker_computes(self):
        before = int(self.cluster.wait_at_rest()["prefill-0"]["prefill_tokens"])
        client = self.long_answer("--placement", "remote", prompt="word " * 7000, max_tokens=1)
        self.wait_for_work("PREFILL")
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=60)
        self.assertEqual(client.returncode, 130)
        workers = self.cluster.wait_at_rest()
        self.assertLess(int(workers["prefill-0"]["prefill_tokens"]) - before, 7000)

    def test_a_killed_client_frees_its_blocks(self):
        client = self.long_answer()
        self.wait_for_work("DECODE")
        client.kill()
        client.communicate(timeout=60)
        self.cluster.wait_at_rest()

    def test_a_deadline_ends_the_request_everywhere(self):
        def requests():
            return int(self.cluster.workers()["decode-0"]["requests"])
        for placement in ("local", "remote"):
            before = requests()
            client = self.long_answer("--timeout-ms", "1500", "--placement", placement)
            output, _ = client.communicate(timeout=120)
            self.assertEqual(client.returncode, 1)
            self.assertEqual(json.loads(output)["error"]["code"], "DEADLINE_EXCEEDED")
            wait_until(lambda: requests() > before, SEEN_TIMEOUT_S, "the request in the status")
            self.cluster.wait_at_rest()

    def test_inspect_shows_the_block_table_of_a_running_sequence(self):
        client = self.long_answer()
        self.wait_for_work("DECODE")
        address = self.cluster.workers()["decode-0"]["address"]
        done = subprocess.run([baton(), "inspect", "worker", "--worker", address],
                              capture_output=True, text=True)
        client.send_signal(signal.SIGINT)
        client.communicate(timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = done.stdout
        self.assertIn("paged attention", shown)
        self.assertIn(f"blocks of {BLOCK} tokens", shown)
        self.assertIn("pool: 1024 blocks", shown)
        self.assertRegex(shown, r"(?m)^\s*reserve\s")
        self.assertNotRegex(shown, r"\b0 owned")
        self.cluster.wait_at_rest()


class LosingAWorker(ServiceTest):
    """The test starts one more worker beside those of `baton up` and kills it."""
    router_arguments = ()
    prefill, decode = 0, 1
    # --drain-ms=0: on SIGTERM a worker breaks off its requests at once, and other workers continue them.
    worker_arguments = ("--kv-blocks=512", "--threads=1", "--hash-logits", "--drain-ms=0")

    def start_worker(self, role):
        worker = subprocess.Popen(
            [str(pathlib.Path(ARGUMENTS.bin) / f"baton-{role}-worker"), "--model", ARGUMENTS.model,
             "--router", self.cluster.router, "--worker-id", "late", *self.worker_arguments],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(lambda: (worker.kill(), worker.wait()))
        wait_until(lambda: "late" in self.cluster.workers(), SEEN_TIMEOUT_S, "the late worker")
        return worker

    def wait_until_gone(self):
        wait_until(lambda: "late" not in self.cluster.workers(), SEEN_TIMEOUT_S, "the worker gone")
        self.cluster.wait_at_rest()

    def test_requests_are_answered_before_during_and_after_a_prefill_workers_kill(self):
        job = {"id": "it", "prompt_token_ids": self.prompt(300), "max_tokens": 4, "temperature": 0}
        want = run([job])[0]["it"]["token_ids"]
        self.assertEqual(self.refusal(job, "--placement", "remote")["code"], "UNAVAILABLE")
        worker = self.start_worker("prefill")
        remote = ("--placement", "remote")  # regardless of the worker's estimated speed
        before = self.cluster.generate([job], *remote)[0]["it"]
        self.assertEqual(before.get("prefill_worker"), "late")
        self.assertEqual(before["token_ids"], want)

        # Kill the prefill worker while it computes a long prompt. The decode worker must compute the prompt instead.
        long_job = job | {"prompt_token_ids": self.prompt(2500, 900)}
        client = subprocess.Popen(self.cluster.generate_command("--jobs", "-", *remote), text=True,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        client.stdin.write(json.dumps(long_job) + "\n")
        client.stdin.close()
        late = self.cluster.workers()["late"]
        wait_until(lambda: blocks_of(late, "owned") > 0, SEEN_TIMEOUT_S, "work on it")
        worker.kill()
        during = json.loads(client.stdout.read())
        self.assertEqual(client.wait(), 0, during)
        client.stdout.close()
        self.assertEqual(during["token_ids"], run([long_job])[0]["it"]["token_ids"])

        after = self.cluster.generate([job | {"cache_salt": "cold"}])[0]["it"]
        self.assertEqual(after["token_ids"], want)
        self.assertNotIn("prefill_worker", after)
        self.wait_until_gone()


class LosingADecodeWorker(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.fleet = cls.enterClassContext(
            Fleet(ARGUMENTS.bin, ARGUMENTS.model, {"decode": 2}, LosingAWorker.worker_arguments, PATIENT_ROUTER))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def test_answers_continue_on_another_worker_when_their_decode_worker_ends(self):
        jobs = [{"id": f"{kind}-{i}", "prompt_token_ids": self.prompt(40 + 7 * i, 50 * i),
                 "max_tokens": 600, "ignore_eos": True, "stop": ["never to be said"], "logprobs": 1,
                 **({"temperature": 0} if kind == "greedy" else
                    {"temperature": 1.1, "seed": 11 + i, "frequency_penalty": 0.4})}
                for i, kind in enumerate(("greedy", "sampled", "greedy", "sampled"))]
        want, _ = run(jobs)
        for end in (signal.SIGKILL, signal.SIGTERM):
            salted = [job | {"cache_salt": str(end)} for job in jobs]
            strike = self.fleet.strike_at("Decode<", 100, lambda worker, _, end=end: worker.process.signal(end))
            got, _ = self.fleet.generate(salted, concurrency=len(jobs))
            self.assertTrue(strike.struck.is_set())
            self.assert_same_answers(got, want, end.name)
            self.assertTrue(any(result["ledger"]["resumes"] == 1 for result in got.values()))
            for name, result in got.items():
                self.assertEqual(result["usage"]["prompt_tokens"],
                                 want[name]["usage"]["prompt_tokens"])
                self.assertEqual(result["usage"]["completion_tokens"], 600)
            strike.where.process.popen.wait()
            self.fleet.make_whole()
            self.fleet.wait_at_rest()


def worker_of(up):
    """Returns the process id of the decode worker of a `baton up`, or None if it has none."""
    return next((pid for pid, name in children_of(up.pid).items() if name == "baton-decode-wo"), None)


def router_told_to(worker):
    """HOST:PORT that a worker process was given."""
    arguments = pathlib.Path(f"/proc/{worker}/cmdline").read_text().split("\0")
    return next(argument.split("=", 1)[1] for argument in arguments if argument.startswith("--router="))


class Ending(unittest.TestCase):
    def test_interrupting_up_ends_every_process_even_with_work_running(self):
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            with Cluster(ARGUMENTS.bin, ARGUMENTS.model,
                         worker_arguments=("--kv-blocks=512",)) as cluster:
                children = children_of(cluster.process.pid)
                self.assertEqual(sorted(children.values()),
                                 sorted(name[:15] for name in ("baton-router", "baton-prefill-worker",
                                                               "baton-decode-worker")))
                client = subprocess.Popen(
                    cluster.generate_command("--prompt", "Once", "--ignore-eos", "--max-tokens", "8000"),
                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                wait_until(lambda: busy(cluster.workers()["decode-0"]), SEEN_TIMEOUT_S, "work")
                self.assertEqual(cluster.end(signal_number), 0)
                self.assertEqual([pid for pid in children if is_running(pid)], [])
                output, _ = client.communicate(timeout=60)
                self.assertEqual(client.returncode, 1)
                self.assertIn(json.loads(output)["error"]["code"], ("UNAVAILABLE", "CANCELLED"))

    def test_up_says_an_error_once_and_before_it_starts_anything(self):
        cases = [
            (("--model", "/nowhere/model.gguf"), "/nowhere/model.gguf"),
            (("--worker-argument=--nonsense",), "settings of the prefill workers: there is no option --nonsense"),
            (("--decode-argument=--kv-blocks=x",), "settings of the decode workers: --kv-blocks: is x; must be 0 to "),
            (("--router-argument=--routing-polcy=random",),
             "there is no option --routing-polcy; did you mean --routing-policy?"),
            (("--router-argument=--listen=127.0.0.1:0",), "settings of the router: --listen is --router-address of `baton up`"),
            (("--router-address=127.0.0.1:99999",), "127.0.0.1:99999"),
            (("--router-address=http://127.0.0.1:8090",), "leave out http://"),
            (("--tls-dir=/nowhere",), "--tls-dir: there is no folder /nowhere; `baton certs new /nowhere` makes one"),
            (("--router-address=127.0.0.1:18999", "--http-address=127.0.0.1:18999"), "are both 127.0.0.1:18999; each needs a port"),
            (("--api-keys=/nowhere",), "settings of the router: --api-keys: /nowhere"),
            (("--worker-argument=--block-size=33",), "settings of the prefill workers: KV layout: block_size is 33"),
            (("--decode-argument=--context-length=16777216",), "settings of the decode workers: context-length is 16777216"),
            (("--decode-argument=--cache-low-water=1",), "settings of the decode workers: cache-low-water 1 is above"),
        ]
        for arguments, reason in cases:
            with self.subTest(arguments=arguments):
                done = self.failed_up(2, *arguments)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertIn(reason, done.stderr)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            for argument in ("--router-address=", "--http-address=", "--metrics-address="):
                done = self.failed_up(1, argument + address)
                self.assertEqual(done.stderr, f"baton: FAILED_PRECONDITION: the router cannot start: cannot listen on {address}: "
                                              "Address already in use\n")

    def test_up_ends_if_a_process_ends_before_all_are_ready(self):
        # The two workers take the same port, which is free when each checks it.
        done = self.failed_up(1, "--model", ARGUMENTS.model, f"--worker-argument=--transfer-listen=127.0.0.1:{free_port()}",
                              "--worker-argument=--transport=tcp", "--worker-argument=--kv-blocks=64")
        self.assertRegex(done.stderr, r"\nbaton: ABORTED: (prefill|decode)-0 ended before all were ready: exit code 1; .*\n$")

    def test_up_includes_settings_from_variables_and_files_of_its_workers(self):
        with tempfile.TemporaryDirectory() as directory:
            config = pathlib.Path(directory) / "worker.toml"
            config.write_text("kv-cache-mib = 16000000\nnice = 3\n")
            done = self.failed_up(1, "--model", ARGUMENTS.model, f"--worker-argument=--config={config}", "--verbose")
            self.assertIn("baton: RESOURCE_EXHAUSTED: 2 workers need ", done.stderr)
            self.assertIn("32000000 MiB or more for KV", done.stderr)
            self.assertIn("settings of the decode workers: nice = 3  (default 0)\n", done.stderr)
        done = self.failed_up(1, "--model", ARGUMENTS.model, "--verbose", BATON_KV_CACHE_MIB="16000000")
        self.assertIn("baton: RESOURCE_EXHAUSTED: 2 workers need ", done.stderr)
        self.assertIn("settings of the decode workers: nice = 6  (default 0)\n", done.stderr)
        self.assertIn("/nowhere/it.gguf", self.failed_up(2, BATON_MODEL="/nowhere/it.gguf").stderr)

    def failed_up(self, code, *arguments, **variables):
        address = () if any("--router-address" in argument for argument in arguments) else (
            "--router-address=127.0.0.1:0",)
        done = subprocess.run([baton(), "up", *address, *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, **variables})
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertNotIn("ready", done.stdout)
        for line in done.stderr.splitlines():
            self.assertRegex(line, r"^(?:router|prefill-0|decode-0) +\| |^baton: |^--|^settings of ")
        return done

    def test_up_prints_settings_that_are_not_the_default_and_all_with_verbose(self):
        setting = r"(?m)^(?:prefill-0|decode-0|router) +\| [a-z-]+ = "
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, worker_arguments=("--kv-blocks=64",)) as cluster:
            log = cluster.log()
            self.assertRegex(log, r"decode-0 +\| kv-blocks = 64  \(default 0\)")
            self.assertNotIn("kv-layout = ", log)
            self.assertLess(len(re.findall(setting, log)), 40)
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, worker_arguments=("--kv-blocks=64",),
                     up_arguments=("--verbose",)) as cluster:
            log = pathlib.Path(cluster.log_path).read_text()
            self.assertIn("settings of the decode workers: kv-layout = block-major\n", log)
            self.assertIn("settings of the router: max-workers = ", log)

    def test_a_process_that_dies_is_restarted_and_the_fleet_continues(self):
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, decode=2, worker_arguments=("--kv-blocks=64",)) as cluster:
            before = cluster.workers()
            children = children_of(cluster.process.pid)
            for name in ("baton-decode-wo", "baton-router"):
                os.kill(next(pid for pid, program in children.items() if program == name), signal.SIGKILL)
            def whole():
                try:
                    after = cluster.workers()
                except (subprocess.CalledProcessError, json.JSONDecodeError, RuntimeError):
                    return False  # the router is not back yet
                return after.keys() == before.keys() and sum(
                    after[name]["epoch"] != before[name]["epoch"] for name in before) == 1
            wait_until(whole, SEEN_TIMEOUT_S, "the processes again")
            results, code = cluster.generate([{"id": "it", "prompt": "Once", "max_tokens": 2}])
            self.assertEqual(code, 0, results)
            log = pathlib.Path(cluster.log_path).read_text()
            self.assertRegex(log, r"(?m)^baton +\| decode-\d ended: signal 9; starting it again in 0\.5 s$")
            self.assertRegex(log, r"(?m)^baton +\| decode-\d is starting again$")
            self.assertRegex(log, r"(?m)^baton +\| router ended: signal 9")
            self.assertEqual(cluster.end(), 0)

    def test_a_router_that_advertises_another_port_restarts_on_its_own_port(self):
        """The advertised address may be a proxy's. In this test, no process listens there."""
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, prefill=0, worker_arguments=("--kv-blocks=64",),
                     router_arguments=("--advertise=127.0.0.1:1",)) as cluster:
            self.assertEqual(cluster.router, "127.0.0.1:1")
            cluster.router = router_told_to(worker_of(cluster.process))
            children = children_of(cluster.process.pid)
            os.kill(next(pid for pid, name in children.items() if name == "baton-router"), signal.SIGKILL)
            def whole():
                new = [pid for pid, name in children_of(cluster.process.pid).items()
                       if name == "baton-router" and pid not in children]
                try:
                    return new and cluster.status().get("ready")
                except (subprocess.CalledProcessError, json.JSONDecodeError, RuntimeError):
                    return False  # no router
            wait_until(whole, SEEN_TIMEOUT_S, "the router again where it listened")

    def test_a_fleet_continues_if_no_process_reads_its_log(self):
        for full in (False, True):
            with self.subTest(full=full):
                log, log_end = os.pipe()
                up = subprocess.Popen(
                    [baton(), "up", "--model", ARGUMENTS.model, "--router-address=127.0.0.1:0", "--prefill-workers=0",
                     "--worker-argument=--kv-blocks=64"], stdout=subprocess.PIPE, stderr=log_end, text=True,
                    start_new_session=True, preexec_fn=end_with_parent)
                try:
                    self.assertTrue(up.stdout.readline().startswith("ready "))
                    if full:
                        os.set_blocking(log_end, False)
                        for size in (4096, 1):
                            with contextlib.suppress(BlockingIOError):
                                while True:
                                    os.write(log_end, b"x" * size)
                        os.set_blocking(log_end, True)
                    else:
                        os.close(log)
                    for _ in range(2):
                        before = worker_of(up)
                        os.kill(before, signal.SIGKILL)
                        wait_until(lambda: worker_of(up) not in (None, before), SEEN_TIMEOUT_S, "the worker again")
                    up.send_signal(signal.SIGINT)
                    self.assertEqual(up.wait(60), 0)
                finally:
                    up.kill()
                    up.wait()
                    up.stdout.close()
                    os.close(log_end)
                    if full:
                        os.close(log)

    def test_up_ends_with_the_first_process_if_configured(self):
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, worker_arguments=("--kv-blocks=64",),
                     up_arguments=("--exit-on-failure",)) as cluster:
            children = children_of(cluster.process.pid)
            os.kill(next(pid for pid, name in children.items() if name == "baton-decode-wo"), signal.SIGKILL)
            self.assertEqual(cluster.process.wait(60), 1)
            self.assertEqual([pid for pid in children if is_running(pid)], [])
            self.assertIn("baton: ABORTED: decode-0 ended: signal 9\n", cluster.log())

    def test_a_bad_file_or_value_ends_a_worker_with_2_and_a_taken_port_with_1(self):
        def end_of(role, *arguments):
            program = str(pathlib.Path(ARGUMENTS.bin) / f"baton-{role}")
            return subprocess.run([program, *arguments], capture_output=True, text=True,
                                  timeout=60).returncode
        self.assertEqual(end_of("decode-worker", "--model", "/nowhere/model.gguf"), 2)
        self.assertEqual(end_of("decode-worker", "--block-size", "1000"), 2)
        self.assertEqual(end_of("router", "--listen", "nowhere"), 2)
        with Cluster(ARGUMENTS.bin, ARGUMENTS.model, worker_arguments=("--kv-blocks=64",)) as cluster:
            self.assertEqual(end_of("router", "--listen", cluster.router), 1)


if __name__ == "__main__":
    main(__doc__)
