#!/usr/bin/env python3
"""Replaces, kills and pauses every pod of the CPU overlay under load; scripts/kube_test.sh describes it. The last line is one JSON
object with the figures. It asserts no times.

If the programs know --tls-cert, all connections are encrypted, and HTTP clients have a key. Clients of HTTP open connections to the
ready routers, as a Service would choose them. They keep a connection until the router ends
it. While pods are replaced, they never retry. While pods are killed or paused, they retry requests whose connection broke, and
those with the answer 503. Clients of gRPC are `baton generate` with all routers and --retries. Every answer must have the tokens of `baton run`.
"""

import argparse
import hashlib
import http.client
import itertools
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def not_run(reason):
    print(f"not run: {reason}")
    sys.exit(77)


try:
    import yaml
except ImportError:
    not_run("no PyYAML (Debian: python3-yaml)")

missing = [name for name in ("podman", "buildah", "runc", "debootstrap", "iptables") if shutil.which(name) is None]
if missing:
    not_run(f"without {', '.join(missing)} (see scripts/kube_test.sh)")

from pod_fleet import GRPC, HTTP, SUBNET, PodFleet, Podman  # noqa: E402

PROMPTS = [[3 + i, 17, 40 + 2 * i, 5, 90 - i] * (4 + 8 * i) for i in range(6)]
TOKENS = 24
CLIENTS = 3
ANSWER_S = 120
SILENCE_MS = 4000  # longer than the default, because this machine's processors are shared
PAUSE_S = 8        # longer than that, and than --worker-expiry-ms
TRIES = 20
RETRY_S = 0.5


def job(index, request_id, salt=""):
    """With a salt that is new, no cache has the prompt. So a prefill worker computes it and hands its KV over."""
    return {"id": request_id, "prompt_token_ids": PROMPTS[index], "max_tokens": TOKENS, "temperature": 0, "cache_salt": salt}


def references(baton, model):
    """The tokens of each prompt from `baton run`."""
    lines = "\n".join(json.dumps(job(i, str(i))) for i in range(len(PROMPTS)))
    done = subprocess.run([baton, "run", "--model", model, "--jobs", "-", "--json"], input=lines, capture_output=True, text=True,
                          check=True)
    found = {result["id"]: result["token_ids"] for result in map(json.loads, done.stdout.splitlines())}
    return [found[str(i)] for i in range(len(PROMPTS))]


class Access:
    """How clients connect: certificates and a key, or nothing if the programs have no TLS. `secrets` is {Secret: {file: text}}."""

    def __init__(self, options, baton, folder):
        self.client_flags, self.operator_flags, self.headers, self.tls, self.secrets = [], [], {}, None, {}
        router = os.path.join(options.bin, "baton-router")
        if "--tls-cert" not in subprocess.run([router, "--help"], capture_output=True, text=True).stdout:
            return
        names = [argument for host in range(1, 250) for argument in ("--name", f"{SUBNET}.{host}")]
        subprocess.run([baton, "certs", "new", folder, *names], check=True, capture_output=True)
        keys = os.path.join(folder, "keys.jsonl")
        key = subprocess.run([baton, "keys", "new", "--tenant", "test", "--api-keys", keys], check=True, capture_output=True,
                             text=True).stdout.strip()
        authority = os.path.join(folder, "ca.crt")
        self.client_flags, self.operator_flags = (
            ["--tls-ca", authority, "--tls-cert", os.path.join(folder, f"{role}.pem")] for role in ("client", "operator"))
        self.headers = {"Authorization": f"Bearer {key}"}
        self.tls = ssl.create_default_context(cafile=authority)

        def read(name):
            return pathlib.Path(folder, name).read_text()

        for role in ("router", "worker"):
            self.secrets[f"baton-{role}-tls"] = {"tls.pem": read(f"{role}.pem"), "ca.crt": read("ca.crt")}
        self.secrets["baton-api-keys"] = {"keys.jsonl": read("keys.jsonl")}

    def connect(self, address):
        if self.tls is None:
            return http.client.HTTPConnection(address, timeout=ANSWER_S)
        return http.client.HTTPSConnection(address, timeout=ANSWER_S, context=self.tls)


