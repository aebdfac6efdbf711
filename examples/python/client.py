#!/usr/bin/env python3
r"""Asks a running Baton a question and prints the answer as it comes.

  python3 -m venv .venv && .venv/bin/pip install grpcio-tools
  .venv/bin/python -m grpc_tools.protoc -I proto --python_out=.venv --grpc_python_out=.venv \
      proto/baton/v1/inference.proto
  PYTHONPATH=.venv .venv/bin/python examples/python/client.py 127.0.0.1:50051 "What is gravity?"
"""

import sys

import grpc
from baton.v1 import inference_pb2 as pb
from baton.v1 import inference_pb2_grpc


def main(router, question):
    with grpc.insecure_channel(router) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        request = pb.GenerateRequest(
            messages=pb.Messages(messages=[pb.ChatMessage(role="user", content=question)]),
            sampling=pb.SamplingParams(temperature=0, max_tokens=200))
        for response in stub.Generate(request, timeout=120):  # to cancel: .cancel() on the call
            if response.WhichOneof("event") == "tokens":
                print(response.tokens.text, end="", flush=True)
            elif response.WhichOneof("event") == "finished":
                finished = response.finished
                print(finished.text)  # what was held back: it might have begun a stop string
                print(f"{finished.usage.completion_tokens} tokens, the first after "
                      f"{finished.ledger.first_token_us / 1000:.0f} ms", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
