"""guidellm, a load generator. Run by openai_clients_test.py with HOST:PORT and the tokenizer's directory; prints the answer.

guidellm runs parts of itself in processes that import this script again.
"""

import json
import os
import pathlib
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"GUIDELLM__MAX_WORKER_PROCESSES": "1", "GUIDELLM__LOGGING__DISABLED": "true"}
import torch_stand_in  # noqa: E402, F401


def run(folder, data, profile, constraint, model="", **body):
    """Returns the requests of one benchmark, as {"successful": […], "errored": […], "incomplete": […]}."""
    from guidellm.cli import cli

    address, tokenizer = sys.argv[1:]
    report = folder / "report.json"
    scenario = folder / "scenario.json"
    scenario.write_text(json.dumps({"spec": {
        "backend": {"kind": "openai_http", "target": f"http://{address}", "model": model, "extras": {"body": body}},
        "tokenizer": {"kind": "huggingface_auto", "model": tokenizer},
        "data": [data], "profile": profile, "constraints": [constraint], "outputs": [{"kind": "json", "path": str(report)}]}}))
    cli.main(["run", "--scenario", str(scenario), "--disable-console"], standalone_mode=False)
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    report.unlink()
    return benchmark["requests"]


def counts(requests):
    return tuple(len(requests[state]) for state in ("successful", "errored", "incomplete"))


def main():
    question = {"kind": "in_memory_dict_list", "data": [{"prompt": "What is gravity?"}]}
    one, streams = {"kind": "synchronous"}, {"kind": "concurrent", "streams": [4]}
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        load = run(folder, {"kind": "synthetic_text", "prompt_tokens": 64, "output_tokens": 16}, streams,
                   {"kind": "max_requests", "count": 12})
        assert counts(load) == (12, 0, 0), load
        for request in load["successful"]:
            assert request["output_metrics"]["text_tokens"] == 16 and request["time_to_first_token_ms"] > 0, request

        answer = run(folder, question, one, {"kind": "max_requests", "count": 1}, temperature=0, max_tokens=40)
        assert counts(answer) == (1, 0, 0), answer

        refused = run(folder, question, one, {"kind": "max_requests", "count": 1}, temperature=200)
        assert counts(refused) == (0, 1, 0) and "400" in str(refused["errored"]), refused
        unknown = run(folder, question, one, {"kind": "max_requests", "count": 1}, model="gpt-9")
        assert counts(unknown) == (0, 1, 0) and "404" in str(unknown["errored"]), unknown

        # The answers end with the time, so guidellm cancels them.
        long = {"kind": "in_memory_dict_list", "data": [{"prompt": "What is gravity?"}] * 4}
        cut = run(folder, long, streams, {"kind": "max_duration", "seconds": 2}, max_tokens=7000, ignore_eos=True)
        assert counts(cut)[:2] == (0, 0) and cut["incomplete"], cut
    print(answer["successful"][0]["output"], end="")


if __name__ == "__main__":
    main()