class Load:
    """Clients that send requests until the end of a phase."""

    def __init__(self, fleet, baton, access, expected, retry):
        self.fleet, self.baton, self.access, self.expected, self.retry = fleet, baton, access, expected, retry
        self.lock = threading.Lock()
        self.counts = dict.fromkeys(("http_requests", "grpc_requests", "failed", "retried"), 0)
        self.reasons = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.http_client, args=(i,)) for i in range(CLIENTS)]
        self.threads.append(threading.Thread(target=self.grpc_client))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def count(self, name, number=1):
        with self.lock:
            self.counts[name] += number

    def fail(self, reason):
        with self.lock:
            self.counts["failed"] += 1
            self.reasons.append(f"{time.strftime('%X')} {reason}"[:400])

    def requests(self):
        with self.lock:
            return self.counts["http_requests"], self.counts["grpc_requests"]

    def await_requests(self, number):
        """Waits until each kind of client has had so many more answers."""
        first = self.requests()
        while any(now - before < number for now, before in zip(self.requests(), first)) and not self.stopping.is_set():
            time.sleep(0.1)

    def http_client(self, number):
        kept, turn = None, itertools.count(number)
        while not self.stopping.is_set():
            index = next(turn) % len(PROMPTS)
            kept = self.http_request(kept, index, number, salt=str(time.monotonic_ns()))
            self.count("http_requests")

    def http_request(self, kept, index, number, salt):
        body = json.dumps({"prompt": PROMPTS[index], "max_tokens": TOKENS, "temperature": 0, "return_token_ids": True,
                           "cache_salt": salt})
        for attempt in range(TRIES):
            try:
                if kept is None:
                    endpoints = self.fleet.endpoints(HTTP)
                    if not endpoints:
                        time.sleep(0.2)
                        continue
                    kept = self.access.connect(endpoints[(number + attempt) % len(endpoints)])
                kept.request("POST", "/v1/completions", body, {"Content-Type": "application/json", **self.access.headers})
                answer = kept.getresponse()
                text = answer.read().decode()
                if answer.status == 503 and self.retry:
                    self.count("retried")
                    time.sleep(RETRY_S)
                elif answer.status != 200:
                    self.fail(f"HTTP {answer.status} from {kept.host}: {text}")
                elif json.loads(text)["choices"][0]["token_ids"] != self.expected[index]:
                    self.fail(f"other tokens from {kept.host}: {text}")
                if answer.headers.get("Connection") == "close":
                    kept.close()
                    kept = None
                if answer.status == 503 and self.retry:
                    continue
                return kept
            except (OSError, http.client.HTTPException) as error:
                host = kept.host if kept else "no router"
                kept = None
                if not self.retry:
                    self.fail(f"HTTP to {host}: {error!r}")
                    return None
                self.count("retried")
        self.fail("no router answered")
        return None

    def grpc_client(self):
        for batch in itertools.count():
            if self.stopping.is_set():
                return
            jobs = [job(i % len(PROMPTS), f"{batch}-{i}", f"{os.getpid()}-{batch}-{i}") for i in range(2 * len(PROMPTS))]
            routers = [f"--router={pod.address(GRPC)}" for pod in self.fleet.of_role("router") if not pod.ending]
            done = subprocess.run([self.baton, "generate", *routers, *self.access.client_flags, "--retries", "8", "--jobs", "-", "--json", "--concurrency",
                                   str(CLIENTS)], input="\n".join(map(json.dumps, jobs)), capture_output=True, text=True)
            answered = {result["id"]: result for result in map(json.loads, done.stdout.splitlines())}
            for one in jobs:
                result = answered.get(one["id"], {"error": done.stderr[-300:]})
                if "error" in result:
                    self.fail(f"gRPC: {result['error']}")
                elif result["token_ids"] != self.expected[PROMPTS.index(one["prompt_token_ids"])]:
                    self.fail(f"other tokens over gRPC: {result}")
            self.count("grpc_requests", len(jobs))


def await_registered(fleet, baton, access):
    """Waits until every router serves with every worker."""
    workers = {pod.name for pod in list(fleet.pods.values()) if pod.role != "router"}
    end = time.monotonic() + 120
    for router in fleet.of_role("router"):
        while True:
            done = subprocess.run([baton, "status", "--router", router.address(GRPC), "--json", *access.operator_flags],
                                  capture_output=True, text=True)
            known = {one["worker_id"] for one in json.loads(done.stdout)["workers"]
                     if not one.get("unreachable") and not one.get("silent")} if done.returncode == 0 else set()
            if known == workers:
                break
            if time.monotonic() > end:
                raise TimeoutError(f"{router.name} knows {known}, running are {workers}; {done.stderr}")
            time.sleep(0.2)


