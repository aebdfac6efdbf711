#!/usr/bin/env python3
"""Sends a question to a running Baton service and prints the answer while it streams."""

import argparse
import pathlib
import sys

STUBS = """\
The client needs grpcio, and stubs generated from the published protocol files:

  python3 -m venv .venv && .venv/bin/pip install grpcio-tools
  .venv/bin/python -m grpc_tools.protoc -I proto --python_out=.venv --grpc_python_out=.venv \\
      proto/baton/v1/inference.proto
  PYTHONPATH=.venv .venv/bin/python examples/python/client.py "What is gravity?"
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, epilog=STUBS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("router", nargs="?", default="127.0.0.1:8090", help="HOST:PORT; %(default)s by default")
    parser.add_argument("question")
    parser.add_argument("--document", action="append", default=[], metavar="FILE",
                        help="a text that the question is about; its KV is reused in any order and beside other documents")
    parser.add_argument("--max-tokens", type=int, default=200, help="%(default)s by default")
    return parser.parse_args()


def ask(router, question, documents, max_tokens):
    """Returns the exit code."""
    try:
        import grpc
        from baton.v1 import inference_pb2 as pb
        from baton.v1 import inference_pb2_grpc
    except ImportError as error:
        print(f"{error}\n\n{STUBS}", end="", file=sys.stderr)
        return 2
    with grpc.insecure_channel(router) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        chunks = [pb.PromptPart(text=document) for document in documents]
        request = pb.GenerateRequest(
            messages=pb.Messages(messages=[pb.ChatMessage(role="user", content=question, chunks=chunks)]),
            sampling=pb.SamplingParams(temperature=0, max_tokens=max_tokens))
        try:
            for response in stub.Generate(request, timeout=120):  # call .cancel() on the returned object to cancel
                if response.WhichOneof("event") == "tokens":
                    print(response.tokens.text, end="", flush=True)
                elif response.WhichOneof("event") == "finished":
                    finished = response.finished
                    print(finished.text)  # the rest of the text, which could have become a stop string until now
                    print(f"{finished.usage.completion_tokens} tokens, the first after "
                          f"{finished.ledger.first_token_us / 1000:.0f} ms", file=sys.stderr)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    arguments = parse_arguments()
    texts = [pathlib.Path(path).read_text() for path in arguments.document]
    sys.exit(ask(arguments.router, arguments.question, texts, arguments.max_tokens))
