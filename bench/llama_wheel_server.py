#!/usr/bin/env python3
"""llama.cpp's server of the wheel xllamacpp, with llama-server's own options. scripts/llama_server.sh --wheel makes a program of it.

    llama_wheel_server.py -m FILE [-t N] [--host HOST] [--port N] [-np SLOTS] [-c TOKENS] [-fa on|off|auto] [--threads-http N]

The wheel is built for several processors at once. It may lack this processor's instructions: --about shows which it has. It serves
until SIGTERM.
"""

import argparse
import signal
import sys

import xllamacpp


def main():
    if sys.argv[1:] == ["--about"]:
        print(xllamacpp.get_system_info())
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True, dest="model")
    parser.add_argument("-t", type=int, dest="threads")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-np", type=int, default=1, dest="slots")
    parser.add_argument("-c", type=int, default=0, dest="context", help="tokens of all slots together; 0: as the model says")
    parser.add_argument("-fa", choices=["on", "off", "auto"], default="auto", dest="flash_attention")
    parser.add_argument("--threads-http", type=int, default=-1)
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # the server's threads inherit this
    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.hostnames, parameters.port = [options.host], options.port
    parameters.n_parallel, parameters.n_ctx = options.slots, options.context
    parameters.n_threads_http = options.threads_http
    if options.threads is not None:
        parameters.cpuparams.n_threads = options.threads
    kinds = xllamacpp.llama_flash_attn_type
    parameters.flash_attn_type = getattr(kinds, {"on": "LLAMA_FLASH_ATTN_TYPE_ENABLED", "off": "LLAMA_FLASH_ATTN_TYPE_DISABLED",
                                                 "auto": "LLAMA_FLASH_ATTN_TYPE_AUTO"}[options.flash_attention])
    server = xllamacpp.Server(parameters)
    print(f"listening at {server.listening_address}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
