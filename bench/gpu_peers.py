#!/usr/bin/env python3
"""Measures what others reach on this GPU, on the shapes of cuda_bench: PyTorch's copies, its matrix products (cuBLASLt), and its
backends of attention (FlashAttention, cuDNN, memory-efficient, and FlexAttention, which Triton compiles).

    gpu_peers.py [--device cuda] [--tiny] [--seconds N] [--ours FILE]

For scripts/gpu_check.sh, on a machine that has PyTorch; Baton does not need it. Prints a table. The last line is one JSON object
with the figures, also if time runs out or a backend hangs. A figure that a backend cannot measure has the value null, and the
reason. A figure is the median of its runs; `best` is the fastest run. --seconds counts from the start of the process. --tiny
measures nothing of use: it rehearses the program, also with --device cpu. --ours names the output of cuda_bench: each figure that it also has gets `ours` and
`to_peer`, which is above 1 where Baton is faster. Its chunks and prefills also get the share of the rate of the square product.

    peer.copy, peer.read             bytes/s inside the device: read and written; read only (a sum)
    peer.matmul.tflops.N             TFLOP/s of a bf16 product of N×N×N
    peer.matmul.BF16.NAME.tokens_T   µs of a product of Llama 8B; several matrices take turns, so that no cache holds them
    peer.attention.SxC               bytes/s of keys and values of S sequences with C tokens and one query each (32 heads over 8 of 128)
    peer.attention.1x1024            µs
    peer.prefill.C                   TFLOP/s of causal attention of one sequence of C tokens, same heads
    peer.flex.*                      the same two with FlexAttention, last, because Triton compiles it
    share_of_peak.*                  TFLOP/s of cuda_bench's figure; the limit is peer.matmul.tflops.N
"""

import time

START = time.monotonic()  # before PyTorch's import, which takes seconds

import argparse
import json
import os
import statistics
import sys
import threading

