"""Starts a router and workers as separate processes, with fault proxies in front of every worker. Standard library only.

The router and other workers call a worker through `worker.grpc`. Other workers send it KV through `worker.kv`. Both are a
FaultProxy, and both stay when the worker is killed and restarted.
"""

import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

from cluster import REST_TIMEOUT_S, START_TIMEOUT_S, Service, end_with_parent, wait_until
from fault_proxy import FaultProxy
from message_taps import GrpcTap, TransferTap


CLAIMS = []


def free_port():
    """Returns a port for a program that will be restarted at the same address. The port belongs to this process until it ends.
    The kernel gives outgoing connections ports from 32768 on. A name in the abstract socket namespace keeps parallel tests
    apart."""
    ports = list(range(20000, 32000))
    random.shuffle(ports)
    for port in ports:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0baton-test-port-{port}")
            with socket.socket() as held:
                held.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        CLAIMS.append(claim)
        return port
    raise RuntimeError("no port is free")


class Process:
    """A running program with its log in a file. Its first line of output must begin with `says` and an address."""

    def __init__(self, command, says):
        handle, self.log_path = tempfile.mkstemp(prefix="baton-", suffix=".log")
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=handle, text=True, start_new_session=True,
                                      preexec_fn=end_with_parent)
        os.close(handle)
        line = self.popen.stdout.readline().split()
        if not line or line[0] != says:
            self.kill()
            raise RuntimeError(f"{command[0]} said {line}; its log: {self.log()}")
        self.address = line[1]

    def log(self):
        return pathlib.Path(self.log_path).read_text()[-3000:]

    def signal(self, number):
        self.popen.send_signal(number)

    def freeze(self):
        """Stops the process with SIGSTOP and waits until it has stopped."""
        self.signal(signal.SIGSTOP)
        state = pathlib.Path(f"/proc/{self.popen.pid}/stat")
        wait_until(lambda: state.read_text().rsplit(")", 1)[1].split()[0] == "T", START_TIMEOUT_S, "a frozen process")

    def thaw(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.popen.kill()
        self.popen.wait()

    def end(self, timeout_s=60):
        self.thaw()
        self.signal(signal.SIGTERM)
        return self.popen.wait(timeout_s)

    def close(self):
        if self.popen.poll() is None:
            self.kill()
        self.popen.stdout.close()
        os.unlink(self.log_path)


class Worker:
    def __init__(self, fleet, role, name):
        self.fleet, self.role, self.name = fleet, role, name
        self.port, self.transfer_port = free_port(), free_port()
        self.grpc = FaultProxy(("127.0.0.1", self.port), GrpcTap)
        self.kv = FaultProxy(("127.0.0.1", self.transfer_port), TransferTap)
        self.process = None
        self.last_epoch, self.ended_epochs = None, set()

    def start(self):
        if self.process is not None:
            self.process.close()
            self.ended_epochs.add(self.last_epoch)
        self.process = Process(
            [os.path.join(self.fleet.bin, f"baton-{self.role}-worker"), "--model", self.fleet.model, "--router",
             self.fleet.router, "--worker-id", self.name, "--listen", f"127.0.0.1:{self.port}", "--advertise",
             self.grpc.address, "--transport", "tcp", "--transfer-listen", f"127.0.0.1:{self.transfer_port}",
             "--transfer-advertise", self.kv.address, *self.fleet.worker_arguments], "ready")

    def lose(self):
        """Kills the worker and resets its proxies, so that bytes in flight are lost too, as when a machine dies."""
        self.process.kill()
        for proxy in (self.grpc, self.kv):
            proxy.reset()

    def inspect(self):
        """Asks the worker directly, not through the proxy. Returns (owned blocks, blocks in flight)."""
        done = subprocess.run([self.fleet.baton, "inspect", "worker", "--worker", f"127.0.0.1:{self.port}"],
                              capture_output=True, text=True, timeout=60)
        owned = re.search(r"(\d+) owned, (\d+) in", done.stdout)
        if owned is None:
            raise RuntimeError(f"baton inspect: {done.stdout} {done.stderr}")
        return int(owned.group(1)), int(owned.group(2))

    def close(self):
        if self.process is not None:
            self.process.close()
        self.grpc.close()
        self.kv.close()


class Fleet(Service):
    """A router and workers; a context manager."""

    def __init__(self, bin_dir, model, roles, worker_arguments=(), router_arguments=()):
        super().__init__(bin_dir)
        self.bin, self.model = bin_dir, model
        self.worker_arguments = worker_arguments
        self.router_arguments = router_arguments
        self.router_port = free_port()
        self.router = f"127.0.0.1:{self.router_port}"
        self.router_process = None
        self.start_router()
        self.by_name = {}
        try:
            for role, count in roles.items():
                for i in range(count):
                    worker = Worker(self, role, f"{role}-{i}")
                    self.by_name[worker.name] = worker
                    worker.start()
            self.wait_registered()
        except BaseException:
            self.__exit__()
            raise

    def start_router(self):
        if self.router_process is not None:
            self.router_process.close()
        self.router_process = Process([os.path.join(self.bin, "baton-router"), "--listen", self.router,
                                       *self.router_arguments], "listening")

    def __exit__(self, *_):
        for worker in self.by_name.values():
            worker.close()
        self.router_process.close()

    def __getitem__(self, name):
        return self.by_name[name]

    def log(self):
        return self.router_process.log()

    def wait_registered(self):
        """Waits until the router has registered exactly the running workers and reaches each of them."""
        def registered():
            status = self.status()
            epochs = {worker["worker_id"]: worker["epoch"] for worker in status["workers"]}
            return (status.get("ready") and epochs.keys() == self.by_name.keys() and
                    not any(worker.get("unreachable") or worker.get("silent") for worker in status["workers"]) and
                    all(epoch not in self.by_name[name].ended_epochs for name, epoch in epochs.items()) and epochs)
        for name, epoch in wait_until(registered, START_TIMEOUT_S, "all workers registered").items():
            self.by_name[name].last_epoch = epoch

    def decode_workers(self):
        return [worker for worker in self.by_name.values() if worker.role == "decode"]

    def make_whole(self):
        """Heals all proxies, removes their triggers, thaws frozen processes and restarts dead ones."""
        for worker in self.by_name.values():
            for proxy in (worker.grpc, worker.kv):
                proxy.forget()
                proxy.heal()
        if self.router_process.popen.poll() is not None:
            self.start_router()
        self.router_process.thaw()
        for worker in self.by_name.values():
            if worker.process.popen.poll() is not None:
                worker.start()
            worker.process.thaw()
        self.wait_registered()

    def strike_at(self, message, nth, action, channel="grpc", role="decode"):
        """Calls `action(worker, unit)` once, before the nth such message passes at any worker of the role. Returns the Strike."""
        strike = Strike(action)
        for worker in self.by_name.values():
            if worker.role == role:
                getattr(worker, channel).when(message, nth, strike.at(worker))
        return strike

    def wait_reclaimed(self, worker):
        """Waits until no request and no transfer holds a block of the worker. Returns the milliseconds that it took."""
        begin = time.monotonic()
        wait_until(lambda: worker.inspect() == (0, 0), REST_TIMEOUT_S, f"all blocks of {worker.name} back")
        return (time.monotonic() - begin) * 1000


class Strike:
    """An action that waits at several places and runs at the first that triggers. Records place and time."""

    def __init__(self, action):
        self.action, self.where, self.at_s = action, None, None
        self.lock = threading.Lock()  # every proxy calls from its own thread
        self.struck = threading.Event()

    def at(self, where):
        def strike(unit):
            with self.lock:
                if self.where is not None:
                    return None
                self.where, self.at_s = where, time.monotonic()
            self.struck.set()
            return self.action(where, unit)
        return strike
