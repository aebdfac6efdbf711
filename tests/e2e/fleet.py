"""A router and workers as processes of their own, with fault proxies before every worker. Standard library only.

Routers and workers talk to a worker through `worker.grpc`, other workers send it KV through `worker.kv`; both are FaultProxy
and stay when the worker is killed and started again.
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
    """A port for programs that are started again at their address: this process's alone until it ends. The kernel gives it to
    no connection (those get 32768 and up), and a name held in its abstract namespace keeps tests that run at once apart."""
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
    """One program with its log in a file; its first line of output begins with `says`."""

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
        """Returns when the process stands still."""
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
        """Kills it; what it said and the proxies have not passed on is lost too, as when a whole machine dies."""
        self.process.kill()
        for proxy in (self.grpc, self.kv):
            proxy.reset()

    def inspect(self):
        """The worker's own words, past the proxy: (owned blocks, blocks in flight)."""
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
    """Router and workers; a context manager."""

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
        """Until the router knows exactly the processes that are there, and has reached each."""
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
        """Heals every path, forgets what was to strike, and starts again who is dead."""
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
        """`action(worker, unit)` before the n-th such message passes at the first worker of that role to see it."""
        strike = Strike(action)
        for worker in self.by_name.values():
            if worker.role == role:
                getattr(worker, channel).when(message, nth, strike.at(worker))
        return strike

    def wait_reclaimed(self, worker):
        """Until no request and no transfer holds a block there; returns the milliseconds that took."""
        begin = time.monotonic()
        wait_until(lambda: worker.inspect() == (0, 0), REST_TIMEOUT_S, f"all blocks of {worker.name} back")
        return (time.monotonic() - begin) * 1000


class Strike:
    """An action at the first of several places that it comes to; remembers where and when."""

    def __init__(self, action):
        self.action, self.where, self.at_s = action, None, None
        self.lock = threading.Lock()  # every proxy has a thread of its own
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