SEED = 16
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
HIDDEN, INNER, VOCABULARY = 4096, 14336, 128256
DECODES = [(1, 1024), (8, 8192), (64, 1024), (1, 65536), (64, 8192), (8, 1024), (32, 1024), (128, 1024)]  # sequences, context
PRODUCTS = {  # name → rows (outputs), columns (inputs)
    "qkv": ((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN),
    "out": (HIDDEN, HEADS * HEAD_DIM),
    "gate_up": (2 * INNER, HIDDEN),
    "down": (HIDDEN, INNER),
    "head": (VOCABULARY, HIDDEN),
}


class Peers:
    def __init__(self, torch, device, tiny, seconds):
        self.torch, self.device, self.tiny = torch, device, tiny
        self.deadline = START + seconds
        self.products_by = "cuBLAS"
        self.figures = []
        torch.manual_seed(SEED)

    # ---- measuring ----

    def synchronize(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def seconds(self, work, repeats=20):
        """Median and best seconds of one `work(i)` over groups of repeats. On a GPU the repeats are one CUDA graph, as in cuda_bench."""
        repeats = 1 if self.tiny else repeats
        for i in range(repeats):
            work(i)
        self.synchronize()
        run = lambda: [work(i) for i in range(repeats)]
        if self.device.startswith("cuda"):
            graph = self.torch.cuda.CUDAGraph()
            with self.torch.cuda.graph(graph):
                run()
            run = graph.replay
            run()
            self.synchronize()
        times = []
        while len(times) < (1 if self.tiny else 5) or (not self.tiny and sum(times) * repeats < 0.1):
            start = time.perf_counter()
            run()
            self.synchronize()
            times.append((time.perf_counter() - start) / repeats)
        return statistics.median(times), min(times)

    def report(self, name, unit, measure):
        """Adds a figure, or the reason why it was not measured. measure() returns (amount, (median, best) of seconds, note): the value
        is a rate, or with the unit us and the amount None a time."""
        figure = {"name": name, "unit": unit, "limit": None, "ratio": None}
        try:
            if time.monotonic() > self.deadline:
                raise TimeoutError("no time left")
            amount, times, note = measure()
            figure["value"], figure["best"] = (1e6 * s if amount is None else amount / s for s in times)
            if note:
                figure["by"] = note
            print(f"{name:44} {figure['value']:12.2f} {unit:9} {note}", flush=True)
        except Exception as error:  # a backend that a machine lacks must not hide the others
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else 'no message'}"
            figure.update(value=None, absent=f"not measured: {reason}")
            print(f"{name:44} {figure['absent']}", flush=True)
            self.synchronize()
        self.figures.append(figure)

    def random(self, *shape, dtype=None):
        return self.torch.randn(*shape, device=self.device, dtype=dtype or self.torch.bfloat16)

    # ---- figures ----

    def bandwidths(self):
        count = (1 << 16) if self.tiny else (1 << 29)  # floats: 2 GiB
        source = self.random(count, dtype=self.torch.float32)
        target = self.torch.empty_like(source)
        self.report("peer.copy", "MB/s", lambda: (8 * count / 1e6, self.seconds(lambda _: target.copy_(source), 2), ""))
        self.report("peer.read", "MB/s", lambda: (4 * count / 1e6, self.seconds(lambda _: self.torch.sum(source), 2), "sum"))

    def peak(self):
        """The rate of a square product: the ceiling of everything that multiplies matrices."""
        torch = self.torch
        try:
            torch.backends.cuda.preferred_blas_library("cublaslt")
            self.products_by = "cuBLASLt"
        except Exception as error:  # an older PyTorch, or one without a GPU
            print(f"products by {self.products_by}: {type(error).__name__}: {str(error)[:80]}")
        size = 64 if self.tiny else 8192

        def square():
            a, b = self.random(size, size), self.random(size, size)
            return 2 * size**3 / 1e12, self.seconds(lambda _: a @ b, 4), self.products_by
        self.report(f"peer.matmul.tflops.{size}", "TFLOP/s", square)

    def products(self):
        torch = self.torch
        for name, (rows, columns) in PRODUCTS.items():
            if self.tiny:
                rows, columns = rows // 64, columns // 64
            count = 1 if self.tiny else int(300e6 // (2 * rows * columns)) + 1
            weights = [self.random(rows, columns) for _ in range(count)]
            for tokens in (1, 8) if self.tiny else (1, 8, 32, 128, 2048):
                def product():
                    x = self.random(tokens, columns)
                    linear = torch.nn.functional.linear
                    return None, self.seconds(lambda i: linear(x, weights[i % count]), max(count, 4)), self.products_by
                self.report(f"peer.matmul.BF16.{name}.tokens_{tokens}", "us", product)
            del weights

    def best_attention(self, causal, q, k, v):
        """Returns (median and best seconds of the fastest backend that serves these tensors, all backends' times)."""
        torch = self.torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention
        wide_k, wide_v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        times, reasons = {}, []

        def attempt(name, work):
            try:
                times[name] = self.seconds(work)
            except Exception as error:
                self.synchronize()
                reasons.append(f"{name}: {str(error).strip().splitlines()[0][:60] if str(error).strip() else 'failed'}")

        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
            if backend == SDPBackend.MATH and not self.tiny and times:
                continue  # it writes all weights of attention: minutes and tens of GiB
            with sdpa_kernel([backend]):
                attempt(f"{backend.name.lower()}, grouped",
                        lambda _: scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True))
                if f"{backend.name.lower()}, grouped" not in times:
                    attempt(f"{backend.name.lower()}, repeated heads",
                            lambda _: scaled_dot_product_attention(q, wide_k, wide_v, is_causal=causal))
        if not times:
            raise RuntimeError("; ".join(reasons))
        name = min(times, key=times.get)
        others = ", ".join(f"{other} {1e6 * seconds[0]:.1f} us" for other, seconds in sorted(times.items(), key=lambda item: item[1]))
        return times[name], others

    def flex_attention(self, causal, q, k, v):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        compiled = self.torch.compile(flex_attention)
        mask = None
        if causal:
            mask = create_block_mask(lambda b, h, row, column: row >= column, None, None, q.shape[2], k.shape[2], device=self.device)
        return self.seconds(lambda _: compiled(q, k, v, block_mask=mask, enable_gqa=True)), "FlexAttention (Triton)"

    def decode(self, name, sequences, context, attend):
        def one_token():
            q = self.random(sequences, HEADS, 1, HEAD_DIM)
            k, v = (self.random(sequences, KV_HEADS, context, HEAD_DIM) for _ in range(2))
            times, by = attend(False, q, k, v)
            return None if unit == "us" else 4 * sequences * context * KV_HEADS * HEAD_DIM / 1e6, times, by
        unit = "us" if (sequences, context) == (1, 1024) else "MB/s"
        self.report(f"{name}.{sequences}x{context}", unit, one_token)

    def prefill(self, name, context, attend):
        def causal():
            q = self.random(1, HEADS, context, HEAD_DIM)
            k, v = (self.random(1, KV_HEADS, context, HEAD_DIM) for _ in range(2))
            times, by = attend(True, q, k, v)
            return 4 * HEADS * HEAD_DIM * context * (context + 1) / 2 / 1e12, times, by
        self.report(f"{name}.{context}", "TFLOP/s", causal)

    def attention(self):
        for sequences, context in [(2, 96)] if self.tiny else DECODES:
            self.decode("peer.attention", sequences, context, self.best_attention)
        for context in (64,) if self.tiny else (2048, 8192):
            self.prefill("peer.prefill", context, self.best_attention)

    def flex(self):
        if self.device.startswith("cuda"):
            self.prefill("peer.flex.prefill", 8192, self.flex_attention)
            self.decode("peer.flex.attention", 8, 8192, self.flex_attention)


def figures_of(path):
    """Returns the figures of the JSON lines in cuda_bench's output, by name. A section that failed may have left half a line."""
    figures = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if line.startswith("{")]
    except OSError as error:
        print(f"no figures of cuda_bench: {error}")
        return figures
    for line in lines:
        try:
            figures |= {figure["name"]: figure for figure in json.loads(line)["figures"]}
        except (ValueError, KeyError, TypeError) as error:
            print(f"a line of cuda_bench's figures is damaged: {type(error).__name__}")
    return figures


