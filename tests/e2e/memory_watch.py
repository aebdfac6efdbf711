"""Resident memory of a service's processes over time, for soak.py."""

import os
import pathlib
import statistics
import sys
import threading
import time

import grpc
from baton.v1 import worker_pb2, worker_pb2_grpc

from cluster import children_of

SAMPLE_INTERVAL_S = 5


class MemoryWatch(threading.Thread):
    """Resident memory of every process over time; a worker's without the pool that it fills as it goes."""

    def __init__(self, cluster):
        super().__init__(name="memory", daemon=True)
        self.samples = {}  # process → [(seconds, whole MiB, MiB beside the pool)]
        self.stopped = threading.Event()
        self.begin = time.monotonic()
        [self.router_pid] = [pid for pid, name in children_of(cluster.process.pid).items()
                             if name == "baton-router"]
        self.channels = {name: grpc.insecure_channel(worker["address"])
                         for name, worker in cluster.workers().items()}

    def run(self):
        while not self.stopped.wait(SAMPLE_INTERVAL_S):
            self.sample()
        for channel in self.channels.values():
            channel.close()

    def sample(self):
        def note(name, resident, pool):
            self.samples.setdefault(name, []).append(
                (time.monotonic() - self.begin, resident / 2**20, (resident - pool) / 2**20))
        pages = int(pathlib.Path(f"/proc/{self.router_pid}/statm").read_text().split()[1])
        note("router", pages * os.sysconf("SC_PAGESIZE"), 0)
        for name, channel in self.channels.items():
            stub = worker_pb2_grpc.WorkerStub(channel)
            try:
                pool = stub.Inspect(worker_pb2.InspectRequest(), timeout=30).resident_pool_bytes
                status = stub.GetWorkerStatus(worker_pb2.GetWorkerStatusRequest(), timeout=30)
            except grpc.RpcError as error:
                print(f"no sample of {name}: {error.code().name} {error.details()}", file=sys.stderr)
                continue
            note(name, status.resident_bytes, pool)

    def report(self):
        """[(process, MiB in its first minute, in its last, whole MiB in its last)]; medians."""
        rows = []
        for name, samples in sorted(self.samples.items()):
            last_s = samples[-1][0]
            first = [own for at, _, own in samples if at <= 60]
            last = [own for at, _, own in samples if at >= last_s - 60]
            whole = [whole for at, whole, _ in samples if at >= last_s - 60]
            rows.append((name, *(statistics.median(values) for values in (first, last, whole))))
        return rows
