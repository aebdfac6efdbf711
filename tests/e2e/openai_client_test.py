#!/usr/bin/env python3
"""Tests a real service with OpenAI's own Python client: answers, streams, errors, a deadline and a cancellation.

  openai_client_test.py --bin build/release/bin [--model M.gguf]

The client comes from PyPI, into a virtual environment of its own. If that fails, the exit code is 77: not run.
"""

import argparse
import os
import pathlib
import subprocess
import sys

from cluster import Cluster, answer, default_model

PACKAGES = ("openai==3.54.0",)
NOT_RUN = 77
CLIENT = """
import sys
import openai

client = openai.OpenAI(base_url=f"http://{sys.argv[1]}/v1", api_key="none", max_retries=0, timeout=300)
model = client.models.list().data[0].id
assert client.models.retrieve(model).id == model
messages = [{"role": "user", "content": "What is gravity?"}]
ask = dict(model=model, messages=messages, max_tokens=40, temperature=0)

whole = client.chat.completions.create(**ask)
assert whole.choices[0].message.role == "assistant" and whole.usage.completion_tokens > 0, whole
chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == whole.choices[0].message.content, (text, whole)
usage = chunks[-1].usage  # the second request found the prompt cached
assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens), usage
assert usage.prompt_tokens_details.cached_tokens > 0, usage
legacy = client.completions.create(model=model, prompt=["Water is", "The sky is"], max_tokens=8, temperature=0, logprobs=2)
assert [choice.index for choice in legacy.choices] == [0, 1] and legacy.choices[0].logprobs.token_logprobs, legacy

def fails(error, **fields):
    try:
        client.chat.completions.create(**{**ask, **fields})
    except error as found:
        return found
    raise AssertionError(f"no {error} for {fields}")

assert fails(openai.BadRequestError, temperature=200).param == "temperature"
assert fails(openai.NotFoundError, model="gpt-9").code == "model_not_found"
late = fails(openai.InternalServerError, max_tokens=7000, extra_body={"ignore_eos": True}, extra_headers={"Baton-Timeout-Ms": "300"})
assert late.status_code == 504, late
fails(openai.APITimeoutError, max_tokens=7000, extra_body={"ignore_eos": True}, timeout=0.5)

cut = client.chat.completions.create(**{**ask, "max_tokens": 7000}, stream=True, extra_body={"ignore_eos": True})
for number, _ in enumerate(cut):
    if number == 5:
        cut.close()
        break
print(whole.choices[0].message.content, end="")
"""


def client_python():
    """Returns the Python with the client; ends with 77 where PyPI is out of reach."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    venv = pathlib.Path(cache) / "baton" / "openai-python"
    wanted, mark = " ".join(PACKAGES), venv / "packages"
    if not mark.exists() or mark.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
        made = subprocess.run([str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
                              capture_output=True, text=True)
        if made.returncode != 0:
            print(f"not run: no OpenAI client: {made.stderr.strip()[-500:]}")
            sys.exit(NOT_RUN)
        mark.write_text(wanted)
    return str(venv / "bin" / "python")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="folder of the built programs")
    parser.add_argument("--model", default=default_model(), help="GGUF file")
    options = parser.parse_args()
    python = client_python()
    baton = str(pathlib.Path(options.bin) / "baton")
    job = {"id": "it", "messages": [{"role": "user", "content": "What is gravity?"}], "temperature": 0, "max_tokens": 40}
    wanted, code = answer([baton, "run", "--model", options.model, "--jobs", "-", "--json"], [job])
    assert code == 0, wanted
    with Cluster(options.bin, options.model, 1, 1, ["--kv-blocks=1024"], up_arguments=["--http-address", "127.0.0.1:0"]) as cluster:
        address = cluster.says("http")
        said = subprocess.run([python, "-c", CLIENT, address], capture_output=True, text=True, timeout=600)
        assert said.returncode == 0, said.stderr
        assert said.stdout == wanted["it"]["text"], f"{said.stdout!r}, not {wanted['it']['text']!r}"
        cluster.wait_at_rest()  # also after the timeout and the cancellation


if __name__ == "__main__":
    main()
