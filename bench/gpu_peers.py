#!/usr/bin/env python3
"""Measures what others reach on this GPU, on the shapes of cuda_bench: PyTorch's copies, its matrix products (cuBLAS), and its
backends of attention (FlashAttention, cuDNN, memory-efficient, and FlexAttention, which Triton compiles).

    gpu_peers.py [--device cuda] [--tiny] [--seconds N] [--ours FILE]

For scripts/gpu_check.sh, on a machine that has PyTorch; Baton does not need it. Prints a table. The last line is one JSON object
with the figures; a figure that a backend cannot measure has the value null, and the reason. --tiny measures nothing of use: it
rehearses the program, also with --device cpu. --ours names the output of cuda_bench: each figure that it also has gets `ours` and
`to_peer`, which is above 1 where Baton is faster.

    peer.copy, peer.read             bytes/s inside the device: read and written; read only (a sum)
    peer.matmul.tflops.N             bf16 product of N×N×N
    peer.matmul.BF16.NAME.tokens_T   µs of a product of Llama 8B; several matrices take turns, so that no cache holds them
    peer.attention.SxC               bytes/s of keys and values of S sequences with C tokens and one query each (32 heads over 8 of 128)
    peer.attention.1x1024            µs
    peer.prefill.C                   TFLOP/s of causal attention of one sequence of C tokens, same heads
"""

import argparse
import json
import statistics
import sys
import time

SEED = 16
HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
HIDDEN, INNER, VOCABULARY = 4096, 14336, 128256
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
        self.deadline = time.monotonic() + seconds
        self.figures = []
        torch.manual_seed(SEED)

    # ---- measuring ----

    def synchronize(self):
        if self.device.startswith("cuda"):
            self.torch.cuda.synchronize()

    def seconds(self, work, repeats=10):
        """Median seconds of one `work(i)` over five groups of repeats. On a GPU the repeats are one CUDA graph, as in cuda_bench."""
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
        for _ in range(1 if self.tiny else 5):
            start = time.perf_counter()
            run()
            self.synchronize()
            times.append((time.perf_counter() - start) / repeats)
        return statistics.median(times)

    def report(self, name, unit, measure):
        """Adds the figure `measure()`, or the reason why it was not measured. measure() returns (value, note)."""
        figure = {"name": name, "unit": unit, "limit": None, "ratio": None}
        try:
            if time.monotonic() > self.deadline:
                raise TimeoutError("no time left")
            figure["value"], note = measure()
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
        self.report("peer.copy", "MB/s", lambda: (8 * count / self.seconds(lambda _: target.copy_(source), 2) / 1e6, ""))
        self.report("peer.read", "MB/s", lambda: (4 * count / self.seconds(lambda _: self.torch.sum(source), 2) / 1e6, "sum"))

    def products(self):
        torch = self.torch
        size = 64 if self.tiny else 8192

        def square():
            a, b = self.random(size, size), self.random(size, size)
            return 2 * size**3 / self.seconds(lambda _: a @ b) / 1e12, "cuBLAS"
        self.report(f"peer.matmul.tflops.{size}", "TFLOP/s", square)
        for name, (rows, columns) in PRODUCTS.items():
            if self.tiny:
                rows, columns = rows // 64, columns // 64
            count = 1 if self.tiny else int(300e6 // (2 * rows * columns)) + 1
            weights = [self.random(rows, columns) for _ in range(count)]
            for tokens in (1, 8) if self.tiny else (1, 8, 32, 128, 2048):
                def product():
                    x = self.random(tokens, columns)
                    linear = torch.nn.functional.linear
                    return self.seconds(lambda i: linear(x, weights[i % count]), max(count, 4)) * 1e6, "cuBLAS"
                self.report(f"peer.matmul.BF16.{name}.tokens_{tokens}", "us", product)
            del weights

    def best_attention(self, causal, q, k, v):
        """Returns (seconds, backend) of the fastest backend of attention that serves these tensors."""
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
        if self.device.startswith("cuda"):
            def flex():
                from torch.nn.attention.flex_attention import create_block_mask, flex_attention
                compiled = torch.compile(flex_attention)
                mask = create_block_mask(lambda b, h, row, column: row >= column, None, None, q.shape[2], k.shape[2]) if causal else None
                return lambda _: compiled(q, k, v, block_mask=mask, enable_gqa=True)
            try:
                attempt("flex_attention (Triton)", flex())
            except Exception as error:
                reasons.append(f"flex_attention: {str(error).splitlines()[0][:60]}")
        if not times:
            raise RuntimeError("; ".join(reasons))
        name = min(times, key=times.get)
        others = ", ".join(f"{other} {1e6 * seconds:.1f} us" for other, seconds in sorted(times.items(), key=lambda item: item[1]))
        return times[name], others

    def attention(self):
        decode = [(2, 96)] if self.tiny else [(1, 1024), (8, 8192), (64, 1024), (1, 65536), (64, 8192)]
        for sequences, context in decode:
            def one_token():
                q = self.random(sequences, HEADS, 1, HEAD_DIM)
                k, v = (self.random(sequences, KV_HEADS, context, HEAD_DIM) for _ in range(2))
                seconds, by = self.best_attention(False, q, k, v)
                if (sequences, context) == (1, 1024):
                    return seconds * 1e6, by
                return 4 * sequences * context * KV_HEADS * HEAD_DIM / seconds / 1e6, by
            self.report(f"peer.attention.{sequences}x{context}", "us" if (sequences, context) == (1, 1024) else "MB/s", one_token)
        for context in (64,) if self.tiny else (2048, 8192):
            def prefill():
                q = self.random(1, HEADS, context, HEAD_DIM)
                k, v = (self.random(1, KV_HEADS, context, HEAD_DIM) for _ in range(2))
                seconds, by = self.best_attention(True, q, k, v)
                return 4 * HEADS * HEAD_DIM * context * (context + 1) / 2 / seconds / 1e12, by
            self.report(f"peer.prefill.{context}", "TFLOP/s", prefill)


def add_ours(figures, path):
    """Adds to each peer's figure the figure of cuda_bench with the same name and unit, and prints both."""
    with open(path, encoding="utf-8") as file:
        ours = {figure["name"]: figure for figure in json.loads(file.read().strip().splitlines()[-1])["figures"]}
    for figure in figures:
        name = figure["name"].removeprefix("peer.")
        mine = ours.get(name) or ours.get(f"{name}.blocks_of_64")
        if mine is None or mine["value"] is None or figure["value"] is None or mine["unit"] != figure["unit"]:
            continue
        is_time = figure["unit"] == "us"
        figure["ours"] = mine["value"]
        figure["to_peer"] = figure["value"] / mine["value"] if is_time else mine["value"] / figure["value"]
        print(f"{mine['name']:44} {mine['value']:12.2f} {figure['unit']:9} {figure['to_peer']:6.2f} times as fast as the peer")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small sizes, as a rehearsal")
    parser.add_argument("--seconds", type=float, default=80, help="starts no figure after this time")
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
    with torch.inference_mode():
        peers.bandwidths()
        peers.attention()
        peers.products()
    if options.ours:
        add_ours(peers.figures, options.ours)
    print(json.dumps({"bench": "gpu_peers", "seed": SEED, "conditions": [f"PyTorch {torch.__version__} on {name}"],
                      "figures": peers.figures}))


if __name__ == "__main__":
    main()
