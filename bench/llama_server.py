"""A running llama-server, the peer of some benchmarks. Standard library only."""

import socket
import subprocess
import time
import urllib.error
import urllib.request

START_S = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class LlamaServer:
    """Starts the program and waits until it is healthy. `address` is http://HOST:PORT."""

    def __init__(self, program, model, threads, arguments):
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([str(program), "-m", str(model), "-t", str(threads), "--host", "127.0.0.1",
                                         "--port", str(port), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_S
        while not self._is_healthy():
            if self.process.poll() is not None or time.monotonic() > end:
                self.close()
                raise SystemExit(f"{program} {' '.join(arguments)} did not start")
            time.sleep(0.2)

    def _is_healthy(self):
        try:
            with urllib.request.urlopen(self.address + "/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def close(self):
        self.process.terminate()
        self.process.wait()
