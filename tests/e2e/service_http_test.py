#!/usr/bin/env python3
"""Tests OpenAI's API over HTTP with a real service on the real model: its tokens are those of gRPC and of `baton run`, streamed
or not; errors have statuses; a client that leaves frees its blocks; overload is refused.

  service_http_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Standard library only.
"""

import http.client
import json
import socket
import threading
import time

from cluster import Cluster, wait_until
from metrics_scrape import get, held_blocks, scrape
from service_case import (ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, inspect_tokens, main, read_texts, run)

PLACES = 6  # the router's limit of active requests
TIMEOUT_S = 300
# A client's keepalive and the reports of workers take a second or more, so hundreds of steps of one sequence.
MOST_STEPS_AFTER_LEAVING = 250


class HttpCase(ServiceTest):
    """A service with HTTP. `address` is its HTTP port's."""
    router_arguments = PATIENT_ROUTER + (f"--max-active-requests={PLACES}", "--served-model-name=other-name")

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, cls.worker_arguments, cls.router_arguments,
                    up_arguments=["--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]))
        cls.address = cls.cluster.says("http")
        cls.metrics = cls.cluster.says("metrics")
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def request(self, method, path, body=None, headers=()):
        """Sends a request and returns (connection, response)."""
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        self.addCleanup(connection.close)
        text = body if isinstance(body, (str, type(None))) else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json", **dict(headers)})
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, headers=()):
        """Returns (status, headers, body as JSON)."""
        connection, response = self.request(method, path, body, headers)
        text = response.read()
        connection.close()
        return response.status, response.headers, json.loads(text) if text else None

    def complete(self, path, **body):
        status, _, reply = self.ask("POST", path, body)
        self.assertEqual(status, 200, reply)
        return reply

    def stream(self, path, **body):
        """Returns the events of a stream as JSON, without [DONE]."""
        _, response = self.request("POST", path, {**body, "stream": True})
        self.assertEqual(response.status, 200)
        self.assertTrue(response.headers["Content-Type"].startswith("text/event-stream"))
        lines = [line for line in response.read().decode().split("\n\n") if line.startswith("data: ")]
        self.assertEqual(lines[-1], "data: [DONE]")
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def text_of(choice):
    return choice["text"] if "text" in choice else choice["message"]["content"]


def joined(events):
    """Joins a stream's events to {choice: (text, token ids, finish reason)}."""
    out = {}
    for event in events:
        for choice in event["choices"]:
            text, ids, reason = out.get(choice["index"], ("", [], None))
            delta = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            out[choice["index"]] = (text + delta, ids + (choice.get("token_ids") or []), choice["finish_reason"] or reason)
    return out


