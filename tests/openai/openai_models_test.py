#!/usr/bin/env python3
"""Checks Baton's answers with the Python package `openai`: --samples PROGRAM [--packages FOLDER].

The program prints answers from the code that serves clients. The package's models must accept them, and its client must read them from
a server of this script. Without network, the package cannot be installed, and the script ends with 77.
"""
import argparse
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import unittest

NOT_RUN = 77
SAMPLES = []  # (kind, body)


def of_kind(kind):
    found = [body for sample, body in SAMPLES if sample == kind]
    assert found, f"no sample of kind {kind}"
    return found


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers every request with the server's `answer`: (status, content type, body)."""

    def do_GET(self):
        status, content_type, body = self.server.answer
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


SERVER = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=SERVER.serve_forever, daemon=True).start()


def client_with(body, status=200, content_type="application/json"):
    """Returns a client whose server answers with `body`."""
    SERVER.answer = (status, content_type, body.encode())
    return openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{SERVER.server_port}/v1", max_retries=0)


class OpenAiModels(unittest.TestCase):
    def test_the_models_accept_every_body(self):
        for kind, model in (("chat.completion", chat_types.ChatCompletion), ("text_completion", types.Completion), ("model", types.Model)):
            for body in of_kind(kind):
                with self.subTest(kind=kind, body=body):
                    model.model_validate_json(body, strict=True)

    def test_the_models_accept_every_event_of_a_stream(self):
        for kind, model in (("chat.completion stream", chat_types.ChatCompletionChunk), ("text_completion stream", types.Completion)):
            for body in of_kind(kind):
                events = [line.removeprefix("data: ") for line in body.split("\n\n")[:-1]]
                self.assertEqual(events.pop(), "[DONE]")
                for event in events:
                    with self.subTest(kind=kind, event=event):
                        fields = json.loads(event)
                        if model is types.Completion:  # the package has one model for both, but its choices always have an end
                            for choice in fields["choices"]:
                                choice["finish_reason"] = choice["finish_reason"] or "stop"
                        model.model_validate(fields, strict=False)

    def test_the_client_reads_a_conversation(self):
        for body in of_kind("chat.completion"):
            answer = client_with(body).chat.completions.create(model="smol", messages=[{"role": "user", "content": "a"}])
            self.assertEqual([choice.message.content for choice in answer.choices], ["Hé"] * len(answer.choices))
            self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 4)
            self.assertEqual(answer.system_fingerprint, "0123abcd")
        rich = answer.choices[1]
        self.assertEqual(rich.finish_reason, "length")
        self.assertEqual(rich.logprobs.content[1].bytes, [0xC3])
        self.assertEqual(rich.logprobs.content[0].top_logprobs[1].token, "é")

    def test_the_client_reads_a_stream_of_a_conversation(self):
        for body in of_kind("chat.completion stream"):
            texts, ends, usage = {}, {}, None
            stream = client_with(body, content_type="text/event-stream").chat.completions.create(
                model="smol", messages=[{"role": "user", "content": "a"}], stream=True)
            for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
                    if choice.finish_reason:
                        ends[choice.index] = choice.finish_reason
            self.assertEqual(set(texts.values()), {"Hé"})
            self.assertEqual(ends, {0: "stop", 1: "length"} if len(texts) == 2 else {0: "stop"})
            if '"usage"' in body:
                self.assertEqual(usage.total_tokens, 9)

    def test_the_client_reads_completions(self):
        for body in of_kind("text_completion"):
            answer = client_with(body).completions.create(model="smol", prompt="a")
            self.assertEqual({choice.text for choice in answer.choices}, {"Hé"})
        self.assertEqual(len(answer.choices), 4)
        self.assertEqual(answer.choices[3].logprobs.tokens, ["H", "bytes:\\xc3"])
        self.assertEqual(answer.choices[3].logprobs.text_offset, [0, 1])
        for body in of_kind("text_completion stream"):
            texts = {}
            for chunk in client_with(body, content_type="text/event-stream").completions.create(model="smol", prompt="a", stream=True):
                for choice in chunk.choices:
                    texts[choice.index] = texts.get(choice.index, "") + choice.text
            self.assertEqual(set(texts.values()), {"Hé"})

    def test_the_client_raises_its_own_errors(self):
        [body] = of_kind("error")
        with self.assertRaises(openai.BadRequestError) as caught:
            client_with(body, status=400).completions.create(model="smol", prompt="a", n=17)
        self.assertEqual((caught.exception.param, caught.exception.type), ("n", "invalid_request_error"))
        self.assertIn("n is 17", str(caught.exception))
        [body] = of_kind("chat.completion stream error")
        with self.assertRaises(openai.APIError) as caught:
            list(client_with(body, content_type="text/event-stream").chat.completions.create(
                model="smol", messages=[{"role": "user", "content": "a"}], stream=True))
        self.assertIn("n is 17", str(caught.exception))

    def test_the_client_lists_models(self):
        [body] = of_kind("model list")
        self.assertEqual([model.id for model in client_with(body).models.list()], ["smol", "smol"])
        [body] = of_kind("model")
        self.assertEqual(client_with(body).models.retrieve("smol").owned_by, "baton")


def install(folder):
    """Installs the package into `folder`, unless it is there. Returns the reason if that fails."""
    if (folder / "openai").is_dir():
        return None
    try:
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(folder), "openai"],
                              capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return "pip takes more than 10 minutes"
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["pip failed"])[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", required=True, help="the program answer_samples")
    parser.add_argument("--packages", required=True, type=pathlib.Path, help="folder for the package")
    arguments, rest = parser.parse_known_args()
    if reason := install(arguments.packages):
        print(f"not run: the Python package openai cannot be installed: {reason}")
        sys.exit(NOT_RUN)
    sys.path.insert(0, str(arguments.packages))
    import openai
    from openai import types
    from openai.types import chat as chat_types
    printed = subprocess.run([arguments.samples], capture_output=True, text=True, check=True).stdout
    SAMPLES = [(line["kind"], line["body"]) for line in map(json.loads, printed.splitlines())]
    unittest.main(argv=[sys.argv[0], *rest])
