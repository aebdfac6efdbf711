#!/usr/bin/env python3
"""Checks that kernels wait for the kernels ahead of them before they touch device memory (kernels/cuda/kernel_order.cuh), in nvcc's
machine code for sm_90a.

    early_accesses.py SOURCE.cu CUBIN…     CUBIN: as for tensor_instructions.py

Follows every path from the begin of each kernel to the wait (ACQBULK, griddepcontrol.wait). On the way, an access to device memory is
an error, and so are the end of the thread, a call, and a branch to a computed address. So every thread waits, and nvcc moved no access
across the wait. Prints a line for each error; then the exit code is 1. Standard library only. The numbers below were compared with
nvdisasm 13.
"""

import pathlib
import re
import struct
import sys

import tensor_instructions

WAIT, EXIT, BRANCH = 0x82E, 0x94D, 0x947
ACCESSES = {
    0x980: "LD", 0x981: "LDG", 0x985: "ST", 0x986: "STG",
    0x38B: "ATOM", 0x98A: "ATOM", 0x9A2: "ATOM", 0x3A9: "ATOMG", 0x9A8: "ATOMG", 0x98E: "REDG", 0x9A6: "REDG",
    0xFAE: "LDGSTS",  # cp.async
    0x3BA: "UBLKCP", 0x3BB: "UBLKRED", 0x5B4: "UTMALDG", 0x3B5: "UTMASTG",  # cp.async.bulk
}
LEAVES = {0x943: "CALL", 0x944: "CALL", 0x949: "BRX", 0x94A: "JMP", 0x950: "RET"}
# Kernels that may read constants before the wait, and by which instructions. UBLKPF, the prefetch, is no access.
EARLY_READS = (
    (r"baton_(gated_)?tensor_matmul_(few|\d+x\d+)_\w+", {"UBLKCP"}),  # LoadConstantBulk
)
ALWAYS = 7  # the predicate that is always true


def target_of(low, high, at):
    """The byte to which a branch at byte `at` goes. Pure."""
    words = low >> 32 | (high & 0x3FFFF) << 32
    words = words - (1 << 50) if words >> 49 else words
    return at + 16 + ((words >> 2 << 8 | low >> 16 & 0xFF) << 2)


def problems(code, allowed=frozenset()):
    """Yields messages about machine code. `allowed`: accesses that may come before the wait. Pure."""
    instructions = list(struct.iter_unpack("<QQ", code))
    found, seen, paths = set(), set(), [0]
    while paths:
        at = paths.pop()
        if at in seen:
            continue
        seen.add(at)
        if at % 16 != 0 or not 0 <= at // 16 < len(instructions):
            found.add(f"a branch to {at:#x}, where there is no code")
            continue
        low, high = instructions[at // 16]
        operation = low & 0xFFF
        always = low >> 12 & 0xF == ALWAYS
        if operation == WAIT and always:
            continue
        if operation in ACCESSES and ACCESSES[operation] not in allowed:
            found.add(f"{ACCESSES[operation]} at {at:#x} before the wait for earlier kernels")
        elif operation in LEAVES:
            found.add(f"{LEAVES[operation]} at {at:#x} before the wait for earlier kernels")
        elif operation == EXIT:
            found.add(f"a thread can end at {at:#x} without the wait for earlier kernels")
        if operation == BRANCH:
            paths.append(target_of(low, high, at))
            always = always and high >> 23 & 0xF == ALWAYS  # a branch may have a second predicate
        if operation not in (BRANCH, EXIT) or not always:
            paths.append(at + 16)
    yield from sorted(found)


def errors(source, code_of):
    """Yields messages. source: text of a .cu file; code_of: {kernel: bytes} for sm_90a. Pure."""
    for kernel in tensor_instructions.KERNEL.findall(source):
        if kernel not in code_of:
            yield f"{kernel}: no machine code for sm_90a"
            continue
        allowed = [reads for pattern, reads in EARLY_READS if re.fullmatch(pattern, kernel)]
        yield from (f"{kernel}: {problem}" for problem in problems(code_of[kernel], frozenset().union(*allowed)))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    source, cubins = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    code_of = {}
    for cubin in cubins:
        if tensor_instructions.processor_of(cubin) == "sm_90a":
            code_of.update(tensor_instructions.machine_code(cubin.read_bytes()))
    # A stand-in for nvcc makes no machine code. tensor_instructions.py misses it.
    found = list(errors(source.read_text(), code_of)) if cubins else []
    for message in found:
        print(f"{source}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
