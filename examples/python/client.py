#!/usr/bin/env python3
"""Sends a question to a running Baton service and prints the answer while it streams."""

import argparse
import pathlib
import sys

STUBS = """\
The client needs grpcio, and stubs generated from the published protocol files:

  python3 -m venv .venv && .venv/bin/pip install grpcio-tools
  .venv/bin/python -m grpc_tools.protoc -I proto --python_out=.venv --grpc_python_out=.venv \\
      proto/baton/v1/*.proto
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
    connection = parser.add_argument_group("connection")
    connection.add_argument("--tls-ca", metavar="FILE", help="PEM file with the authorities of the service's certificates. "
                            "Turns encryption on")
    connection.add_argument("--tls-cert", metavar="FILE",
                            help="PEM file with this client's certificate, for services that ask for one")
    connection.add_argument("--tls-key", metavar="FILE",
                            help="PEM file with that certificate's key. Without it, the key is in the file of --tls-cert")
    connection.add_argument("--api-key-file", metavar="FILE",
                            help="file with an API key in its first line, for services that ask for one")
    arguments = parser.parse_args()
    if (arguments.tls_cert or arguments.tls_key) and not arguments.tls_ca:
        parser.error("--tls-cert and --tls-key need --tls-ca")
    if arguments.tls_key and not arguments.tls_cert:
        parser.error("--tls-key needs --tls-cert")
    if arguments.api_key_file and not arguments.tls_ca:
        parser.error("--api-key-file needs --tls-ca: a key must not travel without encryption")
    return arguments


def read_files(arguments):
    """Returns the bytes of (--tls-ca, --tls-cert, the certificate's key), and the API key. Exits if a file cannot be used."""
    def read(flag, path):
        try:
            return pathlib.Path(path).read_bytes() if path else None
        except OSError as error:
            sys.exit(f"{flag}: {error}")

    certificate = read("--tls-cert", arguments.tls_cert)
    key = read("--tls-key", arguments.tls_key) if arguments.tls_key else certificate
    api_key = (read("--api-key-file", arguments.api_key_file) or b"").partition(b"\n")[0].decode(errors="replace").strip()
    if arguments.api_key_file and not api_key:
        sys.exit(f"--api-key-file {arguments.api_key_file}: the first line is empty")
    return (read("--tls-ca", arguments.tls_ca), certificate, key), api_key


def open_channel(grpc, router, authorities, certificate, key):
    if authorities is None:
        return grpc.insecure_channel(router)
    return grpc.secure_channel(router, grpc.ssl_channel_credentials(authorities, key, certificate))


def ask(router, question, documents, max_tokens, tls, api_key):
    """Returns the exit code."""
    try:
        import grpc
        from baton.v1 import inference_pb2 as pb
        from baton.v1 import inference_pb2_grpc
    except ImportError as error:
        print(f"{error}\n\n{STUBS}", end="", file=sys.stderr)
        return 2
    with open_channel(grpc, router, *tls) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        chunks = [pb.PromptPart(text=document) for document in documents]
        request = pb.GenerateRequest(
            messages=pb.Messages(messages=[pb.ChatMessage(role="user", content=question, chunks=chunks)]),
            sampling=pb.SamplingParams(temperature=0, max_tokens=max_tokens), api_key=api_key)
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
    sys.exit(ask(arguments.router, arguments.question, texts, arguments.max_tokens, *read_files(arguments)))
