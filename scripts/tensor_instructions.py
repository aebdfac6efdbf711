#!/usr/bin/env python3
"""Checks that named kernels have the tensor instructions that they are meant to have, in nvcc's machine code.

    tensor_instructions.py SOURCE.cu CUBIN…     CUBIN: one for each processor, as nvcc --keep names them: NAME.compute_80.cubin

The names of the kernels come from the source, so a kernel that is missing from a cubin is an error too. Prints a line for each
error; then the exit code is 1. Standard library only: it needs no cuobjdump. An instruction has 16 bytes, and its lowest twelve
bits are its operation. The numbers below were compared with cuobjdump 13.
"""

import pathlib
import re
import struct
import sys

OPERATIONS = {
    "IMMA": {0x237},  # mma.sync on int8
    "HMMA": {0x23C},  # mma.sync on bf16 and f16
    "HGMMA": {0x9F0, 0xDF0},  # wgmma on bf16 and f16; a is in shared memory, or in registers
    "LDSM": {0x83B},  # ldmatrix
    "LDGSTS": {0xFAE},  # cp.async
    "UBLKCP": {0x3BA},  # cp.async.bulk
    "UTMALDG": {0x5B4},  # cp.async.bulk.tensor: tile copies
}
# Kernels, a processor, and operations. Each of these kernels has all of them.
RULES = (
    (r"baton_matmul_few_\w+", "sm_80", {"IMMA", "LDGSTS"}),
    (r"baton_matmul_few_\w+", "sm_90a", {"IMMA", "LDGSTS"}),
    (r"baton_(matmul_many|gated_matmul)_\w+", "sm_80", {"IMMA", "LDGSTS"}),
    (r"baton_(matmul_many|gated_matmul)_\w+", "sm_90a", {"IMMA", "LDGSTS"}),
    (r"baton_paged_\w+", "sm_80", {"LDGSTS"}),
    (r"baton_paged_\w+", "sm_90a", {"LDGSTS"}),
    (r"baton_t1_(decode|chunks)_\w+", "sm_80", {"HMMA", "LDSM", "LDGSTS"}),
    (r"baton_t1_(decode|chunks)_\w+", "sm_90a", {"HMMA", "LDSM", "LDGSTS"}),
    (r"baton_t1_warpgroups_\w+", "sm_90a", {"HGMMA", "UTMALDG"}),
    (r"baton_(gated_)?tensor_matmul_sm80_\w+", "sm_80", {"HMMA", "LDSM", "LDGSTS"}),
    (r"baton_(gated_)?tensor_matmul_few_\w+", "sm_90a", {"HMMA", "LDSM", "UBLKCP"}),
    (r"baton_(gated_)?tensor_matmul_\d+x\d+_\w+", "sm_90a", {"HGMMA", "UBLKCP"}),
)
KERNEL = re.compile(r"__global__[^;{]*?\b(baton_\w+)\s*\(")
SECTION = struct.Struct("<IIQQQQIIQQ")  # of a 64-bit ELF file


def machine_code(cubin):
    """Returns {kernel: bytes}. Pure."""
    sections_at, = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [SECTION.unpack_from(cubin, sections_at + i * SECTION.size) for i in range(count)]
    code = {}
    for name_at, _, _, _, offset, size, *_ in sections:
        begin = sections[names][4] + name_at
        name = cubin[begin:cubin.index(b"\0", begin)].decode()
        if name.startswith(".text."):
            code[name.removeprefix(".text.")] = cubin[offset:offset + size]
    return code


def processor_of(cubin):
    """Returns sm_90a for a path that ends in .compute_90a.cubin or .sm_90a.cubin. Pure."""
    return cubin.suffixes[-2].replace(".compute_", "sm_").removeprefix(".")


def has(code, operation):
    return any(word & 0xFFF in OPERATIONS[operation] for word, _ in struct.iter_unpack("<QQ", code))


def errors(source, code_of):
    """Yields messages. source: text of a .cu file; code_of: {processor: {kernel: bytes}}. Pure."""
    for kernel in KERNEL.findall(source):
        for pattern, processor, operations in RULES:
            if not re.fullmatch(pattern, kernel):
                continue
            code = code_of.get(processor, {}).get(kernel)
            if code is None:
                yield f"{kernel}: no machine code for {processor}"
            else:
                yield from (f"{kernel}: no {operation} for {processor}" for operation in sorted(operations)
                            if not has(code, operation))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    source, cubins = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    code_of = {processor_of(cubin): machine_code(cubin.read_bytes()) for cubin in cubins}
    found = list(errors(source.read_text(), code_of))
    for message in found:
        print(f"{source}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
