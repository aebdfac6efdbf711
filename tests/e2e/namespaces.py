"""Starts a router and workers in separate network namespaces on one bridge, so that a test can drop packets between any two of
them, in one or both directions. Needs Linux, root and `ip`. Standard library only.

To drop packets, the sender gets a neighbour entry for the receiver with an unused hardware address. The bridge floods such
packets and no interface accepts them. Neither end gets an error.
"""

import os
import re
import subprocess

from cluster import START_TIMEOUT_S, Service, wait_until
from fleet import Process

NOBODY, BRIDGE = "02:00:00:00:00:99", "02:00:00:00:00:01"
PORT, TRANSFER_PORT = 7000, 9000  # the same in every namespace: each has its own address


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)  # OSError if `ip` is missing
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Bridge:
    """A bridge and its namespaces, which reach each other and the host. Names and addresses derive from this process's id."""

    def __init__(self):
        self.name = f"bt{os.getpid() % 100_000}"
        self.subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self.namespaces = []
        # Set a fixed hardware address. Otherwise the bridge takes the address of a port and changes it with the next port.
        ip("link", "add", self.name, "address", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.1/24", "dev", self.name)
        ip("link", "set", self.name, "up")

    def add(self, name):
        """Adds a namespace. Returns its name and its address."""
        namespace, number = f"{self.name}-{name}", len(self.namespaces) + 2
        outside = f"{self.name}v{number}"
        ip("netns", "add", namespace)
        ip("link", "add", outside, "type", "veth", "peer", "name", "net", "netns", namespace)
        self.namespaces.append(namespace)
        ip("link", "set", outside, "master", self.name, "up")
        ip("-n", namespace, "addr", "add", f"{self.subnet}.{number}/24", "dev", "net")
        for device in ("net", "lo"):
            ip("-n", namespace, "link", "set", device, "up")
        return namespace, f"{self.subnet}.{number}"

    def close(self):
        for number, namespace in enumerate(self.namespaces):
            ip("link", "del", f"{self.name}v{number + 2}")
            ip("netns", "del", namespace)
        ip("link", "del", self.name)


class Host:
    """A namespace with one program in it."""

    def __init__(self, bridge, name):
        self.name = name
        self.namespace, self.address = bridge.add(name)
        self.process = None
        self.unheard = set()  # hosts that get no packets from here

    def start(self, command, says):
        self.process = Process(["ip", "netns", "exec", self.namespace, *command], says)

    def drop_to(self, other):
        ip("-n", self.namespace, "neigh", "replace", other.address, "lladdr", NOBODY, "dev", "net", "nud", "permanent")
        self.unheard.add(other)

    def heal(self):
        for other in self.unheard:
            ip("-n", self.namespace, "neigh", "del", other.address, "dev", "net")
        self.unheard.clear()

    def close(self):
        if self.process is not None:
            self.process.close()


class NamespacedFleet(Service):
    """A router and workers, each in its own namespace; a context manager."""

    def __init__(self, bin_dir, model, roles, worker_arguments=()):
        super().__init__(bin_dir)
        self.bridge = Bridge()
        self.hosts = {}
        try:
            router = self.host("router")
            self.router = f"{router.address}:{PORT}"
            router.start([os.path.join(bin_dir, "baton-router"), "--listen", self.router,
                          "--plaintext"], "listening")
            for name, role in roles.items():
                host = self.host(name)
                host.start([os.path.join(bin_dir, f"baton-{role}-worker"), "--model", model, "--router", self.router,
                            "--worker-id", name, "--listen", f"{host.address}:{PORT}", "--advertise",
                            f"{host.address}:{PORT}", "--transport", "tcp", "--transfer-listen",
                            f"{host.address}:{TRANSFER_PORT}", "--plaintext", *worker_arguments], "ready")
            self.wait_whole()
        except BaseException:
            self.__exit__()
            raise

    def host(self, name):
        self.hosts[name] = Host(self.bridge, name)
        return self.hosts[name]

    def __getitem__(self, name):
        return self.hosts[name]

    def __exit__(self, *_):
        for host in self.hosts.values():
            host.close()
        self.bridge.close()

    def wait_whole(self):
        """Waits until the router knows and reaches all workers."""
        def whole():
            status = self.status()
            return (status.get("ready") and len(status["workers"]) == len(self.hosts) - 1 and
                    not any(worker.get("unreachable") or worker.get("silent") for worker in status["workers"]))
        wait_until(whole, START_TIMEOUT_S, "a router that reaches all workers")

    def blocks(self, name):
        """Asks a worker directly. Returns (owned blocks, blocks in flight)."""
        done = subprocess.run([self.baton, "inspect", "worker", "--worker", f"{self[name].address}:{PORT}"],
                              capture_output=True, text=True, timeout=60)
        owned, in_flight = re.search(r"(\d+) owned, (\d+) in", done.stdout).groups()
        return int(owned), int(in_flight)

    def heal(self):
        for host in self.hosts.values():
            host.heal()


def permitted():
    """Returns None if this machine permits namespaces, else the error."""
    try:
        bridge = Bridge()
    except OSError as error:
        return error
    try:
        one, other = Host(bridge, "one"), Host(bridge, "other")
        one.drop_to(other)
        one.heal()
    except OSError as error:
        return error
    finally:
        bridge.close()
    return None
