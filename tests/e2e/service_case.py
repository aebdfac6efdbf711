"""Base of the tests with a real service: a test case that starts `baton up`, and `main`. Standard library only."""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import unittest

from cluster import Cluster, answer, default_model, wait_until

TEXTS = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "texts"
BLOCK = 16
CHUNK = 64  # small, so that short prompts cross chunk boundaries
CONTEXT = 8192
SEEN_TIMEOUT_S = 60  # guards against hangs: a state must show in the status within this time

ARGUMENTS = argparse.Namespace()  # --bin and --model


def baton():
    return str(pathlib.Path(ARGUMENTS.bin) / "baton")


def inspect_tokens(texts):
    """Returns the token ids of each text, from `baton inspect tokens`, which needs no service."""
    lines = "\n".join(json.dumps({"text": text}) for text in texts) + "\n"
    done = subprocess.run([baton(), "inspect", "tokens", "--model", ARGUMENTS.model], input=lines,
                          capture_output=True, text=True, check=True)
    return [json.loads(line)["ids"] for line in done.stdout.splitlines()]


def read_texts():
    return [path.read_text() for path in sorted(TEXTS.glob("*.txt"))]


def run(jobs, *arguments):
    """Runs the jobs in the reference configuration: one process, one job at a time, no prefix cache. arguments: of `baton run`."""
    return answer([baton(), "run", "--model", ARGUMENTS.model, "--jobs", "-", "--json",
                   "--hash-logits", "--no-prefix-cache", *arguments], jobs)


def first_worker(workers, role):
    return next(worker for worker in workers.values() if worker["role"] == f"WORKER_ROLE_{role}")


def blocks_of(worker, state):
    """Asks the worker itself for its blocks in a state: free, cached, owned. The router's number is that of the last heartbeat, which
    may show an earlier request."""
    done = subprocess.run([baton(), "inspect", "worker", "--worker", worker["address"]], capture_output=True, text=True,
                          timeout=60, check=True)
    return int(re.search(rf"(\d+) {state}\b", done.stdout).group(1))


# Long timeouts for tests without faults: a machine that hangs for seconds must not look like a lost worker.
PATIENT_ROUTER = ("--worker-silence-ms=60000", "--worker-expiry-ms=60000", "--index-wait-ms=60000")


class ServiceTest(unittest.TestCase):
    """Test case with one `baton up` for all tests of a class."""
    prefill, decode = 1, 1
    worker_arguments = ("--hash-logits", f"--max-chunk-tokens={CHUNK}", "--kv-blocks=1024")
    router_arguments = PATIENT_ROUTER
    prefill_arguments = ()  # besides worker_arguments; no option may be in both
    decode_arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(
            Cluster(ARGUMENTS.bin, ARGUMENTS.model, cls.prefill, cls.decode, cls.worker_arguments,
                    cls.router_arguments, cls.prefill_arguments,
                    [f"--decode-argument={argument}" for argument in cls.decode_arguments]))
        cls.text_ids = [id for ids in inspect_tokens(read_texts()) for id in ids]

    def prompt(self, length, start=0):
        """Returns `length` token ids of real text from `start` on. The text repeats."""
        ids = self.text_ids
        return [ids[(start + i) % len(ids)] for i in range(length)]

    def assert_same_answers(self, got, want, what):
        for name, expected in want.items():
            for field in ("prompt_token_ids", "token_ids", "text", "finish_reason", "logits_hash"):
                self.assertEqual(got[name].get(field), expected.get(field),
                                 f"{what}: {name}: {field}; {got[name].get('error')}")

    def refusal(self, job, *arguments):
        results, code = self.cluster.generate([{"id": "it", "max_tokens": 1, **job}], *arguments)
        self.assertEqual(code, 1)
        self.assertIn("error", results["it"])
        return results["it"]["error"]

    def long_answer(self, *arguments, prompt="Once upon a time", max_tokens=CONTEXT - 200):
        """Starts a `baton generate` that takes minutes."""
        return subprocess.Popen(
            self.cluster.generate_command("--prompt", prompt, "--max-tokens", str(max_tokens),
                                          "--ignore-eos", "--temperature", "0", *arguments),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for_work(self, role):
        """Waits until a request holds blocks of the role's first worker."""
        worker = first_worker(self.cluster.workers(), role)
        wait_until(lambda: blocks_of(worker, "owned") > 0, SEEN_TIMEOUT_S, f"work on the {role} worker")


def main(description):
    """Runs the caller's test cases. Takes --bin, --model and unittest's own arguments."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    rest = parser.parse_known_args(namespace=ARGUMENTS)[1]
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