class Answers(HttpCase):
    SAMPLED = {"temperature": 0.8, "top_p": 0.9, "seed": 7, "max_tokens": 40}
    GREEDY = {"temperature": 0, "max_tokens": 40}

    def test_the_tokens_are_those_of_grpc_and_of_one_process(self):
        user = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is gravity?"}]
        jobs = [
            {"id": "text", "prompt": "Once upon a time", **self.GREEDY},
            {"id": "ids", "prompt_token_ids": self.prompt(150), **self.SAMPLED},
            {"id": "chat", "messages": user, **self.GREEDY},
            {"id": "sampled chat", "messages": user, **self.SAMPLED, "stop": ["."]},
            {"id": "several", "prompt": "The sky is", "n": 2, **self.SAMPLED},
        ]
        wanted, code = run(jobs)
        self.assertEqual(code, 0)
        over_grpc, code = self.cluster.generate(jobs)
        self.assertEqual(code, 0)
        for job in jobs:
            fields = {name: value for name, value in job.items() if name not in ("id", "prompt_token_ids")}
            if "prompt_token_ids" in job:
                fields["prompt"] = job["prompt_token_ids"]
            path = "/v1/chat/completions" if "messages" in job else "/v1/completions"
            whole = self.complete(path, **fields, return_token_ids=True)
            streamed = joined(self.stream(path, **fields, return_token_ids=True))
            for choice in whole["choices"]:
                name = job["id"] + (f"/{choice['index']}" if "n" in job else "")
                for reference in (wanted, over_grpc):
                    want = reference[name]
                    self.assertEqual(choice["token_ids"], want["token_ids"], name)
                    self.assertEqual(text_of(choice), want["text"], name)
                    self.assertEqual(choice["finish_reason"], want["finish_reason"], name)
                self.assertEqual(streamed[choice["index"]], (text_of(choice), choice["token_ids"], choice["finish_reason"]),
                                 f"{name}, streamed")

    def test_a_second_request_reuses_the_prompt(self):
        fields = {"prompt": self.prompt(200, 1000), **self.GREEDY}
        first = self.complete("/v1/completions", **fields)
        second = self.complete("/v1/completions", **fields)
        self.assertEqual(first["choices"], second["choices"])
        self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 100)

    def test_a_list_of_prompts_has_the_answers_of_its_prompts(self):
        prompts = ["Once upon a time", "The sky is", "Water is"]
        together = self.complete("/v1/completions", prompt=prompts, **self.GREEDY)
        alone = [self.complete("/v1/completions", prompt=prompt, **self.GREEDY)["choices"][0]["text"] for prompt in prompts]
        self.assertEqual([choice["text"] for choice in together["choices"]], alone)

    def test_models_and_health(self):
        self.assertEqual(self.ask("GET", "/health")[0], 200)
        status, _, models = self.ask("GET", "/v1/models")
        self.assertEqual(status, 200)
        names = [model["id"] for model in models["data"]]
        self.assertIn("other-name", names)
        self.assertEqual(self.complete("/v1/completions", model="other-name", prompt="a", max_tokens=1)["model"], "other-name")
        _, response = self.request("HEAD", "/health")
        self.assertEqual((response.status, response.read()), (200, b""))

    def test_errors_have_a_status_a_field_and_the_message_of_grpc(self):
        job = {"prompt": "a", "temperature": 200}
        status, headers, reply = self.ask("POST", "/v1/completions", job)
        self.assertEqual((status, reply["error"]["param"]), (400, "temperature"))
        self.assertEqual(reply["error"]["type"], "invalid_request_error")
        self.assertTrue(headers["x-request-id"])
        status, _, reply = self.ask("POST", "/v1/completions", {"model": "gpt-9", "prompt": "a"})
        self.assertEqual((status, reply["error"]["code"]), (404, "model_not_found"))
        status, _, reply = self.ask("POST", "/v1/completions", {"prompt": self.prompt(9000)})
        self.assertEqual(status, 400)
        self.assertIn("9000 tokens", reply["error"]["message"])
        self.assertEqual(self.ask("POST", "/v1/completions", "{")[0], 400)
        self.assertEqual(self.ask("GET", "/v1/completions")[0], 405)

    def test_a_deadline_ends_the_request(self):
        long = {"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": True, "temperature": 0}
        status, headers, _ = self.ask("POST", "/v1/completions", long, {"Baton-Timeout-Ms": "500"}.items())
        self.assertEqual((status, headers["x-should-retry"]), (504, "false"))
        for timeout_ms in (1500, 6000, 24000):  # on a slow machine, a short deadline passes before the first token
            _, response = self.request("POST", "/v1/completions", {**long, "stream": True},
                                       {"Baton-Timeout-Ms": str(timeout_ms)}.items())
            if response.status != 504:
                break
        self.assertEqual(response.status, 200)
        events = [event for event in response.read().decode().split("\n\n") if event]
        self.assertIn('"error"', events[-1])
        self.cluster.wait_at_rest()

    def begin_long_answer(self, client):
        """Asks for an answer of 7,000 tokens and returns the function with which the client leaves."""
        if client == "grpc":
            process = self.long_answer(max_tokens=7000)
            return lambda: (process.kill(), process.communicate())
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        body = {"prompt": self.prompt(300), "max_tokens": 7000, "ignore_eos": True, "temperature": 0,
                "stream": client == "http stream"}
        connection.request("POST", "/v1/completions", json.dumps(body))
        sock = connection.sock
        return lambda: (sock.close(), connection.close())

    def test_a_client_that_leaves_frees_its_blocks_before_many_more_steps(self):
        decode = wait_until(lambda: next((entry["targets"][0] for entry in json.loads(get(self.metrics, "/targets")[2])
                                          if entry["labels"]["baton_role"] == "decode"), None), SEEN_TIMEOUT_S, "the worker")
        for client in ("http", "http stream", "grpc"):
            leave = self.begin_long_answer(client)
            wait_until(lambda: held_blocks(decode) > 0, SEEN_TIMEOUT_S, "blocks in use")
            before = scrape(decode)
            leave()
            begin = time.monotonic()
            wait_until(lambda: held_blocks(decode) == 0, SEEN_TIMEOUT_S, "free blocks")
            freed_ms = (time.monotonic() - begin) * 1000
            cancel = "baton_worker_cancel_seconds"
            wait_until(lambda: scrape(decode).value(f"{cancel}_count") > before.value(f"{cancel}_count"), SEEN_TIMEOUT_S,
                       "the count of a cancellation")
            after = scrape(decode)
            steps = after.value("baton_worker_steps_total") - before.value("baton_worker_steps_total")
            self.assertLess(steps, MOST_STEPS_AFTER_LEAVING, client)
            self.cluster.wait_at_rest()
            reported_ms = (time.monotonic() - begin) * 1000
            self.assertEqual(after.value(f"{cancel}_count") - before.value(f"{cancel}_count"), 1)
            cancel_ms = (after.value(f"{cancel}_sum") - before.value(f"{cancel}_sum")) * 1000
            print(f"{client}: blocks free {freed_ms:.0f} ms after the client left, {steps:.0f} steps; {cancel_ms:.1f} ms of that "
                  f"in the engine; in the status after {reported_ms:.0f} ms", flush=True)

    def test_clients_that_leave_at_once_leave_nothing_behind(self):
        """They leave before, while and after the router reads their requests."""
        host, port = self.address.split(":")
        body = json.dumps({"prompt": "Once upon a time " * 200, "max_tokens": 4})
        head = f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        for i in range(60):
            with socket.create_connection((host, int(port))) as client:
                client.sendall((head + body).encode())
                time.sleep(i % 6 * 0.0005)
        for figure in ("baton_requests_in_flight", "baton_requests_waiting"):
            wait_until(lambda: scrape(self.metrics).value(figure) == 0, SEEN_TIMEOUT_S, f"{figure} 0")
        self.cluster.wait_at_rest()

    def test_too_many_requests_are_refused_and_say_when_to_come_again(self):
        statuses, retry_after, lock = [], [], threading.Lock()
        body = {"prompt": "Once upon a time", "max_tokens": 40, "ignore_eos": True, "temperature": 0}

        def client():
            status, headers, reply = self.ask("POST", "/v1/completions", body)
            with lock:
                statuses.append(status)
                if status == 503:
                    retry_after.append(headers["Retry-After"])
                    self.assertEqual(reply["error"]["code"], "overloaded")
        clients = [threading.Thread(target=client) for _ in range(4 * PLACES)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        self.assertEqual(set(statuses), {200, 503})
        self.assertTrue(all(int(seconds) >= 1 for seconds in retry_after), retry_after)
        self.cluster.wait_at_rest()

    def test_without_a_free_place_nothing_is_healthy(self):
        leave = [self.begin_long_answer("http") for _ in range(PLACES)]
        wait_until(lambda: self.ask("GET", "/health")[0] == 503, SEEN_TIMEOUT_S, "a full router")
        self.assertEqual(self.ask("GET", "/health")[2]["error"]["code"], "overloaded")
        for one in leave:
            one()
        wait_until(lambda: self.ask("GET", "/health")[0] == 200, SEEN_TIMEOUT_S, "free places")
        self.cluster.wait_at_rest()

    def test_a_connection_serves_many_requests(self):
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT_S)
        texts = set()
        for _ in range(5):
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "Water is", **self.GREEDY}))
            texts.add(json.loads(connection.getresponse().read())["choices"][0]["text"])
        self.assertEqual(len(texts), 1)
        connection.close()


class WithoutHttp(ServiceTest):
    def test_http_is_off_by_default(self):
        self.assertNotIn("--http-listen", self.cluster.log())
        self.assertEqual(self.cluster.end(), 0)
        self.assertEqual(self.cluster.process.stdout.read(), "")


if __name__ == "__main__":
    main(__doc__)
