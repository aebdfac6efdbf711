#!/usr/bin/env python3
"""Sends one table of bad values through `baton run`, `baton generate` (to the router over gRPC) and HTTP. Each must refuse a value with the
same message. tests/e2e/request_limits_test.cc does the same inside one process, protobuf and workers included.

  service_values_test.py --bin build/release/bin [--model M.gguf] [unittest's own arguments]

Standard library only.
"""

import http.client
import json
import re

from cluster import Cluster, answer
from service_case import ARGUMENTS, ServiceTest, baton, main

# Fields of a request with "prompt": "a" → the message and the field that OpenAI's clients see. No model is needed to refuse these.
WITHOUT_MODEL = [
    ({"temperature": 100.5}, "temperature is 100.5; [0, 100] is allowed", "temperature"),
    ({"top_k": -1}, "top_k is -1; at least 0 is allowed", "top_k"),
    ({"top_p": 0}, "top_p is 0; (0, 1] is allowed", "top_p"),
    ({"min_p": 1.5}, "min_p is 1.5; [0, 1] is allowed", "min_p"),
    ({"presence_penalty": 3}, "presence_penalty is 3; [-2, 2] is allowed", "presence_penalty"),
    ({"logit_bias": {"7": -101}}, "logit_bias of token 7 is -101; [-100, 100] is allowed", "logit_bias"),
    ({"stop": ["x", ""]}, "stop[1] has 0 bytes; [1, 256] are allowed", "stop"),
    ({"max_tokens": 0}, "max_tokens is 0; at least 1 is allowed", "max_tokens"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens is 4; at most max_tokens, 3, is allowed", "min_tokens"),
    ({"logprobs": 21}, "logprobs is 21; [0, 20] is allowed", "logprobs"),
    ({"n": 17}, "n is 17; [1, 16] is allowed", "n"),
    ({"priority": 101}, "priority is 101; [-100, 100] is allowed", "priority"),
    ({"n": 3000000000}, '"n" is 3000000000; [1, 16] is allowed', "n"),
    ({"seed": 1.5}, '"seed" must be a whole number', "seed"),
    ({"temperature": "hot"}, '"temperature" must be a number', "temperature"),
    ({"chunk_scope": "x"}, 'chunk_scope is "x"; system or alone is allowed', "chunk_scope"),
]


class Values(ServiceTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, cls.worker_arguments, cls.router_arguments,
                                                    up_arguments=["--http-address", "127.0.0.1:0"]))
        cls.address = cls.cluster.says("http")

    def post(self, body):
        """Returns the error of a completion over HTTP."""
        connection = http.client.HTTPConnection(self.address, timeout=300)
        self.addCleanup(connection.close)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertEqual(response.status, 400, body)
        return json.loads(response.read())["error"]

    def messages(self, cases):
        """Returns for each case the messages of `baton run` and of `baton generate`, without the place in the file."""
        jobs = [{"id": str(i), **fields} for i, fields in enumerate(cases)]
        run, _ = answer([baton(), "run", "--model", ARGUMENTS.model, "--jobs", "-", "--json"], jobs)
        generate, _ = self.cluster.generate(jobs)
        return [[re.sub(r"^line \d+, column \d+: ", "", results[str(i)]["error"]["message"]) for results in (run, generate)]
                for i in range(len(cases))]

    def test_a_bad_value_has_one_message_everywhere(self):
        found = self.messages([{"prompt": "a", **fields} for fields, _, _ in WITHOUT_MODEL])
        for (fields, message, param), local in zip(WITHOUT_MODEL, found, strict=True):
            with self.subTest(fields=fields):
                error = self.post({"prompt": "a", **fields})
                self.assertEqual(local, [message, message])
                self.assertEqual((error["message"], error["param"], error["type"]), (message, param, "invalid_request_error"))

    def test_a_value_that_does_not_fit_the_model_has_one_message_everywhere(self):
        cases = [{"prompt_token_ids": [1, 1 << 20]}, {"prompt": "a", "stop_token_ids": [1 << 20]}, {"prompt": ""},
                 {"prompt_token_ids": [1] * 8192}, {"prompt": "a", "logit_bias": {"1048576": 1}}]
        for fields, local in zip(cases, self.messages(cases), strict=True):
            with self.subTest(fields=str(fields)[:80]):
                error = self.post(fields)
                self.assertEqual(local, [error["message"]] * 2)
        self.assertEqual(self.post(cases[3])["code"], "context_length_exceeded")
        self.assertEqual(self.post(cases[1])["param"], "stop_token_ids")


if __name__ == "__main__":
    main(__doc__)
