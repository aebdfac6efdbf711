#!/usr/bin/env python3
"""Test of the Python example: it asks a real service and must print the answer of `baton run`.

  python_client_test.py --bin build/release/bin [--model M.gguf]

gRPC for Python comes from build/venv, which scripts/python_client_env.sh makes. If that fails, the exit code is 77: not run.
"""

import argparse
import pathlib
import subprocess
import sys

from cluster import Cluster, answer, default_model

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VENV = ROOT / "build" / "venv"
NOT_RUN = 77
QUESTION = "What is gravity?"
TEXTS = ROOT / "tests" / "testdata" / "texts"
DOCUMENTS = [TEXTS / "14_recipe.txt", TEXTS / "11_dialogue.txt"]
MAX_TOKENS = 200  # the same as in the example


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    options = parser.parse_args()
    made = subprocess.run(["bash", "-ec", f"me=python_client_test bin='{options.bin}' venv='{VENV}'\n"
                           "source scripts/python_client_env.sh"], cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        print(f"not run: no gRPC for Python: {made.stderr.strip()[-500:]}")
        sys.exit(NOT_RUN)
    baton = str(pathlib.Path(options.bin) / "baton")
    user = {"role": "user", "content": QUESTION}
    settings = {"temperature": 0, "max_tokens": MAX_TOKENS}
    jobs = [{"id": "it", "messages": [user], **settings},
            {"id": "about", "messages": [user | {"chunks": [path.read_text() for path in DOCUMENTS]}], **settings}]
    wanted, code = answer([baton, "run", "--model", options.model, "--jobs", "-", "--json"], jobs)
    assert code == 0, wanted
    with Cluster(options.bin, options.model, 1, 1, ["--kv-blocks=256"]) as cluster:
        def ask(*arguments):
            return subprocess.run([str(VENV / "bin" / "python"), "-B", str(ROOT / "examples" / "python" / "client.py"),
                                   cluster.router, QUESTION, *arguments], env={"PYTHONPATH": str(VENV / "stubs")},
                                  capture_output=True, text=True, timeout=300)
        said = {"it": ask(), "about": ask(*(f"--document={path}" for path in DOCUMENTS))}
    for name, want in wanted.items():
        assert said[name].returncode == 0, said[name].stderr
        assert said[name].stdout == want["text"] + "\n", f"{said[name].stdout!r}, not {want['text']!r}"
        assert f"{len(want['token_ids'])} tokens" in said[name].stderr, said[name].stderr


if __name__ == "__main__":
    main()
