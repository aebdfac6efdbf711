"""An OpenTelemetry collector for tests. It reads spans with the package `opentelemetry-proto`, which needs_packages() installs."""

import concurrent.futures
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

NEEDED = ["grpcio", "opentelemetry-proto"]
DEFAULT_FOLDER = pathlib.Path(tempfile.gettempdir()) / "baton-otlp-packages"


def needs_packages(folder):
    """Installs the packages into `folder`, unless they are there, and makes them importable. Returns the reason if that fails."""
    if not ((folder / "opentelemetry").is_dir() and (folder / "grpc").is_dir()):
        try:
            done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
                                   str(folder), *NEEDED], capture_output=True, text=True, timeout=600)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{' and '.join(NEEDED)} cannot be installed: {error}"
        if done.returncode != 0:
            return f"{' and '.join(NEEDED)} cannot be installed: {done.stderr.strip()[-500:]}"
    sys.path.insert(0, str(folder))
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # gRPC would warn of every process that the test starts
    return None


def value_of(any_value):
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(one) for one in any_value.array_value.values]
    return getattr(any_value, kind)


class FoundSpan:
    """One span, with the name of its program."""

    def __init__(self, resource, span):
        self.resource = {attribute.key: value_of(attribute.value) for attribute in resource.attributes}
        self.service = self.resource["service.name"]
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.name, self.kind, self.status = span.name, span.kind, span.status.code
        self.begin, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes = {attribute.key: value_of(attribute.value) for attribute in span.attributes}


class Collector:
    """A collector at a free port, until close(). With `certificates`, a folder of `baton certs new`, it speaks TLS and lets only programs
    with a certificate in. REQUIRES: needs_packages()."""

    def __init__(self, certificates=None):
        grpc = importlib.import_module("grpc")
        package = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"
        self.response = importlib.import_module(package).ExportTraceServiceResponse
        self.spans, self.bytes, self.lock = [], b"", threading.Lock()
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        importlib.import_module(package + "_grpc").add_TraceServiceServicer_to_server(self, self.server)
        if certificates is None:
            self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        else:
            pem, authorities = (pathlib.Path(certificates, name).read_bytes() for name in ("router.pem", "ca.crt"))
            credentials = grpc.ssl_server_credentials([(pem, pem)], authorities, require_client_auth=True)
            self.address = f"https://127.0.0.1:{self.server.add_secure_port('127.0.0.1:0', credentials)}"
        self.server.start()

    def Export(self, request, _context):
        with self.lock:
            self.bytes += request.SerializeToString()
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += [FoundSpan(resource.resource, span) for span in scope.spans]
        return self.response()

    def traces(self):
        """Returns {trace id: its spans}."""
        with self.lock:
            out = {}
            for span in self.spans:
                out.setdefault(span.trace, []).append(span)
            return out

    def close(self):
        self.server.stop(grace=None).wait()
