#!/usr/bin/env python3
"""Checks that kernels spill no more registers than they are known to, in what ptxas -v prints.

    kernel_spills.py SOURCE.cu LOG     LOG: output of nvcc -Xptxas=-v

A function without a row in LIMITS must not spill. Prints a line for each function that spills. The exit code is 1 if one of them
spills more than its limit. Standard library only.
"""

import pathlib
import re
import sys

# Functions, and the most bytes of spill stores and of spill loads that one of them may have: on sm_80, and on sm_90 and sm_90a. The
# first row that fits counts. These are the numbers of nvcc 13.0. A change that lowers one lowers its row.
LIMITS = (
    (r"baton_kv_write", (4, 8), (4, 8)),
    (r"baton_sample_draw", (68, 140), (0, 0)),
    (r"baton_paged_attention_b?f16_64", (520, 820), (568, 868)),
    (r"baton_paged_attention_f32_64", (528, 832), (576, 872)),
    (r"baton_paged_attention_fp8_64", (540, 828), (580, 856)),
    (r"baton_paged_attention_int8_64", (296, 452), (328, 576)),
    (r"baton_paged_attention_b?f16_128", (356, 608), (396, 596)),
    (r"baton_paged_attention_f32_128", (360, 628), (408, 596)),
    (r"baton_paged_attention_fp8_128", (412, 660), (424, 596)),
    (r"baton_paged_attention_int8_128", (168, 296), (152, 252)),
    (r"baton_paged_attention_b?f16_256", (334, 576), (330, 544)),
    (r"baton_paged_attention_f32_256", (338, 572), (342, 584)),
    (r"baton_paged_attention_fp8_256", (342, 592), (350, 596)),
    (r"baton_paged_attention_int8_256", (128, 256), (152, 248)),
    (r"baton_paged_wide_decode_b?f16_64", (280, 420), (244, 296)),
    (r"baton_paged_wide_decode_f32_64", (280, 420), (248, 308)),
    (r"baton_paged_wide_decode_fp8_64", (318, 488), (256, 316)),
    (r"baton_paged_wide_decode_int8_64", (92, 156), (0, 0)),
    (r"baton_paged_wide_decode_b?f16_128", (326, 472), (264, 392)),
    (r"baton_paged_wide_decode_f32_128", (330, 496), (294, 444)),
    (r"baton_paged_wide_decode_fp8_128", (330, 496), (272, 408)),
    (r"baton_paged_wide_decode_int8_128", (92, 156), (72, 84)),
    (r"baton_paged_wide_decode_int8_256", (124, 248), (112, 208)),
    (r"baton_paged_decode_b?f16_64", (56, 84), (0, 0)),
    (r"baton_paged_decode_f32_64", (24, 84), (4, 12)),
    (r"baton_paged_decode_fp8_64", (76, 128), (4, 12)),
    (r"baton_paged_decode_b?f16_128", (96, 144), (40, 28)),
    (r"baton_paged_decode_(f32|fp8)_128", (100, 156), (40, 28)),
    (r"baton_t1_chunks_b?f16_256", (8, 12), (8, 12)),
    (r"baton_t1_chunks_(fp8|int8)_256", (16, 20), (20, 24)),
    # Functions that t1's attention calls a few times in each block.
    (r"_ZN5baton2t1\d+BeginWork\w+", (8, 12), (4, 8)),
    (r"_ZN5baton2t1\d+HullOf\w+", (0, 0), (16, 8)),
    (r"_ZN5baton2t1\d+UnitStateILi128E\w+MergeBlocks\w+", (0, 0), (28, 72)),
    (r"_ZN5baton2t1\d+UnitStateILi256E\w+MergeBlocks\w+", (96, 180), (96, 180)),
)
ENTRY = re.compile(r"Compiling entry function '\w+' for '(\w+)'")
FUNCTION = re.compile(r"Function properties for (\w+)")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def spills(log):
    """Yields (function, processor, bytes of stores, bytes of loads) for each function in the log that spills. Pure."""
    processor = function = ""
    for line in log.splitlines():
        if entry := ENTRY.search(line):
            processor = entry[1]
        elif named := FUNCTION.search(line):
            function = named[1]
        elif (found := SPILLS.search(line)) and (found[1], found[2]) != ("0", "0"):
            yield function, processor, int(found[1]), int(found[2])


def limit_of(function, processor, limits=LIMITS):
    """Returns (bytes of stores, bytes of loads). Pure."""
    for pattern, on_sm_80, on_sm_90 in limits:
        if re.fullmatch(pattern, function):
            return on_sm_80 if processor == "sm_80" else on_sm_90
    return 0, 0


def judge(log, limits=LIMITS):
    """Yields (message, whether it is an error) for each function in the log that spills. Pure."""
    for function, processor, stores, loads in spills(log):
        most = limit_of(function, processor, limits)
        yield (f"{function} for {processor} spills: {stores} bytes of stores and {loads} of loads; limit {most[0]} and {most[1]}",
               stores > most[0] or loads > most[1])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found = list(judge(pathlib.Path(sys.argv[2]).read_text()))
    for message, is_error in found:
        print(f"{sys.argv[1]}: {'error: ' if is_error else ''}{message}")
    return 1 if any(is_error for _, is_error in found) else 0


if __name__ == "__main__":
    sys.exit(main())
