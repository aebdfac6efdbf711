#!/usr/bin/env python3
"""Tests the traces of a real service with a collector of this script, which reads them with the package `opentelemetry-proto`.

  service_traces_test.py --bin build/release/bin [--packages FOLDER] [--model M.gguf] [unittest's own arguments]

Also compares proto/otlp/trace.proto with that package. Without network, the packages cannot be installed, and the script ends with 77.
"""

import hashlib
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import urllib.request

from cluster import Cluster, wait_until
from metrics_scrape import scrape
from otlp_collector import DEFAULT_FOLDER, Collector, needs_packages
from service_case import ARGUMENTS, PATIENT_ROUTER, SEEN_TIMEOUT_S, ServiceTest, baton, inspect_tokens, main, read_texts

NOT_RUN = 77
PACKAGES = DEFAULT_FOLDER
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SECRET = "xylophone"  # a word of prompts, which no span may have
PARENT_SPAN = "00f067aa0ba902b7"


def traceparent(trace_id, sampled=True):
    return f"00-{trace_id}-{PARENT_SPAN}-{'01' if sampled else '00'}"


class Messages(unittest.TestCase):
    def test_ours_are_a_part_of_theirs(self):
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/ours.binpb"
            subprocess.run(["protoc", "-I", str(ROOT / "proto"), "otlp/trace.proto", f"--descriptor_set_out={out}"], check=True)
            ours = descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out).read_bytes()).file[0]
        theirs = {}
        for module in (trace_service_pb2, trace_pb2, common_pb2, resource_pb2):
            file = descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
            theirs |= {message.name: message for message in file.message_type}

        def shape(field):
            return field.number, field.type, field.label, field.type_name.split(".")[-1]

        self.assertGreater(len(ours.message_type), 9)
        for message in ours.message_type:
            other = theirs[message.name]
            fields = {field.name: shape(field) for field in other.field}
            for field in message.field:
                self.assertEqual(shape(field), fields[field.name], f"{message.name}.{field.name}")
            values = {value.name: value.number for enum in other.enum_type for value in enum.value}
            for value in (value for enum in message.enum_type for value in enum.value):
                self.assertEqual(value.number, values[value.name], value.name)
        [service] = ours.service
        file = descriptor_pb2.FileDescriptorProto.FromString(trace_service_pb2.DESCRIPTOR.serialized_pb)
        self.assertEqual((ours.package, service.name), (file.package, file.service[0].name))
        self.assertEqual(*([(method.name, method.input_type, method.output_type) for method in one.method]
                           for one in (service, file.service[0])))


class TracedService(ServiceTest):
    """A service whose programs send their spans to `collector`."""

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.close)
        endpoint = f"--otlp-endpoint={cls.collector.address}"
        cls.cluster = cls.enterClassContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, (*cls.worker_arguments, endpoint), (*PATIENT_ROUTER, endpoint),
                    up_arguments=["--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0"]))
        cls.http = cls.cluster.says("http")
        cls.metrics = cls.cluster.says("metrics")
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]


