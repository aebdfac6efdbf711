#!/usr/bin/env python3
"""Tests the metrics of a real service.

service_metrics_test.py --bin BUILD/bin [--model M.gguf] [unittest arguments]

Scrapes are read by a strict parser of this file, by `promtool check metrics` if promtool is installed, and by the Python client of
Prometheus if it is installed. Standard library otherwise.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

from cluster import Cluster, START_TIMEOUT_S, wait_until
from metrics_scrape import get, scrape, status_of
from service_case import ARGUMENTS, ServiceTest, blocks_of, inspect_tokens, main, read_texts

# Reads a scrape with the Python client of Prometheus, which may be installed for the system's Python only.
THEIR_PARSER = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
if len(sys.argv) == 1:
    json.dump([[sample.name, sorted(sample.labels.items()), sample.value]
               for family in text_string_to_metric_families(sys.stdin.read()) for sample in family.samples], sys.stdout)
"""
def python_with_their_parser():
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([python, "-c", THEIR_PARSER, "no input"], capture_output=True).returncode == 0:
            return python
    return None


class Metrics(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, cls.worker_arguments, cls.router_arguments,
                    up_arguments=["--metrics-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"]))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]
        cls.http = cls.cluster.says("http")
        cls.router = cls.cluster.says("metrics")

    def targets(self):
        status, kind, body = get(self.router, "/targets")
        self.assertEqual((status, kind), (200, "application/json"))
        return {entry["labels"]["baton_role"]: entry for entry in json.loads(body)}

    def addresses(self):
        return {role: entry["targets"][0] for role, entry in self.targets().items()}

    def scrapes(self):
        return {role: scrape(address) for role, address in self.addresses().items()}

    def jobs(self, count, length, start=0, max_tokens=6, **fields):
        return [{"id": f"j{i}", "prompt_token_ids": self.prompt(length, start + 1000 * i), "max_tokens": max_tokens,
                 "temperature": 0, "ignore_eos": True, **fields} for i in range(count)]

    def wait_for_index(self):
        """Waits until the router's index has what the workers have cached."""
        def alike():
            units = {worker["worker_id"]: worker["units"] for worker in self.cluster.status()["index"]["workers"]}
            return units == {name: blocks_of(worker, "cached") for name, worker in self.cluster.wait_at_rest().items()}
        wait_until(alike, START_TIMEOUT_S, "the index and the pools alike")

    def test_targets_list_every_program_and_each_serves_valid_metrics(self):
        targets = self.targets()
        self.assertEqual(set(targets), {"router", "prefill", "decode"})
        self.assertEqual(targets["router"]["targets"], [self.router])
        self.assertEqual(targets["decode"]["labels"]["baton_worker"], "decode-0")
        for role, address in self.addresses().items():
            found = scrape(address)
            self.assertEqual(found.value("baton_ready"), 1, role)
            self.assertGreater(found.value("process_resident_memory_bytes"), 1 << 20)
            self.assertGreater(found.value("process_open_fds"), 3)
            self.assertLess(abs(time.time() - found.value("process_start_time_seconds")), 86400)
            self.assertEqual(found.total("baton_build_info"), 1)
            self.assertEqual(status_of(address, "/livez"), 200)
            self.assertEqual(status_of(address, "/readyz"), 200)
            self.assertEqual(status_of(address, "/nothing"), 404)

    def test_other_parsers_read_the_same(self):
        python = python_with_their_parser()
        for role, found in self.scrapes().items():
            if shutil.which("promtool"):
                done = subprocess.run(["promtool", "check", "metrics"], input=found.text, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""), role)
            if python:
                done = subprocess.run([python, "-c", THEIR_PARSER], input=found.text, capture_output=True, text=True, check=True)
                theirs = {(name, tuple((label, value) for label, value in labels)): value
                          for name, labels, value in json.loads(done.stdout)}
                self.assertEqual(theirs, dict(found), role)
        if not shutil.which("promtool") or not python:
            self.skipTest("not run: promtool or the Python client of Prometheus is missing")

    def test_the_public_port_serves_no_metrics(self):
        self.assertNotEqual(status_of(self.cluster.router, "/metrics"), 200)

    def test_counts_equal_what_was_sent(self):
        self.cluster.wait_at_rest()
        before = self.scrapes()
        jobs = self.jobs(4, 70, cache_salt="of this test alone")
        results, code = self.cluster.generate(jobs, "--placement", "remote", concurrency=2)
        self.assertEqual(code, 0)
        again, code = self.cluster.generate(jobs[:1], "--placement", "local")  # now its prompt is cached
        self.assertEqual(code, 0)
        self.refusal({"prompt_token_ids": [1 << 30]})
        self.cluster.wait_at_rest()
        answers = [*results.values(), *again.values()]

        # A sender counts a transfer after its receiver has told it of the end.
        def all_sent():
            found = self.scrapes()
            return found if all(found["prefill"].total(name, **labels) >= before["prefill"].total(name, **labels) + 4
                                for name, labels in (("baton_kv_transfers_total", {"direction": "sent"}),
                                                     ("baton_worker_requests_total", {"kind": "prefill"}))) else None
        after = wait_until(all_sent, START_TIMEOUT_S, "the transfers of four requests")

        def grew(role, name, **labels):
            return after[role].total(name, **labels) - before[role].total(name, **labels)

        self.assertEqual(grew("router", "baton_requests_total", endpoint="generate", code="ok"), 5)
        self.assertEqual(grew("router", "baton_requests_total", code="invalid_argument"), 1)
        self.assertEqual(grew("router", "baton_requests_total"), 6)
        self.assertEqual(grew("router", "baton_requests_refused_total", reason="invalid"), 1)
        self.assertEqual(grew("router", "baton_requests_refused_total"), 1)
        self.assertEqual(grew("router", "baton_time_to_first_token_seconds_count"), 5)
        self.assertEqual(grew("router", "baton_request_seconds_count"), 5)
        self.assertEqual(grew("router", "baton_route_estimate_ratio_count"), 5)
        self.assertEqual(grew("router", "baton_routes_total", prefill="prefill_worker"), 4)
        self.assertEqual(grew("router", "baton_routes_total", prefill="decode_worker"), 1)
        tokens = sum(answer["usage"]["completion_tokens"] for answer in answers)
        self.assertEqual(tokens, 30)
        self.assertEqual(grew("router", "baton_output_tokens_total"), tokens)
        self.assertEqual(grew("router", "baton_inter_token_seconds_count"), tokens - 5)

        # Every prompt token has one source.
        computed = sum(answer["ledger"]["computed_tokens"] for answer in answers)
        self.assertEqual(grew("router", "baton_prompt_tokens_total"), 5 * 70)
        self.assertEqual(grew("router", "baton_prompt_tokens_total", source="computed"), computed)
        self.assertEqual(grew("router", "baton_prompt_tokens_total", source="cached"), 64)  # four blocks of the last
        self.assertEqual(grew("decode", "baton_worker_prompt_tokens_total", source="computed")
                         + grew("prefill", "baton_worker_prompt_tokens_total", source="computed"), computed)
        self.assertEqual(grew("decode", "baton_worker_prompt_tokens_total", source="transferred"), 4 * 70)

        # The engines counted their part.
        self.assertEqual(grew("decode", "baton_worker_requests_total", kind="generate", code="ok"), 5)
        self.assertEqual(grew("prefill", "baton_worker_requests_total", kind="prefill", code="ok"), 4)
        self.assertEqual(grew("decode", "baton_worker_output_tokens_total"), tokens)
        self.assertEqual(grew("prefill", "baton_worker_queue_seconds_count", kind="prefill"), 4)
        for role in ("prefill", "decode"):
            self.assertEqual(grew(role, "baton_worker_steps_total"), grew(role, "baton_worker_step_seconds_count"))
        moved = sum(answer["ledger"]["kv_bytes"] for answer in answers)
        self.assertGreater(moved, 0)
        self.assertEqual(grew("decode", "baton_kv_transfer_bytes_total"), moved)
        self.assertEqual(grew("prefill", "baton_kv_transfer_sent_bytes_total"), moved)
        self.assertEqual(grew("decode", "baton_kv_transfers_total", direction="received"), 4)
        self.assertEqual(grew("prefill", "baton_kv_transfers_total", direction="sent"), 4)
        self.assertEqual(grew("decode", "baton_kv_transfer_failures_total"), 0)

        # Nothing that counts fell, and no series came or went.
        for role, earlier in before.items():
            self.assertEqual(set(earlier), set(after[role]), role)
            for key, value in earlier.counters().items():
                self.assertGreaterEqual(after[role][key], value, key)

    def test_computing_what_another_worker_has_cached_is_avoidable(self):
        job = self.jobs(1, 320, start=90_000, max_tokens=1)
        self.cluster.generate(job, "--placement", "remote")  # now both workers have it
        self.wait_for_index()
        before = self.scrapes()["router"]
        # Another prompt, computed on the prefill worker and then only there: the decode worker's cache is cleared.
        subprocess.run([self.cluster.baton, "clear-cache", "--router", self.cluster.router, "--worker", "decode-0"],
                       check=True, capture_output=True)
        self.wait_for_index()
        results, _ = self.cluster.generate(job, "--placement", "local")
        after = self.scrapes()["router"]
        ledger = results["j0"]["ledger"]
        grew = after.value("baton_avoidable_prompt_tokens_total") - before.value("baton_avoidable_prompt_tokens_total")
        # The prefill worker has the first 19 blocks; a match stops before the last token. A pull may have brought them.
        if ledger.get("pulled_tokens", 0) == 0:
            self.assertEqual(grew, 304 if ledger["computed_tokens"] == 320 else None)
        else:
            self.assertEqual(grew, 0)
            self.assertEqual(after.value("baton_route_pulls_total", outcome="pulled")
                             - before.value("baton_route_pulls_total", outcome="pulled"), 1)

    def test_metrics_show_the_numbers_of_the_status(self):
        self.cluster.generate(self.jobs(2, 40, start=70_000))

        def figures_of_now():  # the status is that of the last heartbeats
            workers, scrapes = self.cluster.wait_at_rest(), self.scrapes()
            alike = all(float(workers[f"{role}-0"]["steps"]) == scrapes[role].value("baton_worker_steps_total")
                        for role in ("prefill", "decode"))
            return (workers, scrapes) if alike else None

        workers, scrapes = wait_until(figures_of_now, START_TIMEOUT_S, "heartbeats after the last step")
        for role, name in (("prefill", "prefill-0"), ("decode", "decode-0")):
            found, worker, pool = scrapes[role], workers[name], workers[name]["pool"]
            for metric, number in (("baton_worker_steps_total", worker["steps"]),
                                   ("baton_worker_requests_waiting", worker["waiting"]),
                                   ("baton_worker_requests_running", worker["running"]),
                                   ("baton_worker_decode_tokens_total", worker["decode_tokens"]),
                                   ("baton_worker_failures_total", worker["failures"]),
                                   ("baton_kv_evictable_blocks", pool["evictable_blocks"]),
                                   ("baton_prefix_cache_lookups_total", pool["lookups"]),
                                   ("baton_prefix_cache_hit_tokens_total", pool["hit_tokens"])):
                self.assertEqual(found.value(metric), float(number), f"{role}: {metric}")
            self.assertEqual(found.value("baton_kv_blocks", state="free"), pool["free_blocks"])
            self.assertEqual(found.value("baton_kv_used_ratio"), 0, "evictable blocks count as free")
            self.assertEqual(found.value("baton_cache_config_info", block_size="16", num_blocks="1024"), 1)
            self.assertEqual(found.value("baton_worker_routers_registered"), 1)
            self.assertEqual(found.value("baton_worker_backlog_tokens"), 0)
        router = scrapes["router"]
        self.assertEqual(router.value("baton_workers", role="decode", state="usable"), 1)
        self.assertEqual(router.total("baton_workers"), 2)
        self.assertEqual(router.value("baton_requests_in_flight"), 0)
        self.assertEqual(router.value("baton_index_unfollowed_workers"), 0)

    def test_requests_over_http_count_by_their_endpoint(self):
        before = scrape(self.router)

        def ask(path, body):
            request = urllib.request.Request(f"http://{self.http}/v1/{path}", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            try:
                return urllib.request.urlopen(request, timeout=120).status
            except urllib.error.HTTPError as error:
                return error.code

        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "temperature": 0}
        self.assertEqual(ask("chat/completions", chat), 200)
        self.assertEqual(ask("chat/completions", {**chat, "a_field_of_tomorrow": 1}), 200)
        self.assertEqual(ask("completions", {"prompt": ["a", "b"], "max_tokens": 2, "temperature": 0}), 200)
        self.assertEqual(ask("completions", {"prompt": "a", "temperature": 9000}), 400)
        self.assertEqual(ask("completions", {"prompt": "a", "model": "no-such-model"}), 404)
        self.cluster.wait_at_rest()
        after = scrape(self.router)

        def grew(name, **labels):
            return after.total(name, **labels) - before.total(name, **labels)

        self.assertEqual(grew("baton_requests_total", endpoint="chat_completions", code="ok"), 2)
        self.assertEqual(grew("baton_requests_total", endpoint="completions", code="ok"), 2, "once for each prompt")
        self.assertEqual(grew("baton_requests_total", endpoint="completions", code="invalid_argument"), 1)
        self.assertEqual(grew("baton_requests_total", endpoint="completions", code="not_found"), 1)
        self.assertEqual(grew("baton_requests_refused_total", reason="invalid"), 2)
        self.assertEqual(grew("baton_requests_total", endpoint="generate"), 0)
        self.assertEqual(grew("baton_time_to_first_token_seconds_count"), 4)
        self.assertEqual(grew("baton_ignored_fields_total"), 1)

    def test_a_running_request_shows_while_it_runs(self):
        client = self.long_answer("--placement", "remote")
        try:
            decode = self.addresses()["decode"]
            wait_until(lambda: scrape(decode).value("baton_worker_requests_running") == 1, START_TIMEOUT_S, "a running request")
            self.assertGreater(scrape(decode).value("baton_kv_used_ratio"), 0)
            self.assertEqual(scrape(self.router).value("baton_requests_in_flight"), 1)
        finally:
            client.terminate()
            client.communicate()
        wait_until(lambda: scrape(self.router).value("baton_requests_in_flight") == 0, START_TIMEOUT_S, "the end")
        wait_until(lambda: scrape(self.router).value("baton_requests_total", endpoint="generate", code="cancelled") >= 1,
                   START_TIMEOUT_S, "the count of a cancelled request")

    def test_the_router_logs_one_line_for_a_request_with_its_id(self):
        self.cluster.generate(self.jobs(1, 20))
        # `baton up` copies the router's log into its own.
        wait_until(lambda: re.search(r'request id="[^"]+" endpoint=generate code=ok prompt_tokens=20 .* tokens=6 ',
                                     pathlib.Path(self.cluster.log_path).read_text()), START_TIMEOUT_S, "the line in the log")


if __name__ == "__main__":
    main(__doc__)