def add_ours(figures, path):
    """Adds to each peer's figure the figure of cuda_bench with the same name and unit, and prints both. Adds the shares of the peak."""
    ours = figures_of(path)
    for figure in figures:
        name = figure["name"].removeprefix("peer.").removeprefix("flex.")
        mine = ours.get(name) or ours.get(f"{name}.blocks_of_64")
        if mine is None or mine["value"] is None or figure["value"] is None or mine["unit"] != figure["unit"]:
            continue
        is_time = figure["unit"] == "us"
        figure["ours"] = mine["value"]
        figure["to_peer"] = figure["value"] / mine["value"] if is_time else mine["value"] / figure["value"]
        print(f"{mine['name']:44} {mine['value']:12.2f} {figure['unit']:9} {figure['to_peer']:6.2f} times as fast as the peer")


    peak = next((figure["value"] for figure in figures if figure["name"].startswith("peer.matmul.tflops.")), None)
    for name, mine in ours.items():
        if peak and mine["value"] is not None and name.startswith(("chunk.", "prefill.")):
            share = mine["value"] / peak
            figures.append({"name": f"share_of_peak.{name}", "value": mine["value"], "unit": mine["unit"], "limit": peak, "ratio": share})
            print(f"{name:44} {mine['value']:12.2f} {mine['unit']:9} {share:6.2f} of the rate of the square product")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as a rehearsal")
    parser.add_argument("--seconds", type=float, default=80, help="ends five seconds after this time, counted from the process's start")
    parser.add_argument("--ours", help="output of cuda_bench, for the comparison")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"not run: no PyTorch on this machine ({error})")
        sys.exit(77)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("not run: PyTorch finds no GPU")
        sys.exit(77)
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else options.device
    print(f"PyTorch {torch.__version__} on {name}")
    peers = Peers(torch, options.device, options.tiny, options.seconds)
    finished = threading.Lock()

    def finish():
        """Prints the JSON line and ends the process, which a hanging backend could keep alive."""
        if not finished.acquire(blocking=False):
            return
        figures = list(peers.figures)
        if options.ours:
            try:
                add_ours(figures, options.ours)
            except Exception as error:  # the peers' figures are worth more than the comparison
                print(f"no comparison with cuda_bench: {type(error).__name__}: {error}")
        print(json.dumps({"bench": "gpu_peers", "seed": SEED, "conditions": [f"PyTorch {torch.__version__} on {name}"],
                          "figures": figures}), flush=True)
        os._exit(0)

    watchdog = threading.Timer(START + options.seconds + 5 - time.monotonic(), finish)  # a figure may take longer than expected
    watchdog.daemon = True
    watchdog.start()
    with torch.inference_mode():
        for step in (peers.peak, peers.bandwidths, peers.attention, peers.products, peers.flex):
            try:
                step()
            except Exception as error:
                print(f"{step.__name__} failed: {type(error).__name__}: {str(error)[:120]}", flush=True)
    finish()
    threading.Event().wait()  # the watchdog is printing


if __name__ == "__main__":
    main()
