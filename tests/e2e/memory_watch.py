"""Samples the resident memory of a service's processes, for soak.py."""

import pathlib
import statistics
import sys
import threading
import time

import grpc
from baton.v1 import worker_pb2, worker_pb2_grpc

from cluster import children_of

SAMPLE_INTERVAL_S = 5
SHARED_POOL = "memfd:baton-shared"


def resident_of(pid):
    """Returns a process's resident bytes: (in shared KV pools, its own and mapped ones of peers; elsewhere)."""
    shared = elsewhere = 0
    name = ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        field, _, value = line.partition(" ")
        if not field.endswith(":"):
            name = value  # a mapping's line begins with its addresses
        elif field == "Rss:":
            size = int(value.split()[0]) * 1024
            if SHARED_POOL in name:
                shared += size
            else:
                elsewhere += size
    return shared, elsewhere


def worker_name(pid):
    arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return arguments[arguments.index("--worker-id") + 1] if "--worker-id" in arguments else "router"


class MemoryWatch(threading.Thread):
    """Thread that samples the resident memory of every process, in KV pools and outside them. A process fills its pool over time
    and maps the pools of peers on its host, so only memory outside pools shows a leak. A process may have at most all workers'
    pools resident."""

    def __init__(self, cluster):
        super().__init__(name="memory", daemon=True)
        self.samples = {}  # process → [(seconds, MiB outside pools, MiB in pools)]
        self.stopped = threading.Event()
        self.begin = time.monotonic()
        workers = cluster.workers()
        self.pools_mib = sum(int(worker["pool"]["total_blocks"]) * int(worker["pool"]["bytes_per_block"])
                             for worker in workers.values()) / 2**20
        self.pids = {worker_name(pid): pid for pid in children_of(cluster.process.pid)}
        self.channels = {name: grpc.insecure_channel(worker["address"]) for name, worker in workers.items()}

    def run(self):
        while not self.stopped.wait(SAMPLE_INTERVAL_S):
            for name, pid in self.pids.items():
                try:
                    self.sample(name, pid)
                except (OSError, grpc.RpcError) as error:
                    print(f"no sample of {name}: {error}", file=sys.stderr)
        for channel in self.channels.values():
            channel.close()

    def sample(self, name, pid):
        in_pools, elsewhere = resident_of(pid)
        if in_pools == 0 and name in self.channels:  # its pool is not in shared memory
            stub = worker_pb2_grpc.WorkerStub(self.channels[name])
            in_pools = stub.Inspect(worker_pb2.InspectRequest(), timeout=30).resident_pool_bytes
            elsewhere -= in_pools
        self.samples.setdefault(name, []).append(
            (time.monotonic() - self.begin, elsewhere / 2**20, in_pools / 2**20))

    def report(self):
        """Returns [(process, MiB outside pools in its first minute, the same in its last minute, MiB in pools in its last
        minute)]; medians."""
        rows = []
        for name, samples in sorted(self.samples.items()):
            last_s = samples[-1][0]
            first = [own for at, own, _ in samples if at <= 60]
            last = [own for at, own, _ in samples if at >= last_s - 60]
            pools = [pools for at, _, pools in samples if at >= last_s - 60]
            rows.append((name, *(statistics.median(values) for values in (first, last, pools))))
        return rows
