"""Starts `baton up` on a free local port, for tests with real processes. Standard library only."""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

# Guards against hangs. No test asserts a duration.
START_TIMEOUT_S = 120
REST_TIMEOUT_S = 60
END_TIMEOUT_S = 60


def load_condition():
    """A sentence for the output of every measurement whose load generator runs beside the services."""
    return f"The services and the load generator share this machine's {len(os.sched_getaffinity(0))} processors."


def default_model():
    """Returns the model file for tests: $BATON_TEST_MODEL, else the default model in the model directory."""
    if "BATON_TEST_MODEL" in os.environ:
        return os.environ["BATON_TEST_MODEL"]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = os.environ.get("BATON_MODEL_DIR") or os.path.join(cache, "baton", "models")
    return os.path.join(directory, "SmolLM2-135M-Instruct.Q4_1.gguf")


def wait_until(condition, timeout_s, what):
    """Polls condition() and returns its first true value. Raises TimeoutError."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise TimeoutError(f"{what}: not within {timeout_s} s")
        time.sleep(0.05)


def children_of(pid):
    """Returns the child processes of a process as {process id: program name}."""
    children = {}
    for thread in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in thread.read_text().split():
            children[int(child)] = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
    return children


def cpu_seconds(pids):
    """Returns the CPU time of the processes, to the nanosecond: (~pid << 3) | 2 is the CPU clock of a process."""
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def is_running(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def busy(worker):
    """Returns the work and blocks that a worker still has, as {name: count}; empty if it is idle."""
    pool = worker["pool"]
    counts = {name: int(worker[name])
              for name in ("waiting", "running", "waiting_for_kv", "active_transfers")}
    counts |= {name: int(pool[name]) for name in ("owned_blocks", "in_flight_blocks", "step_blocks")}
    counts["lost_blocks"] = pool["total_blocks"] - pool["free_blocks"] - pool["cached_blocks"]
    return {name: count for name, count in counts.items() if count != 0}


def end_with_parent():
    """Called in a child process: the kernel kills the child when the test dies."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Service:
    """Client of a running service. The subclass sets `router`, the router's address."""

    def __init__(self, bin_dir):
        self.baton = os.path.join(bin_dir, "baton")
        self.router = None

    def __enter__(self):
        return self

    def status(self):
        done = subprocess.run([self.baton, "status", "--router", self.router, "--json"],
                              capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"baton status: {done.stderr}")
        return json.loads(done.stdout)

    def workers(self):
        return {worker["worker_id"]: worker for worker in self.status()["workers"]}

    def wait_at_rest(self):
        """Waits until no worker has work and every block is free or cached. Returns {worker id: status}."""
        def at_rest():
            status = self.status()
            if int(status["active_requests"]) != 0 or any(busy(w) for w in status["workers"]):
                return None
            return {worker["worker_id"]: worker for worker in status["workers"]}
        try:
            return wait_until(at_rest, REST_TIMEOUT_S, "the cluster at rest")
        except TimeoutError as error:
            kept = {worker["worker_id"]: busy(worker) for worker in self.status()["workers"]}
            raise TimeoutError(f"{error}; still there: {kept}") from None

    def generate_command(self, *arguments):
        return [self.baton, "generate", "--router", self.router, "--json", *arguments]

    def generate(self, jobs, *arguments, concurrency=1):
        """Runs jobs (objects, or lines of JSON) and returns ({id: result}, exit code)."""
        return answer(self.generate_command("--jobs", "-", "--concurrency", str(concurrency),
                                            *arguments), jobs)


class Cluster(Service):
    """A router and workers, started by `baton up`; a context manager. `log_path` is the log, which __exit__ deletes."""

    def __init__(self, bin_dir, model, prefill=1, decode=1, worker_arguments=(),
                 router_arguments=(), prefill_arguments=(), up_arguments=(), router_address="127.0.0.1:0"):
        super().__init__(bin_dir)
        log, self.log_path = tempfile.mkstemp(prefix="baton-up-", suffix=".log")
        command = [self.baton, "up", "--model", model, "--router-address", router_address,
                   "--prefill-workers", str(prefill), "--decode-workers", str(decode),
                   *(f"--worker-argument={argument}" for argument in worker_arguments),
                   *(f"--prefill-argument={argument}" for argument in prefill_arguments),
                   *(f"--router-argument={argument}" for argument in router_arguments), *up_arguments]
        # A session of its own, so that Ctrl-C at this script's terminal does not reach the service.
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True,
                                        start_new_session=True, preexec_fn=end_with_parent)
        os.close(log)
        self.router = self.says("ready")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.end()
        self.process.stdout.close()
        os.unlink(self.log_path)

    def says(self, word):
        """Reads the next line of `baton up`, which must be `WORD ADDRESS`, and returns the address. The lines are: ready, http,
        metrics."""
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != word:
            self.process.kill()
            raise RuntimeError(f"baton up said {line}, not {word}; its log: {self.log()}")
        return line[1]

    def log(self):
        return pathlib.Path(self.log_path).read_text()[-4000:]

    def end(self, signal_number=signal.SIGINT):
        """Ends the service as Ctrl-C does. Returns the exit code."""
        self.process.send_signal(signal_number)
        try:
            return self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the kernel then kills its children
            raise


def answer(command, jobs):
    """Feeds jobs to `baton run` or `baton generate` and returns ({id: result}, exit code). If a job asks for several choices,
    their ids are "ID/0", "ID/1", … A job that never began has no result line; it gets an error here."""
    lines = [job if isinstance(job, str) else json.dumps(job) for job in jobs]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    results = {}
    for line in done.stdout.split("\n"):  # not splitlines(): an answer may contain other line separators
        if not line:
            continue
        result = json.loads(line)
        results[result["id"] + (f"/{result['choice']}" if "choice" in result else "")] = result
    answered = {result["id"] for result in results.values()}
    if done.returncode == 1 and " not begun; " in done.stderr:
        for job in jobs:
            if job["id"] not in answered:
                results[job["id"]] = {"id": job["id"], "error": {"code": "UNAVAILABLE", "message": "not begun"}}
        answered = {result["id"] for result in results.values()}
    if len(answered) != len(jobs):
        raise RuntimeError(f"{len(answered)} of {len(jobs)} answers; {command}: {done.stderr[-2000:]}")
    return results, done.returncode
