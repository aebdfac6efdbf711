#!/usr/bin/env python3
"""Tests a real service with clients of OpenAI's API: answers, streams, errors, a deadline and a cancellation.

  openai_clients_test.py --client NAME --bin build/release/bin [--model M.gguf]

NAME is one of CLIENTS; its script is openai_clients/NAME_client.py. The client comes from PyPI, into a virtual environment of
its own. If that fails, the exit code is 77: not run. Load generators count tokens, so they get the model's tokenizer as a directory.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from cluster import Cluster, answer, default_model

CLIENTS = {
    "openai": ("openai==3.54.0",),
    "langchain": ("langchain-openai==1.7.4", "openai==3.57.0"),
    "litellm": ("litellm==1.110.2", "openai==3.57.0"),
    "aiperf": ("aiperf==0.13.0", "gguf==0.19.0"),
    # Its own requirements but PyTorch, which is gigabytes (openai_clients/torch_stand_in.py).
    "guidellm": ("click~=8.4.0", "culsans~=0.10.0", "datasets>=5.0.1", "eval_type_backport", "faker", "ftfy>=6.0.0", "httpx[http2]<1.0.0",
                 "jinja2", "loguru", "more-itertools>=10.8.0", "msgpack", "numpy>=2.0.0", "protobuf", "pydantic-settings>=2.0.0",
                 "pydantic>=2.11.7", "pyyaml>=6.0.0", "rich", "sanic", "tabulate", "transformers", "typing-extensions>=4.15.0",
                 "uvloop>=0.18", "websockets>=13.0", "gguf==0.19.0"),
}
WITHOUT_REQUIREMENTS = {"guidellm": ("guidellm==0.8.1",)}
NEEDS_TOKENIZER = ("aiperf", "guidellm")
NOT_RUN = 77
CLIENT_TIMEOUT_S = 2400  # guards against hangs; the load generators start many processes


def client_python(client):
    """Returns the Python with the client; ends with 77 where PyPI is out of reach."""
    steps = [CLIENTS[client]]
    if client in WITHOUT_REQUIREMENTS:
        steps.append(("--no-deps", *WITHOUT_REQUIREMENTS[client]))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    venv = pathlib.Path(cache) / "baton" / f"{client}-python"
    wanted, mark = " ".join(word for step in steps for word in step), venv / "packages"
    if not mark.exists() or mark.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        for step in steps:
            made = subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *step],
                                  capture_output=True, text=True)
            if made.returncode != 0:
                print(f"not run: no client {client}: {made.stderr.strip()[-500:]}")
                sys.exit(NOT_RUN)
        mark.write_text(wanted)
    return str(venv / "bin" / "python")


def tokenizer_arguments(options, python, folder):
    """Returns the script's further arguments."""
    if options.client not in NEEDS_TOKENIZER:
        return []
    script = pathlib.Path(__file__).parent / "openai_clients" / "tokenizer_directory.py"
    subprocess.run([python, "-B", script, options.model, folder], check=True)
    return [folder]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", required=True, choices=CLIENTS)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    options = parser.parse_args()
    python = client_python(options.client)
    script = pathlib.Path(__file__).parent / "openai_clients" / f"{options.client}_client.py"
    baton = str(pathlib.Path(options.bin) / "baton")
    job = {"id": "it", "messages": [{"role": "user", "content": "What is gravity?"}], "temperature": 0, "max_tokens": 40}
    wanted, code = answer([baton, "run", "--model", options.model, "--jobs", "-", "--json"], [job])
    assert code == 0, wanted
    with (tempfile.TemporaryDirectory() as folder,
          Cluster(options.bin, options.model, 1, 1, ["--kv-blocks=1024"], up_arguments=["--http-address", "127.0.0.1:0"]) as cluster):
        address = cluster.says("http")
        said = subprocess.run([python, "-B", script, address, *tokenizer_arguments(options, python, folder)],
                              capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S)
        assert said.returncode == 0, said.stderr
        assert said.stdout == wanted["it"]["text"], f"{said.stdout!r}, not {wanted['it']['text']!r}"
        cluster.wait_at_rest()  # also after the timeout and the cancellation


if __name__ == "__main__":
    main()
