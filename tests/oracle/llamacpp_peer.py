"""Runs llama.cpp as a peer: the library inside PyPI's xllamacpp wheel, through its C interface.

The interface takes token ids and returns logits, so both engines get exactly the same input. Both
use float16 KV, their default. Every prompt is decoded alone, from an empty cache.
"""

import ctypes
import importlib.metadata

import numpy as np

BATCH = 512
KV_TYPES = {"f16": 1, "q8_0": 8}  # numbers of ggml_type


class Blob(ctypes.Structure):
    """Opaque parameter struct, passed by value. Only its first numbers are set.

    The System V ABI passes it on the stack as the last argument, so extra space behind it is harmless.
    """
    _fields_ = [("words", ctypes.c_uint32 * 256)]


class Batch(ctypes.Structure):
    """The struct llama_batch."""
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)),
                ("embd", ctypes.c_void_p), ("pos", ctypes.POINTER(ctypes.c_int32)),
                ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
                ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
                ("logits", ctypes.POINTER(ctypes.c_int8))]


def library():
    """Returns the wheel's version and the library."""
    from xllamacpp import xllamacpp
    return f"xllamacpp {importlib.metadata.version('xllamacpp')}", ctypes.CDLL(xllamacpp.__file__)


def about():
    """Returns the wheel's version and the instruction sets that it was built with."""
    version, lib = library()
    names = ("avx2", "avx_vnni", "avx512", "avx512_vnni", "amx_int8")
    return {"version": version,
            "instruction_sets": [name for name in names if getattr(lib, f"ggml_cpu_has_{name}")()]}


def find_attention_parameters(params):
    """Finds flash_attn_type and type_k in llama_context_params; type_v follows type_k. Versions place them differently.

    The default values around them identify both: four enums of -1, the last of which is flash_attn_type; two floats of 0; four
    floats of -1; and behind other fields, two types f16.
    """
    words, unset, minus_one = list(params.words), 2**32 - 1, 0xBF800000
    for at in range(len(words) - 24):
        if words[at:at + 10] != [unset] * 4 + [0] * 2 + [minus_one] * 4:
            continue
        for types in range(at + 10, at + 24):
            if words[types:types + 2] == [KV_TYPES["f16"]] * 2:
                return at + 3, types
    raise RuntimeError("llama.cpp's context parameters have another layout in this version")


class LlamaCpp:
    def __init__(self, model_path, context_length, threads, sequences=1, flash_attention=None, keys="f16", values="f16"):
        """`context_length` is that of all sequences together. `flash_attention` None: the library decides."""
        self.version, lib = library()
        self.lib = lib
        self._declare()
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, user: None)
        lib.llama_log_set(self._quiet, None)
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(
            str(model_path).encode(), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp cannot load {model_path}")
        params = lib.llama_context_default_params()
        params.words[0:4] = [context_length, BATCH, BATCH, sequences]  # n_ctx, n_batch, n_ubatch, n_seq_max
        if flash_attention is not None or keys != "f16" or values != "f16":
            flash_at, types_at = find_attention_parameters(params)
            params.words[flash_at] = -1 % 2**32 if flash_attention is None else int(flash_attention)
            params.words[types_at:types_at + 2] = [KV_TYPES[keys], KV_TYPES[values]]
        self.context = lib.llama_init_from_model(self.model, params)
        if not self.context or lib.llama_n_batch(self.context) != BATCH or lib.llama_n_ctx(
                self.context) < context_length or lib.llama_n_seq_max(self.context) != sequences:
            raise RuntimeError("llama.cpp refuses its context parameters, or they have another layout in this version")
        lib.llama_set_n_threads(self.context, threads, threads)
        self.vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(BATCH, 0, 1)

    def _declare(self):
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        signatures = {
            "llama_log_set": (None, [pointer, pointer]),
            "llama_backend_init": (None, []),
            "llama_model_default_params": (Blob, []),
            "llama_context_default_params": (Blob, []),
            "llama_model_load_from_file": (pointer, [ctypes.c_char_p, Blob]),
            "llama_init_from_model": (pointer, [pointer, Blob]),
            "llama_n_ctx": (ctypes.c_uint32, [pointer]),
            "llama_n_batch": (ctypes.c_uint32, [pointer]),
            "llama_n_seq_max": (ctypes.c_uint32, [pointer]),
            "llama_synchronize": (None, [pointer]),
            "llama_set_n_threads": (None, [pointer, number, number]),
            "llama_model_get_vocab": (pointer, [pointer]),
            "llama_vocab_n_tokens": (number, [pointer]),
            "llama_batch_init": (Batch, [number, number, number]),
            "llama_get_memory": (pointer, [pointer]),
            "llama_memory_clear": (None, [pointer, ctypes.c_bool]),
            "llama_decode": (number, [pointer, Batch]),
            "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [pointer, number]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments

    def _decode(self, tokens, begin, wanted):
        """Decodes tokens from position `begin`. Returns logits [wanted, vocabulary] of the last `wanted` tokens."""
        count, batch = len(tokens), self.batch
        batch.n_tokens = count
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, begin + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i >= count - wanted
        status = self.lib.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        return np.array([np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i),
                                               (self.vocabulary,))
                         for i in range(count - wanted, count)])

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def logits(self, tokens):
        """Feeds tokens from an empty cache; returns float32 logits [len(tokens), vocabulary]."""
        self.clear()
        parts = [self._decode(tokens[begin:begin + BATCH], begin, len(tokens[begin:begin + BATCH]))
                 for begin in range(0, len(tokens), BATCH)]
        return np.concatenate(parts)

    def nll(self, tokens):
        """Mean negative log-likelihood of tokens[1:], in nats."""
        self.clear()
        total = 0.0
        for begin in range(0, len(tokens) - 1, BATCH):
            inputs = tokens[begin:min(begin + BATCH, len(tokens) - 1)]
            logits = self._decode(inputs, begin, len(inputs)).astype(np.float64)
            targets = np.asarray(tokens[begin + 1:begin + 1 + len(inputs)])
            peak = logits.max(axis=-1)
            log_sum = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=-1))
            total += float((log_sum - logits[np.arange(len(inputs)), targets]).sum())
        return total / (len(tokens) - 1)

    def greedy(self, prompt, count):
        self.clear()
        for begin in range(0, len(prompt), BATCH):
            chunk = prompt[begin:begin + BATCH]
            logits = self._decode(chunk, begin, 1)
        tokens = [int(logits[0].argmax())]
        while len(tokens) < count:
            position = len(prompt) + len(tokens) - 1
            tokens.append(int(self._decode(tokens[-1:], position, 1)[0].argmax()))
        return tokens
