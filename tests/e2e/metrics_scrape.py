"""Reads the HTTP answers of --metrics-listen, for tests with real processes. Standard library only."""

import http.client
import re
import urllib.error
import urllib.request

SERIES = re.compile(r'^([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"')
ANSWER_S = 10  # a guard against hangs


def get(address, path, timeout_s=ANSWER_S):
    """Returns (status, content type, body) of an HTTP GET."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout_s) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def status_of(address, path):
    """Returns the HTTP status, or 0 without an answer."""
    try:
        return get(address, path)[0]
    except (OSError, http.client.HTTPException):
        return 0


class Scrape(dict):
    """One answer of /metrics: {(name, (("label", "value"), …)): value}, and the types {name: type}."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.types = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                assert name not in self.types, f"two types of {name}"
                self.types[name] = kind
            elif not line.startswith("# HELP "):
                found = SERIES.match(line)
                assert found, f"no series: {line}"
                key = (found[1], tuple(sorted(LABEL.findall(found[2] or ""))))
                assert key not in self, f"twice: {line}"
                self[key] = float(found[3])
                assert self[key] == self[key], f"NaN: {line}"

    def value(self, name, **labels):
        return self[(name, tuple(sorted(labels.items())))]

    def total(self, name, **labels):
        """The sum over all series with these labels."""
        wanted = set(labels.items())
        found = [value for (series, has), value in self.items() if series == name and wanted <= set(has)]
        assert found, f"no series {name} {labels}"
        return sum(found)

    def counters(self):
        """Everything that never falls."""
        histograms = {name for name, kind in self.types.items() if kind == "histogram"}
        return {key: value for key, value in self.items()
                if self.types.get(key[0]) == "counter" or re.sub(r"_(bucket|sum|count)$", "", key[0]) in histograms}


def scrape(address):
    status, kind, text = get(address, "/metrics")
    assert status == 200, text
    assert kind == "text/plain; version=0.0.4; charset=utf-8", kind
    return Scrape(text)


def held_blocks(address):
    """Returns how many KV blocks of a worker belong to requests, transfers or steps."""
    found = scrape(address)
    return sum(found.value("baton_kv_blocks", state=state) for state in ("owned", "in_flight", "step"))
