#!/usr/bin/env python3
"""Writes the header that tells the emulator the launch bounds of kernels.

    launch_bounds.py HEADER KERNEL_FILE …

C++ has no place for __launch_bounds__, which stands inside of a declaration. For each kernel with it, the header defines
BATON_LAUNCH_BOUND_<kernel> as the expression for the most threads of a block. BATON_KERNEL uses the name, so a registered
kernel without launch bounds does not compile. The build runs this script. Standard library only.
"""

import pathlib
import re
import sys

# The first argument of __launch_bounds__ ends at the first comma or at the closing parenthesis; one level of parentheses may be inside.
KERNEL = re.compile(r"__launch_bounds__\(((?:[^(),]|\([^()]*\))+)(?:,(?:[^()]|\([^()]*\))*)?\)\s*(\w+)\s*\(")


def bounds(text):
    """Returns pairs of kernel and expression. Pure."""
    return [(name, " ".join(threads.split())) for threads, name in KERNEL.findall(text)]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    header, files = pathlib.Path(sys.argv[1]), sys.argv[2:]
    lines = ["// Written by tests/gpu_emulator/launch_bounds.py.", "#pragma once"]
    for file in sorted(files):
        for name, threads in bounds(pathlib.Path(file).read_text()):
            lines.append(f"#define BATON_LAUNCH_BOUND_{name} ({threads})")
    text = "\n".join(lines) + "\n"
    # An unchanged header keeps its time, so that the kernels are not compiled again.
    if not header.exists() or header.read_text() != text:
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text)


if __name__ == "__main__":
    main()
