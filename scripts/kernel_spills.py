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
    (r"baton_sample_draw", (68, 140), (0, 0)),
    (r"baton_paged_attention_b?f16_64", (508, 836), (556, 892)),
    (r"baton_paged_attention_f32_64", (516, 848), (564, 896)),
    (r"baton_paged_attention_fp8_64", (524, 840), (564, 876)),
    (r"baton_paged_attention_int8_64", (256, 476), (284, 588)),
    (r"baton_paged_attention_b?f16_128", (344, 624), (384, 608)),
    (r"baton_paged_attention_f32_128", (348, 644), (396, 608)),
    (r"baton_paged_attention_fp8_128", (396, 672), (408, 604)),
    (r"baton_paged_attention_int8_128", (156, 296), (148, 272)),
    (r"baton_paged_attention_b?f16_256", (298, 568), (318, 552)),
    (r"baton_paged_attention_f32_256", (306, 584), (326, 580)),
    (r"baton_paged_attention_fp8_256", (310, 588), (330, 608)),
    (r"baton_paged_attention_int8_256", (136, 244), (152, 264)),
    (r"baton_paged_wide_decode_b?f16_64", (236, 440), (200, 304)),
    (r"baton_paged_wide_decode_f32_64", (236, 440), (204, 316)),
    (r"baton_paged_wide_decode_fp8_64", (274, 508), (212, 324)),
    (r"baton_paged_wide_decode_int8_64", (84, 136), (0, 0)),
    (r"baton_paged_wide_decode_b?f16_128", (282, 492), (220, 400)),
    (r"baton_paged_wide_decode_f32_128", (286, 516), (250, 452)),
    (r"baton_paged_wide_decode_fp8_128", (286, 516), (228, 416)),
    (r"baton_paged_wide_decode_int8_128", (104, 176), (32, 56)),
    (r"baton_paged_wide_decode_int8_256", (132, 240), (128, 208)),
    (r"baton_paged_decode_b?f16_64", (20, 72), (0, 0)),
    (r"baton_paged_decode_f32_64", (16, 60), (4, 12)),
    (r"baton_paged_decode_fp8_64", (60, 104), (4, 12)),
    (r"baton_paged_decode_b?f16_128", (60, 104), (40, 32)),
    (r"baton_paged_decode_(f32|fp8)_128", (100, 160), (40, 32)),
    (r"baton_t1_chunks_b?f16_256", (20, 28), (8, 12)),
    (r"baton_t1_chunks_(fp8|int8)_256", (20, 28), (24, 28)),
    # Once for each part of a unit, outside of the loop over tiles.
    (r"baton_t1_chunks_(int8|fp8)_128", (0, 0), (8, 0)),
    (r"baton_t1_warpgroups_b?f16_128", (0, 0), (12, 20)),
    # Functions that attention calls a few times in each block.
    (r"_ZN5baton2t1\d+UnitStateILi128E\w+MergeBlocks\w+", (0, 0), (44, 128)),
    (r"_ZN5baton2t1\d+UnitStateILi256E\w+MergeBlocks\w+", (8, 8), (0, 0)),
    (r"_ZN5baton9attention\d+WorkOf\w+", (32, 8), (32, 8)),
    (r"_ZN5baton2t1\d+NextUnit\w+", (40, 88), (60, 132)),
    (r"_ZN5baton2t1\d+(HullOf|HullOfPart|BeginWork|TokenOfItem)\w+", (4, 0), (16, 28)),
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
