#!/usr/bin/env python3
"""Tests that hostile clients do not keep others from being served, with real processes and TLS. A good client asks over HTTP while
others send resets, floods of metadata, requests and answers byte by byte, half of a handshake, or only open connections. Then it
sends the frames of gRPC's known faults to every port. Prints a line of JSON for each attack: the good client's p99 time to the first
byte relative to the time without attack (`ttft_p99_to_alone`), and how much the processes grew. The attacker uses processors of this machine too. So the good client is also timed beside a process that only uses as much processor
time as the attacker did (`ttft_p99_to_busy`).

  service_hostile_test.py --bin build/release/bin --model M.gguf [unittest's own arguments]

Standard library only. No test asserts a time.
"""

import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import pathlib
import resource
import socket
import ssl
import threading
import time

from cluster import children_of, cpu_seconds, load_condition, wait_until
from fleet import Process
from http2_frames import (DATA, END_STREAM, REPLAYS, RST_STREAM, Connection, endless_header, frame, headers, message,
                          request)
from service_case import ARGUMENTS, main
from service_security_test import TIMEOUT_S, TlsService, baton, program

SECONDS = 6  # of each attack
GROWTH_MIB = 64
RELEASE_S = 60
SLICE_S = 0.02
BODY = {"prompt": "a b c", "max_tokens": 2, "temperature": 0, "stream": True}
FORK = multiprocessing.get_context("fork")
GENERATE = "/baton.v1.Inference/Generate"


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def use_processor(share, stop):
    """Uses this share of one processor, in slices."""
    while not stop.is_set():
        begin, cpu = time.monotonic(), time.process_time()
        while time.process_time() - cpu < SLICE_S * share and not stop.is_set():
            pass
        time.sleep(max(0, begin + SLICE_S - time.monotonic()))


def listening_ports(pid):
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry))
    ports = set()
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            ports.add(int(fields[1].split(":")[1], 16))
    return ports


def answers_http(address):
    """Returns whether a port without TLS answers GET /livez."""
    try:
        with contextlib.closing(http.client.HTTPConnection(address, timeout=5)) as connection:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False


