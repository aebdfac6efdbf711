#!/usr/bin/env python3
"""Tests certificates, API keys and plaintext ports with real processes: a service with TLS answers clients with certificates and
keys, and nobody else; certificates are replaced under load; a port that other machines reach needs TLS; no log, status or metric
has a key.

  service_security_test.py --bin build/release/bin --model M.gguf [unittest's own arguments]

Standard library only.
"""

import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from cluster import Cluster, wait_until
from fleet import Process
from service_case import ARGUMENTS, PATIENT_ROUTER, main

TIMEOUT_S = 120
ROTATIONS = 3
JOB = {"id": "it", "prompt": "a b c", "max_tokens": 4, "temperature": 0}


def program(name):
    return os.path.join(ARGUMENTS.bin, name)


def run(*command, timeout=TIMEOUT_S, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout, **options)


def baton(*arguments, **options):
    return run(program("baton"), *arguments, **options)


def generate(router, *flags, **fields):
    return baton("generate", "--router", router, "--json", "--jobs", "-", *flags, input=json.dumps(JOB | fields) + "\n")


class Folder:
    """Certificates and keys of a test; a context manager."""

    def __enter__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="baton-security-"))
        assert baton("certs", "new", self.path, "--tenant", "acme").returncode == 0
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path)

    def flags(self, role):
        """Flags of a client with the certificate of `role`; "" is a client without certificate."""
        certificate = ["--tls-cert", self.path / f"{role}.pem"] if role else []
        return ["--tls-ca", self.path / "ca.crt", *certificate]

    def new_key(self, *arguments):
        """Returns (key, file with it)."""
        done = baton("keys", "new", "--api-keys", self.path / "keys", *arguments)
        assert done.returncode == 0, done.stderr
        key = done.stdout.strip()
        file = self.path / f"key-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
        file.write_text(key + "\n")
        return key, file