class Traces(TracedService):
    def ask_http(self, trace_id, sampled=True, **body):
        body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5, "temperature": 0, "ignore_eos": True, **body}
        request = urllib.request.Request(f"http://{self.http}/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json", "traceparent": traceparent(trace_id, sampled)})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.loads(answer.read())

    def await_spans(self, trace_id, count=1, names=frozenset()):
        """Waits until the collector has so many spans of a trace, and these names. Returns {first word of the name: span}."""
        def found():
            spans = {span.name.split()[0]: span for span in self.collector.traces().get(trace_id, [])}
            return spans if len(spans) >= count and names <= set(spans) else None
        return wait_until(found, SEEN_TIMEOUT_S, f"{count} spans of {trace_id}, {set(names)}")

    def traced(self, count, *arguments):
        """Sends a prompt through gRPC. Returns (its result, its spans)."""
        before = set(self.collector.traces())
        job = {"id": "it", "prompt_token_ids": self.prompt(100, len(before) * 97), "max_tokens": 6, "temperature": 0, "seed": 5,
               "ignore_eos": True}
        results, code = self.cluster.generate([job], *arguments)
        self.assertEqual(code, 0)
        [trace_id] = wait_until(lambda: set(self.collector.traces()) - before, SEEN_TIMEOUT_S, "a trace")
        return results["it"], self.await_spans(trace_id, count)

    def assert_parts(self, spans, expected):
        """Checks that these are all spans, each by its program, and that all are parts of the first."""
        [(root_name, root)] = [(name, span) for name, span in spans.items() if not span.parent or span.parent == PARENT_SPAN]
        self.assertEqual({name: span.service for name, span in spans.items()}, {root_name: "baton-router", **expected})
        for name, span in spans.items():
            self.assertGreaterEqual(span.end, span.begin, name)
            if name != root_name:
                self.assertEqual(span.parent, root.id, name)
        self.assertEqual(root.kind, 2)
        return root

    def test_a_prompt_for_the_prefill_worker_has_all_parts(self):
        result, spans = self.traced(7, "--placement", "remote")
        root = self.assert_parts(spans, {"tokenize": "baton-router", "route": "baton-router", "queue": "baton-prefill-worker",
                                         "prefill": "baton-prefill-worker", "transfer": "baton-decode-worker",
                                         "decode": "baton-decode-worker"})
        self.assertEqual(root.attributes["gen_ai.operation.name"], "text_completion")
        self.assertEqual(root.attributes["gen_ai.usage.input_tokens"], 100)
        self.assertEqual(root.attributes["gen_ai.usage.output_tokens"], 6)
        self.assertEqual(root.attributes["gen_ai.request.max_tokens"], 6)
        self.assertEqual(root.attributes["gen_ai.request.seed"], 5)
        self.assertEqual(root.attributes["gen_ai.response.finish_reasons"], ["length"])
        self.assertEqual(spans["prefill"].attributes["baton.computed_tokens"], result["ledger"]["computed_tokens"])
        self.assertEqual(spans["transfer"].attributes["baton.kv_bytes"], result["ledger"]["kv_bytes"])
        self.assertEqual(spans["decode"].attributes["baton.output_tokens"], 6)
        self.assertEqual(spans["route"].attributes["baton.prefill_worker"], "prefill-0")
        self.assertEqual(spans["decode"].resource["service.instance.id"], "decode-0")
        self.assertLessEqual(spans["queue"].end, spans["prefill"].begin)
        self.assertLessEqual(spans["transfer"].end, spans["decode"].begin)
        self.assertLessEqual(spans["tokenize"].end, spans["route"].begin)
        for name, figure in (("prefill", "prefill_us"), ("queue", "queue_us"), ("tokenize", "tokenize_us")):
            self.assertEqual((spans[name].end - spans[name].begin) // 1000, result["ledger"][figure], name)

    def test_a_prompt_that_the_decode_worker_computes_has_no_transfer(self):
        _, spans = self.traced(6, "--placement", "local")
        self.assert_parts(spans, {"tokenize": "baton-router", "route": "baton-router", "queue": "baton-decode-worker",
                                  "prefill": "baton-decode-worker", "decode": "baton-decode-worker"})

    def test_a_clients_trace_is_continued_if_it_is_sampled(self):
        lost, kept = "0af7651916cd43dd8448eb211c80319c", "0af7651916cd43dd8448eb211c80319d"
        self.ask_http(lost, sampled=False)
        answer = self.ask_http(kept)
        spans = self.await_spans(kept, names={"chat", "decode"})
        root = spans["chat"]
        self.assertEqual(root.parent, PARENT_SPAN)
        self.assertEqual(root.attributes["gen_ai.operation.name"], "chat")
        self.assertEqual(root.attributes["gen_ai.usage.output_tokens"], answer["usage"]["completion_tokens"])
        self.assertEqual(spans["decode"].parent, root.id)
        self.assertNotIn(lost, self.collector.traces())

    def test_no_span_has_text(self):
        trace_id = "0af7651916cd43dd8448eb211c80319e"
        self.ask_http(trace_id, stop=[SECRET + " stop"], user=SECRET, prompt_cache_key=SECRET)
        self.await_spans(trace_id, names={"chat", "decode"})
        with self.collector.lock:
            self.assertNotIn(SECRET.encode(), self.collector.bytes)

    def test_a_client_that_leaves_ends_its_spans_with_an_error(self):
        before = set(self.collector.traces())
        client = self.long_answer()
        self.wait_for_work("DECODE")
        client.kill()
        client.communicate()
        [trace_id] = wait_until(lambda: set(self.collector.traces()) - before, SEEN_TIMEOUT_S, "the trace")
        spans = self.await_spans(trace_id, 4)  # tokenize, route, the worker's and the request's
        self.assertEqual(spans["text_completion"].attributes["error.type"], "cancelled")
        self.assertEqual({spans[name].status for name in ("text_completion", "decode" if "decode" in spans else "prefill")}, {2})
        self.cluster.wait_at_rest()


class Secrets(unittest.TestCase):
    """A service with TLS and API keys that sends its spans to `collector`, also with TLS. The Python example is its client."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.certificates = folder / "certificates"
        keys, cls.key_file, cls.stubs = folder / "keys", folder / "key", folder / "stubs"
        subprocess.run([baton(), "certs", "new", cls.certificates, "--tenant", "acme"], check=True, capture_output=True)
        cls.collector = Collector(cls.certificates)
        cls.addClassCleanup(cls.collector.close)
        cls.key = subprocess.run([baton(), "keys", "new", "--api-keys", keys, "--tenant", "acme"], check=True, capture_output=True,
                                 text=True).stdout.strip()
        cls.key_file.write_text(cls.key + "\n")
        cls.stubs.mkdir()
        subprocess.run(["protoc", "-I", str(ROOT / "proto"), f"--python_out={cls.stubs}", f"--grpc_python_out={cls.stubs}",
                        f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}", "baton/v1/inference.proto",
                        "baton/v1/tenant.proto", "baton/v1/roles.proto"], check=True)
        traces = [f"--otlp-endpoint={cls.collector.address}", f"--otlp-cert={cls.certificates}/client.pem"]
        authorities = f"{cls.certificates}/ca.crt"
        # The router has no --otlp-ca, so it takes the system's authorities. For gRPC, this file has them.
        with unittest.mock.patch.dict(os.environ, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=authorities):
            cls.cluster = cls.enterClassContext(
                Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, ("--kv-blocks=512", f"--otlp-ca={authorities}", *traces),
                        (*PATIENT_ROUTER, "--grpc-public", *traces),
                        up_arguments=["--http-address", "127.0.0.1:0", "--tls-dir", str(cls.certificates), "--api-keys", str(keys)]))
        cls.http = cls.cluster.says("http")

    def client(self, *flags):
        """Runs the example with stubs."""
        return subprocess.run([sys.executable, "-B", ROOT / "examples/python/client.py", self.cluster.router, "Hello", "--max-tokens",
                               "4", *flags], env={**os.environ, "PYTHONPATH": f"{self.stubs}:{PACKAGES}"}, capture_output=True, text=True,
                              timeout=300)

    def test_the_example_shows_a_key_or_a_certificate(self):
        authorities = ["--tls-ca", self.certificates / "ca.crt"]
        for flags in (["--api-key-file", self.key_file], ["--tls-cert", self.certificates / "client.pem"],
                      ["--tls-cert", self.certificates / "client.pem", "--tls-key", self.certificates / "client.pem"]):
            done = self.client(*authorities, *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("tokens, the first after", done.stderr)
        done = self.client(*authorities)
        self.assertEqual(done.returncode, 1)
        self.assertIn("UNAUTHENTICATED", done.stderr)
        self.assertEqual(self.client().returncode, 1, "without encryption")

    def test_no_span_has_a_secret(self):
        authorities = ["--tls-ca", self.certificates / "ca.crt"]
        self.assertEqual(self.client(*authorities, "--api-key-file", self.key_file).returncode, 0)
        self.assertEqual(self.client(*authorities, "--tls-cert", self.certificates / "client.pem").returncode, 0)
        trace_id = "0af7651916cd43dd8448eb211c80319f"
        request = urllib.request.Request(f"https://{self.http}/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}).encode(),
                                         {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}",
                                          "traceparent": traceparent(trace_id)})
        context = ssl.create_default_context(cafile=self.certificates / "ca.crt")
        with urllib.request.urlopen(request, timeout=300, context=context) as answer:
            self.assertEqual(answer.status, 200)
        wait_until(lambda: len(self.collector.traces()) >= 3 and
                   any(span.name.startswith("decode") for span in self.collector.traces().get(trace_id, [])), SEEN_TIMEOUT_S, "spans")
        digest = hashlib.sha256(self.key.encode())
        lines = {line for file in self.certificates.iterdir() if b"PRIVATE KEY" in (text := file.read_bytes())
                 for line in text.splitlines() if len(line) > 20}
        self.assertGreater(len(lines), 4)
        with self.collector.lock:
            for secret in (self.key.encode(), digest.digest(), digest.hexdigest().encode(), *lines):
                self.assertNotIn(secret, self.collector.bytes)


class DeadCollector(TracedService):
    """Requests work as before, and their spans are counted as dropped."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.collector.close()

    def test_a_dead_collector_costs_only_spans(self):
        results, code = self.cluster.generate([{"id": "it", "prompt_token_ids": self.prompt(50), "max_tokens": 3}])
        self.assertEqual(code, 0, results)
        wait_until(lambda: scrape(self.metrics).value("baton_trace_spans_dropped_total") >= 3, SEEN_TIMEOUT_S, "dropped spans")
        self.assertEqual(scrape(self.metrics).value("baton_trace_spans_total"), 0)


if __name__ == "__main__":
    packages = DEFAULT_FOLDER
    if "--packages" in sys.argv:
        place = sys.argv.index("--packages")
        packages = pathlib.Path(sys.argv[place + 1])
        del sys.argv[place:place + 2]
    PACKAGES = packages
    if why := needs_packages(packages):
        print(f"not run: {why}")
        sys.exit(NOT_RUN)
    from google.protobuf import descriptor_pb2
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
    from opentelemetry.proto.common.v1 import common_pb2
    from opentelemetry.proto.resource.v1 import resource_pb2
    from opentelemetry.proto.trace.v1 import trace_pb2
    main(__doc__)