class HostileClients(TlsService):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        status = json.loads(baton("status", "--router", cls.cluster.router, "--json", *cls.folder.flags("operator")).stdout)
        cls.workers = [worker["address"] for worker in status["workers"]]
        cls.pids = children_of(cls.cluster.process.pid)
        cls.grpc = cls.context_of("client")
        cls.grpc.check_hostname = True  # clients check the router's name; processes check roles
        cls.fleet = cls.context_of("operator")
        cls.worker = cls.context_of("worker")
        cls.kv = cls.kv_addresses()
        cls.first_byte_times(cls, 1, [])  # warms up

    @classmethod
    def context_of(cls, role=None):
        """TLS of a peer with the certificate of a role, or without one."""
        context = ssl.create_default_context(cafile=cls.folder.path / "ca.crt")
        context.check_hostname = False
        if role is not None:
            context.load_cert_chain(cls.folder.path / f"{role}.pem")
        return context

    @classmethod
    def kv_addresses(cls):
        """The ports on which workers listen, but for those of gRPC and metrics."""
        found = []
        for pid, name in cls.pids.items():
            for port in sorted(listening_ports(pid)) if name != "baton-router" else ():
                address = f"127.0.0.1:{port}"
                if address not in cls.workers and not answers_http(address):
                    found.append(address)
        if not found:
            raise AssertionError("no worker has a KV port")
        return found

    def first_byte_times(self, seconds, failures):
        """Asks again and again for this long. Returns the times to the first byte of the answers."""
        context = ssl.create_default_context(cafile=self.folder.path / "ca.crt")
        times, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic()
            connection = http.client.HTTPSConnection(self.http, timeout=TIMEOUT_S, context=context)
            connection.request("POST", "/v1/completions", json.dumps(BODY),
                               {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"})
            response = connection.getresponse()
            response.read(1)
            times.append(time.monotonic() - begin)
            text = response.read()
            connection.close()
            if response.status != 200 or b"[DONE]" not in text:
                failures.append((response.status, text))
        return times

    def times_beside_work(self, share, failures):
        """The same beside a process that uses a share of a processor."""
        stop = FORK.Event()
        process = FORK.Process(target=use_processor, args=(share, stop))
        process.start()
        times = self.first_byte_times(SECONDS, failures)
        stop.set()
        process.join()
        return times

    def resident_mib(self):
        return {pid: int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / (1 << 20) for pid in self.pids}

    def prompts_of_a_new_worker(self):
        """Starts another prefill worker and asks until it has computed a prompt. Returns (failed requests, KV bytes from that worker)."""
        command = [program("baton-prefill-worker"), "--model", ARGUMENTS.model, "--router", self.cluster.router, "--worker-id", "late",
                   "--kv-blocks=512", "--transport=tcp", *self.folder.flags("worker")]
        late, failed, kv_bytes, numbers = Process([str(part) for part in command], "ready"), [], 0, itertools.count(1000)
        try:
            end = time.monotonic() + TIMEOUT_S
            while kv_bytes == 0 and time.monotonic() < end:
                jobs = "\n".join(json.dumps({"prompt": f"{next(numbers)} a b c " * 5, "max_tokens": 1}) for _ in range(16))
                done = baton("generate", "--router", self.cluster.router, *self.folder.flags("client"), "--placement", "remote", "--json",
                             "--jobs", "-", "--concurrency", "8", input=jobs)
                results = [json.loads(line) for line in done.stdout.splitlines()]
                self.assertEqual(len(results), 16, done.stderr)
                failed += [result["error"] for result in results if "error" in result]
                kv_bytes = sum(result["ledger"]["kv_bytes"] for result in results if result.get("prefill_worker") == "late")
            late.end()
        finally:
            late.close()
        return failed, kv_bytes

    def attack(self, name, attacker, beside=None):
        """Runs attacker(stop) in a process of its own while a good client asks: threads of one Python process would wait for each
        other. Returns what `beside` returns, which is called at the end of the attack. Afterwards the services' memory must be free
        again."""
        before, stop, failures = self.resident_mib(), FORK.Event(), []
        alone = self.first_byte_times(SECONDS, failures)
        process = FORK.Process(target=attacker, args=(stop,))

        def growth():
            return max((after - before[pid], self.pids[pid]) for pid, after in self.resident_mib().items())

        highest = 0

        def watch():
            nonlocal highest
            while not stop.wait(0.05):
                highest = max(highest, growth()[0])

        watcher = threading.Thread(target=watch, daemon=True)
        process.start()
        watcher.start()
        try:
            begin = time.monotonic()
            times = self.first_byte_times(SECONDS, failures)
            share = cpu_seconds([process.pid]) / (time.monotonic() - begin)
            result = beside() if beside is not None else None
        finally:
            stop.set()
            process.join()
            watcher.join()
        at_end, grown = growth()
        busy = self.times_beside_work(min(share, 1), failures)
        print(json.dumps({"attack": name, "answers": len(times), "ttft_p99_ms": round(1e3 * quantile(times, 0.99), 1),
                          "ttft_p99_to_alone": round(quantile(times, 0.99) / quantile(alone, 0.99), 2),
                          "ttft_p99_to_busy": round(quantile(times, 0.99) / quantile(busy, 0.99), 2),
                          "attacker_cpu_share": round(share, 2),
                          "rss_growth_mib": round(at_end, 1), "rss_growth_highest_mib": round(highest, 1), "of": grown,
                          "condition": load_condition()}), flush=True)
        self.assertEqual(process.exitcode, 0, "the attacker ended early, which is a fault of the test")
        self.assertEqual(failures, [])
        wait_until(lambda: growth()[0] <= GROWTH_MIB, RELEASE_S, f"{name}: growth of at most {GROWTH_MIB} MiB")
        self.assertEqual(children_of(self.cluster.process.pid), self.pids, "a process ended")
        return result

    def tls(self, address, **options):
        """Returns a socket with TLS, as a client of the HTTP port."""
        host, port = address.split(":")
        raw = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        for option, value in options.items():
            raw.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        context = ssl.create_default_context(cafile=self.folder.path / "ca.crt")
        return context.wrap_socket(raw, server_hostname=host)

    def storm_of_resets(self, reads, storms):
        """Returns an attacker that begins calls, resets them at once, and connects again when the router closes its connection.
        Counts its connections in `storms`."""
        def storm(stop):
            connection = None
            while not stop.is_set():
                if connection is None:
                    try:
                        stream, connection = 1, Connection(self.cluster.router, self.grpc, timeout_s=2).open()
                    except OSError:  # barred for a while
                        stop.wait(0.01)
                        continue
                    storms.value += 1
                burst = b""
                for _ in range(50):
                    burst += headers(stream, request(GENERATE)) + frame(RST_STREAM, 0, stream, b"\0\0\0\x08")
                    stream += 2
                if not connection.send(burst) or (reads and connection.is_closed()):
                    connection.close()
                    connection = None
            if connection is not None:
                connection.close()
        return storm

    def test_reset_storms(self):
        for reads in (True, False):
            storms = FORK.Value("i", 0)
            self.attack(f"reset storm, gRPC, {'reads answers' if reads else 'reads nothing'}", self.storm_of_resets(reads, storms))
            self.assertGreater(storms.value, 1, "the router closed no connection")

    def test_resets_of_http_connections(self):
        def storm(stop):
            while not stop.is_set():
                connection = self.tls(self.http)
                connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {self.key}\r\n"
                                   "Content-Type: application/json\r\nContent-Length: 60\r\n\r\n".encode()
                                   + b'{"prompt": "a b c", "max_tokens": 500, "ignore_eos": true}  ')
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()
                time.sleep(0.02)
        self.attack("reset storm, HTTP", storm)

    def test_floods_of_metadata(self):
        def flood(stop):
            small = [(f"name-{i}", "v" * 100) for i in range(100)]
            large = [(f"name-{i}", "v" * 4000) for i in range(10)]
            while not stop.is_set():
                connection, stream = Connection(self.cluster.router, self.grpc).open(), 1
                for extra in (small, large) * 10:
                    if not connection.send(headers(stream, request(GENERATE, extra)) + frame(DATA, END_STREAM, stream, message())):
                        break
                    stream += 2
                connection.frames(0.05)
                connection.close()
        self.attack("metadata flood, gRPC", flood)

    def test_slow_readers(self):
        def read_nothing(stop):
            with contextlib.ExitStack() as stack:
                for _ in range(40):
                    connection = stack.enter_context(self.tls(self.http, SO_RCVBUF=4096))
                    body = json.dumps({**BODY, "max_tokens": 400, "ignore_eos": True})
                    connection.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {self.key}\r\n"
                                       f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
                stop.wait()
        self.attack("40 clients that read nothing, HTTP", read_nothing)

    def test_slow_writers(self):
        def write_slowly(stop):
            connections = [self.tls(self.http) for _ in range(200)]
            letters = iter("POST /v1/completions HTTP/1.1\r\nHost: " + "h" * 1000)
            while not stop.wait(0.3):
                letter = next(letters).encode()
                for connection in connections:
                    with contextlib.suppress(OSError, ssl.SSLError):
                        connection.sendall(letter)
            for connection in connections:
                connection.close()
        self.attack("200 clients that write a byte each 0.3 s, HTTP", write_slowly)

    def half_open(self, ports, count, begin):
        """Returns an attacker that sends the beginning of a handshake on so many connections, and nothing more."""
        def begin_handshakes(stop):
            while not stop.is_set():
                with contextlib.ExitStack() as stack:
                    for i in range(count):
                        host, port = ports[i % len(ports)].split(":")
                        connection = stack.enter_context(contextlib.closing(socket.create_connection((host, int(port)), 20)))
                        with contextlib.suppress(OSError):
                            connection.sendall(begin)
                    stop.wait(1)
        return begin_handshakes

    def test_half_open_handshakes(self):
        ports = [self.http, self.cluster.router, *self.workers, *self.kv]
        self.attack("400 half-open handshakes", self.half_open(ports, 400, b"\x16\x03\x01\x02\x00\x01"))

    def test_handshakes_that_stop_behind_their_first_message(self):
        hello = ssl.MemoryBIO()
        client = ssl.create_default_context(cafile=self.folder.path / "ca.crt").wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1")
        with contextlib.suppress(ssl.SSLWantReadError):
            client.do_handshake()
        begin = hello.read()
        failed, kv_bytes = self.attack("3000 handshakes that stop, KV", self.half_open(self.kv, 3000, begin), self.prompts_of_a_new_worker)
        self.assertEqual(failed, [])
        self.assertGreater(kv_bytes, 0, "the new worker handed no KV over")
        self.attack("400 handshakes that stop", self.half_open([self.http, self.cluster.router, *self.workers], 400, begin))

    def test_probes_are_answered_beside_half_requests(self):
        address = self.metrics.split(":")
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                connection = stack.enter_context(contextlib.closing(socket.create_connection((address[0], int(address[1])), 20)))
                connection.sendall(b"GET /livez HT")
            for _ in range(100):
                probe = http.client.HTTPConnection(self.metrics, timeout=TIMEOUT_S)
                probe.request("GET", "/livez")
                self.assertEqual(probe.getresponse().status, 200)
                probe.close()

    def test_connections_until_descriptors_end(self):
        def open_connections(stop):
            ports = [self.http, self.cluster.router]
            with contextlib.ExitStack() as stack:
                opened = 0
                while not stop.is_set() and opened < 20_000:
                    host, port = ports[opened % 2].split(":")
                    try:
                        connection = socket.create_connection((host, int(port)), 20)
                    except OSError:
                        break
                    stack.callback(connection.close)
                    if opened % 3 == 0:
                        with contextlib.suppress(OSError):
                            connection.sendall(b"\x16")
                    opened += 1
                print(f"opened {opened} connections", flush=True)
                stop.wait()
        self.attack("thousands of connections", open_connections)

    def test_the_frames_of_known_faults(self):
        """Every port survives them. Anonymous connections to gRPC's ports get no further than the handshake."""
        stranger = self.context_of()
        ports = {"router, client's certificate": (self.cluster.router, self.grpc), "router, no certificate": (self.cluster.router, stranger),
                 "worker, operator's certificate": (self.workers[0], self.fleet), "worker, no certificate": (self.workers[0], stranger),
                 "KV, worker's certificate": (self.kv[0], self.worker), "KV, no certificate": (self.kv[0], stranger),
                 "HTTP": (self.http, stranger), "metrics": (self.metrics, None)}
        for name, make in [*REPLAYS.items(), ("CVE-2023-33953, 8 MiB", lambda: endless_header(8))]:
            for port, (address, context) in ports.items():
                before = cpu_seconds(self.pids)
                try:
                    connection = Connection(address, context).open()
                    for piece in make():
                        if not connection.send(piece):
                            break
                    answer = connection.answer(seconds=3)
                    connection.close()
                except (OSError, ssl.SSLError) as error:
                    answer = f"refused: {type(error).__name__}"
                print(json.dumps({"frames": name, "port": port, "answer": answer,
                                  "cpu_s": round(cpu_seconds(self.pids) - before, 2)}), flush=True)
        self.assertEqual(children_of(self.cluster.process.pid), self.pids, "a process ended")
        failures = []
        self.first_byte_times(1, failures)
        self.assertEqual(failures, [])


if __name__ == "__main__":
    main(__doc__)