def render(model):
    """Renders the CPU overlay for this model."""
    digest = hashlib.sha256(pathlib.Path(model).read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        overlay = os.path.relpath(ROOT / "k8s/overlays/cpu", folder)
        pathlib.Path(folder, "kustomization.yaml").write_text(yaml.safe_dump({
            "resources": [overlay], "namespace": "baton",
            "configMapGenerator": [{"name": "baton-model", "behavior": "replace",
                                    "literals": ["path=/models/model.gguf", f"sha256={digest}"]}],
            # The prompts are short; prefill workers shall compute them all the same.
            "patches": [{"target": {"kind": "Deployment", "name": "baton-router"}, "patch": yaml.safe_dump([
                {"op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": {"name": name, "value": value}}
                for name, value in (("BATON_LOCAL_PREFILL_TOKENS", "0"), ("BATON_WORKER_SILENCE_MS", str(SILENCE_MS)))])}]}))
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def replace_all(fleet, load, baton):
    for pod in list(fleet.pods.values()):
        code = fleet.replace(pod)
        print(f"  replaced {pod.name}, exit code {code}", flush=True)
        if code != 0:
            load.fail(f"{pod.name} ended with {code}")
        await_registered(fleet, baton, load.access)
        load.await_requests(4)


def kill_all(fleet, load, baton):
    for pod in list(fleet.pods.values()):
        pod.signal("kill")
        pod.remove()
        fleet.add(pod.role).await_ready()
        print(f"  killed {pod.name}", flush=True)
        await_registered(fleet, baton, load.access)
        load.await_requests(4)


def pause_all(fleet, load, baton):
    for pod in list(fleet.pods.values()):
        pod.signal("pause")
        time.sleep(PAUSE_S)
        pod.signal("unpause")
        print(f"  paused {pod.name}", flush=True)
        await_registered(fleet, baton, load.access)
        load.await_requests(4)


PHASES = {"replace": replace_all, "kill": kill_all, "pause": pause_all}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"), help="folder of the built programs")
    parser.add_argument("--model", default=str(ROOT / "tests/testdata/models/tiny-q8_0.gguf"))
    parser.add_argument("--state", default="/var/tmp/baton-kube", help="storage of images and containers")
    parser.add_argument("--phase", choices=PHASES, action="append", help="only these phases")
    options = parser.parse_args()
    if os.geteuid() != 0:
        not_run("needs root")
    for tool in ("podman", "buildah", "runc", "kubectl"):
        if shutil.which(tool) is None:
            not_run(f"no {tool}")
    baton = os.path.join(options.bin, "baton")
    expected = references(baton, options.model)
    podman = Podman(options.state)
    size_mib = podman.build_image(options.bin)
    print(f"image: {size_mib:.0f} MiB", flush=True)
    podman.make_volume("baton-models", {"model.gguf": pathlib.Path(options.model).read_bytes()})
    folder = tempfile.mkdtemp()
    access = Access(options, baton, folder)
    for name, files in access.secrets.items():
        podman.make_volume(name, {file: text.encode() for file, text in files.items()})
    print(f"TLS and keys: {'on' if access.tls else 'the programs have none'}", flush=True)
    figures, failed = [{"name": "image_size", "value": round(size_mib, 1), "unit": "MiB"}], 0
    with PodFleet(podman, render(options.model), {"router": 2, "prefill-worker": 2, "decode-worker": 2}) as fleet:
        await_registered(fleet, baton, access)
        print("six pods are ready", flush=True)
        for name in options.phase or PHASES:
            with Load(fleet, baton, access, expected, retry=name != "replace") as load:
                load.await_requests(4)
                PHASES[name](fleet, load, baton)
            print(f"{name}: {load.counts}", *load.reasons[:10], sep="\n  ", flush=True)
            failed += load.counts["failed"]
            figures += [{"name": f"{name}_{what}", "value": count, "unit": "requests"} for what, count in load.counts.items()]
    shutil.rmtree(folder)
    figures.append({"name": "failed_requests", "value": failed, "unit": "requests", "limit": 0})
    print(json.dumps({"bench": "kube_test", "seed": 0, "figures": figures}))
    sys.exit(1 if failed else 0)


main()
