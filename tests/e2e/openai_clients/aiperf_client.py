"""aiperf, a load generator. Run by openai_clients_test.py with HOST:PORT and the tokenizer's directory; prints the answer."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

address, tokenizer = sys.argv[1:]
model = json.load(urllib.request.urlopen(f"http://{address}/v1/models"))["data"][0]["id"]


def cache_of_models(folder):
    """Makes a cache of Hugging Face with the tokenizer in it. Without network, aiperf takes tokenizers only from there."""
    commit = "0" * 40
    entry = folder / "hub" / "models--baton--tokenizer"
    (entry / "refs").mkdir(parents=True)
    (entry / "snapshots").mkdir()
    (entry / "refs" / "main").write_text(commit)
    (entry / "snapshots" / commit).symlink_to(tokenizer)


def profile(folder, *arguments, **inputs):
    """Runs `aiperf profile`. Returns the records of its requests."""
    artifacts = folder / "artifacts"
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "aiperf", "profile", "--model", model, "--url", f"http://{address}", "--endpoint-type", "chat",
         "--streaming", "--tokenizer", "baton/tokenizer", "--extra-inputs", json.dumps(inputs), "--export-level", "raw",
         "--output-artifact-dir", artifacts, "--ui-type", "none", "--no-gpu-telemetry", "--no-server-metrics", "--workers-max", "1",
         "--record-processors", "1", *arguments],
        env=os.environ | {"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, cwd=folder)
    # If no request succeeds, the records stay in a folder of each process.
    written = list(artifacts.rglob("*raw*.jsonl"))
    assert written, done.stdout + done.stderr
    records = [json.loads(line) for path in written for line in path.read_text().splitlines()]
    for path in written:
        path.unlink()
    return records


def text_of(record):
    chunks = [json.loads(packet["value"]) for response in record["responses"] for packet in response["packets"]
              if packet["name"] == "data" and packet["value"] != "[DONE]"]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


with tempfile.TemporaryDirectory() as made:
    folder = pathlib.Path(made)
    cache_of_models(folder)
    question = folder / "question.jsonl"
    question.write_text(json.dumps({"text": "What is gravity?"}) + "\n")
    asked = ["--input-file", question, "--custom-dataset-type", "single-turn", "--num-requests"]

    answers = profile(folder, *asked, "4", "--concurrency", "2", temperature=0, max_tokens=40)
    assert [record["status"] for record in answers] == [200] * 4, answers
    assert len({text_of(record) for record in answers}) == 1, answers
    figures = json.loads((folder / "artifacts" / "profile_export_aiperf.json").read_text())
    assert figures["output_sequence_length"]["avg"] == 40, figures["output_sequence_length"]  # counted by the local tokenizer
    assert figures["time_to_first_token"]["avg"] > 0, figures["time_to_first_token"]

    refused = profile(folder, "--synthetic-input-tokens-mean", "50", "--num-requests", "2", temperature=200)
    assert [record["error"]["code"] for record in refused] == [400] * 2, refused
    assert "temperature is 200" in str(refused), refused

    cut = profile(folder, *asked, "2", "--request-cancellation-rate", "100", "--request-cancellation-delay", "0.5",
                  max_tokens=7000, ignore_eos=True)
    assert [record["metadata"]["was_cancelled"] for record in cut] == [True] * 2, cut
print(text_of(answers[0]), end="")