class TlsService(unittest.TestCase):
    """A service with TLS on every port, and keys."""
    router_arguments = PATIENT_ROUTER

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(Folder())
        cls.key, cls.key_file = cls.folder.new_key("--tenant", "acme")
        cls.operator_key, cls.operator_key_file = cls.folder.new_key("--tenant", "ops", "--role", "operator")
        cls.cluster = cls.enterClassContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, 1, 1, ("--kv-blocks=512", "--transport=tcp"), cls.router_arguments,
                    up_arguments=["--http-address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--verbose",
                                  "--tls-dir", str(cls.folder.path), "--api-keys", str(cls.folder.path / "keys")]))
        said = dict(cls.cluster.process.stdout.readline().split() for _ in range(2))
        cls.http, cls.metrics = said["http"], said["metrics"]

    def generate(self, *flags, **fields):
        """Runs a job with these fields besides those of JOB."""
        return generate(self.cluster.router, *flags, **fields)

    def ask(self, path, key=None, body=None, cafile="ca.crt"):
        """Returns (status, JSON body) of an HTTPS request."""
        context = ssl.create_default_context(cafile=self.folder.path / cafile)
        connection = http.client.HTTPSConnection(self.http, timeout=TIMEOUT_S, context=context)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, json.loads(text)

    def scrape(self):
        connection = http.client.HTTPConnection(self.metrics, timeout=TIMEOUT_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return text


class Access(TlsService):
    def test_a_client_needs_a_certificate_and_gets_its_tenant(self):
        self.assertEqual(self.generate(*self.folder.flags("client")).returncode, 0)
        for flags in ([], self.folder.flags(""), [*self.folder.flags(""), "--api-key-file", self.key_file]):
            self.assertEqual(self.generate(*flags).returncode, 1, flags)
        self.assertEqual(self.generate(*self.folder.flags("client"), tenant="acme").returncode, 0)
        other = self.generate(*self.folder.flags("client"), tenant="other")
        self.assertIn("PERMISSION_DENIED", other.stdout)
        for role in ("worker", "router"):
            self.assertIn("PERMISSION_DENIED", self.generate(*self.folder.flags(role)).stdout, role)

    def test_kv_travels_encrypted(self):
        job = JOB | {"prompt": "a b c " * 20}  # several blocks
        want = json.loads(baton("run", "--model", ARGUMENTS.model, "--json", "--jobs", "-", input=json.dumps(job) + "\n").stdout)
        got = json.loads(self.generate(*self.folder.flags("client"), "--placement", "remote", prompt=job["prompt"]).stdout)
        self.assertEqual(got["token_ids"], want["token_ids"])
        self.assertGreater(got["ledger"]["kv_bytes"], 0)

    def test_the_status_is_for_operators(self):
        status = baton("status", "--router", self.cluster.router, *self.folder.flags("operator"))
        self.assertEqual(status.returncode, 0, status.stderr)
        refused = baton("status", "--router", self.cluster.router, *self.folder.flags("client"))
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is for: operator", refused.stderr)

    def test_workers_obey_operators_alone(self):
        for command in (["clear-cache"], ["inspect", "worker"], ["chunks"]):
            arguments = [*command, "--router", self.cluster.router, "--worker", "decode-0"]
            done = baton(*arguments, *self.folder.flags("operator"))
            self.assertEqual(done.returncode, 0, done.stderr)
        status = json.loads(baton("status", "--router", self.cluster.router, "--json",
                                  *self.folder.flags("operator")).stdout)
        address = status["workers"][0]["address"]
        refused = baton("clear-cache", "--worker", address, *self.folder.flags("client"))
        self.assertIn("is for: operator", refused.stderr)
        self.assertNotEqual(baton("clear-cache", "--worker", address).returncode, 0)

    def test_a_clients_certificate_registers_no_worker(self):
        folder = self.folder.path
        command = [program("baton-decode-worker"), "--model", ARGUMENTS.model, "--router", self.cluster.router,
                   "--worker-id", "intruder", "--kv-blocks=64", "--transport=shm", "--tls-ca", folder / "ca.crt"]
        for role in ("client", "operator", "router"):
            intruder = Process([str(part) for part in [*command, "--tls-cert", folder / f"{role}.pem"]], "ready")
            self.addCleanup(intruder.close)
            wait_until(lambda: "not registered" in intruder.log(), TIMEOUT_S, "a refused heartbeat")
            self.assertIn("is for: worker", intruder.log())
            intruder.kill()
        status = json.loads(baton("status", "--router", self.cluster.router, "--json",
                                  *self.folder.flags("operator")).stdout)
        self.assertEqual(sorted(worker["worker_id"] for worker in status["workers"]), ["decode-0", "prefill-0"])

    def test_a_router_with_another_certificate_gets_no_worker_and_no_request(self):
        with Folder() as other:
            router = Process([program("baton-router"), "--listen", "127.0.0.1:0", "--tls-cert", str(other.path / "router.pem"),
                              "--tls-ca", str(self.folder.path / "ca.crt")], "listening")
            self.addCleanup(router.close)
            done = generate(router.address, *self.folder.flags("client"))
            self.assertEqual(done.returncode, 1)
            self.assertIn("an authority that is not in --tls-ca", done.stdout + done.stderr)

    def test_a_worker_is_no_router(self):
        status = json.loads(baton("status", "--router", self.cluster.router, "--json", *self.folder.flags("operator")).stdout)
        done = generate(status["workers"][0]["address"], *self.folder.flags("client"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("is not for a router", done.stdout + done.stderr)

    def test_a_signal_ends_a_client_that_uses_tls(self):
        job = json.dumps(JOB | {"max_tokens": 2000, "ignore_eos": True}) + "\n"
        for number in (signal.SIGINT, signal.SIGTERM):
            client = subprocess.Popen([program("baton"), "generate", "--router", self.cluster.router, "--json", "--jobs", "-",
                                       *map(str, self.folder.flags("client"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            client.stdin.write(job * 50)
            client.stdin.flush()
            self.assertIn("token_ids", client.stdout.readline())
            client.send_signal(number)
            _, said = client.communicate(timeout=TIMEOUT_S)
            self.assertEqual(client.returncode, 130, said)

    def test_http_needs_a_key(self):
        body = {"prompt": "a b c", "max_tokens": 4, "temperature": 0}
        self.assertEqual(self.ask("/health")[0], 200)
        self.assertEqual(self.ask("/v1/completions", self.key, body)[0], 200)
        for key in (None, "wrong", self.key[:-1], self.key + "x"):
            status, reply = self.ask("/v1/completions", key, body)
            self.assertEqual(status, 401, key)
            self.assertEqual(reply["error"]["message"], "unauthenticated")
        self.assertEqual(self.ask("/v1/completions", self.key, {**body, "tenant": "other"})[0], 403)
        self.assertEqual(self.ask("/v1/completions", self.key, {**body, "tenant": "acme"})[0], 200)

    def test_http_clients_check_the_router(self):
        with Folder() as other:
            shutil.copy(other.path / "ca.crt", self.folder.path / "other.crt")
            with self.assertRaises(ssl.SSLCertVerificationError):
                self.ask("/health", cafile="other.crt")
        old = ssl.create_default_context(cafile=self.folder.path / "ca.crt")
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = http.client.HTTPSConnection(self.http, timeout=TIMEOUT_S, context=old)
        with self.assertRaises(ssl.SSLError):
            connection.request("GET", "/health")

    @unittest.skipIf(shutil.which("curl") is None, "not run: no curl")
    def test_curl_asks_with_a_key(self):
        done = run("curl", "--silent", "--fail", "--cacert", self.folder.path / "ca.crt", f"https://{self.http}/v1/models",
                   "-H", f"Authorization: Bearer {self.key}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("data", done.stdout)

    def test_a_load_test_uses_https_and_grpc(self):
        for target, flags in ((f"https://{self.http}/v1", [*self.folder.flags(""), "--api-key-file", self.key_file]),
                              (f"grpc://{self.cluster.router}", self.folder.flags("client"))):
            done = baton("bench", "--target", target, "--requests=4", "--arrivals=closed", "--concurrency=1", "--vocabulary=300",
                         "--prompt-tokens=8", "--output-tokens=4", *flags)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_key_is_nowhere_to_be_read(self):
        for key in (self.key, self.operator_key):
            self.ask("/v1/completions", key, {"prompt": "a", "max_tokens": 2})
            self.ask("/v1/completions", key, {"prompt": "a", "tenant": "other"})
            secrets = (key, hashlib.sha256(key.encode()).hexdigest())
            status = baton("status", "--router", self.cluster.router, "--json", *self.folder.flags("operator"))
            for place, text in (("log", pathlib.Path(self.cluster.log_path).read_text()), ("status", status.stdout),
                                ("metrics", self.scrape()), ("keys", (self.folder.path / "keys").read_text())):
                self.assertNotIn(secrets[0], text, place)
                if place != "keys":
                    self.assertNotIn(secrets[1], text, place)

    def test_keys_are_read_again(self):
        key, _ = self.folder.new_key("--tenant", "acme")
        wait_until(lambda: self.ask("/v1/models", key)[0] == 200, TIMEOUT_S, "the new key")
        lines = (self.folder.path / "keys").read_text().splitlines(keepends=True)
        (self.folder.path / "keys.new").write_text("".join(lines[:-1]))
        (self.folder.path / "keys.new").rename(self.folder.path / "keys")
        wait_until(lambda: self.ask("/v1/models", key)[0] == 401, TIMEOUT_S, "the end of the key")


class PublicGrpc(TlsService):
    router_arguments = (*PATIENT_ROUTER, "--grpc-public")

    def test_a_key_stands_for_a_certificate(self):
        anonymous = self.folder.flags("")
        self.assertEqual(self.generate(*anonymous, "--api-key-file", self.key_file).returncode, 0)
        refused = self.generate(*anonymous)
        self.assertIn("UNAUTHENTICATED", refused.stdout)
        other = self.generate(*anonymous, "--api-key-file", self.key_file, tenant="other")
        self.assertIn("PERMISSION_DENIED", other.stdout)
        status = ["status", "--router", self.cluster.router, *anonymous, "--api-key-file"]
        self.assertEqual(baton(*status, self.operator_key_file).returncode, 0)
        self.assertEqual(baton(*status, self.key_file).returncode, 2)
        self.assertEqual(self.generate(*self.folder.flags("client")).returncode, 0)


class Rotation(TlsService):
    def test_new_certificates_under_load_fail_nothing(self):
        """Clients with new connections ask all the time while all certificates are replaced."""
        stop, failures, answered = threading.Event(), [], [0]

        def ask_again_and_again():
            while not stop.is_set():
                status, _ = self.ask("/v1/completions", self.key, {"prompt": "a b", "max_tokens": 2})
                done = self.generate(*self.folder.flags("client"))
                answered[0] += 1
                if status != 200 or done.returncode != 0:
                    failures.append((status, done.stdout, done.stderr))

        threads = [threading.Thread(target=ask_again_and_again) for _ in range(2)]
        for thread in threads:
            thread.start()
        serials = {self.serial()}
        for _ in range(ROTATIONS):
            old = self.serial()
            self.assertEqual(baton("certs", "renew", self.folder.path, "--tenant", "acme").returncode, 0)
            wait_until(lambda: self.serial() != old, TIMEOUT_S, "the new certificate")
            serials.add(self.serial())
            time.sleep(1)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(answered[0], 0)
        self.assertEqual(len(serials), 1 + ROTATIONS)

    def serial(self):
        """Returns the certificate of the HTTP port, as a new connection gets it."""
        host, port = self.http.split(":")
        return ssl.get_server_certificate((host, int(port)))


class Plaintext(unittest.TestCase):
    def refusal(self, name, *arguments):
        done = run(program(name), *arguments)
        self.assertEqual(done.returncode, 2, f"{name} {arguments}: {done.stderr}")
        return done.stderr

    def test_ports_that_other_machines_reach_need_tls(self):
        self.assertIn("--plaintext", self.refusal("baton-router", "--listen", "0.0.0.0:0"))
        self.assertIn("--http-tls-cert", self.refusal("baton-router", "--listen=127.0.0.1:0", "--http-listen=0.0.0.0:0"))
        worker = ["--model", ARGUMENTS.model, "--router", "127.0.0.1:1"]
        for role in ("prefill", "decode"):
            self.assertIn("--listen", self.refusal(f"baton-{role}-worker", *worker, "--listen", "0.0.0.0:0"))
            self.assertIn("--transfer-listen",
                          self.refusal(f"baton-{role}-worker", *worker, "--transfer-listen", "0.0.0.0:0"))

    def test_a_trusted_network_and_metrics_may_be_plain(self):
        for arguments in (["--listen", "0.0.0.0:0", "--plaintext"], ["--listen=127.0.0.1:0", "--metrics-listen=0.0.0.0:0"]):
            router = Process([program("baton-router"), *arguments], "listening")
            router.end()
            router.close()

    def test_wrong_files_are_named(self):
        with Folder() as folder:
            ca = ["--tls-ca", folder.path / "ca.crt"]
            self.assertIn("--tls-cert is missing", self.refusal("baton-router", *ca))
            self.assertIn("cannot be read", self.refusal("baton-router", *ca, "--tls-cert", folder.path / "gone"))
            self.assertIn("mismatch", self.refusal("baton-router", *ca, "--tls-cert", folder.path / "router.pem", "--tls-key",
                                                   folder.path / "worker.pem"))
            self.assertIn("--grpc-public needs", self.refusal("baton-router", "--grpc-public"))
            (folder.path / "keys").write_text("{\n")
            self.assertIn("line 1", self.refusal("baton-router", "--api-keys", folder.path / "keys"))
            self.assertIn("visible ASCII", self.refusal("baton", "generate", "--prompt", "a", "--api-key-file", folder.path / "ca.crt"))
            (folder.path / "key").write_text("bk-1\n")
            self.assertIn("must not travel", self.refusal("baton", "generate", "--prompt", "a", "--api-key-file", folder.path / "key"))


if __name__ == "__main__":
    main(__doc__)
