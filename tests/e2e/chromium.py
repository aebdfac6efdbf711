"""A headless Chromium, driven through its DevTools protocol over two pipes. Standard library only."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
REPLY_S = 120  # a guard against hangs


def find():
    """Returns the path of the browser; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One page; a context manager. `problems` collects errors of scripts and violations of the page's policy."""

    def __init__(self, path):
        self.problems = []
        self.process = None
        self.folder = tempfile.TemporaryDirectory(prefix="baton-chromium-")
        try:
            self.start(path)
        except BaseException:
            self.__exit__()
            raise

    def start(self, path):
        to_browser, self.commands = os.pipe()
        self.replies, from_browser = os.pipe()

        def connect():  # Chromium reads from descriptor 3 and writes to descriptor 4
            os.dup2(to_browser, 13)
            os.dup2(from_browser, 14)
            os.dup2(13, 3)
            os.dup2(14, 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=connect,
            close_fds=False, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.unread = b""
        self.last_id = 0
        self.session = None
        target = next(target["targetId"] for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Audits"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            os.close(self.commands)
            os.close(self.replies)
        self.remove_folder()

    def remove_folder(self):
        """Some children of the browser outlive it and may still write files, so removal is tried again."""
        end = time.monotonic() + REPLY_S
        while True:
            try:
                return self.folder.cleanup()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def read_message(self, end):
        while b"\0" not in self.unread:
            if time.monotonic() > end:
                raise TimeoutError("Chromium does not answer")
            os.set_blocking(self.replies, False)
            try:
                read = os.read(self.replies, 1 << 20)
                if not read:
                    raise RuntimeError("Chromium has ended")
                self.unread += read
            except BlockingIOError:
                time.sleep(0.01)
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(message["params"]["exceptionDetails"]["text"])
        if message.get("method") == "Audits.issueAdded" and "contentSecurityPolicy" in json.dumps(message):
            self.problems.append(json.dumps(message["params"]["issue"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["source"] == "security":
            self.problems.append(message["params"]["entry"]["text"])

    def call(self, method, **parameters):
        self.last_id += 1
        command = {"id": self.last_id, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + REPLY_S
        while True:
            message = self.read_message(end)
            if message.get("id") == self.last_id:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.note(message)

    def open(self, url, width=1200, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)

    def value(self, expression):
        """Returns the value of a JavaScript expression. It runs outside of the page's policy."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def press(self, key, code=None, text=None, modifiers=0):
        codes = {"Tab": 9, "Enter": 13, "Space": 32}
        shared = {"key": " " if key == "Space" else key, "code": code or key, "windowsVirtualKeyCode": codes[key],
                  "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)
