#!/usr/bin/env python3
"""Joins several test files into one C++ file, so that their headers are compiled only once (BATON_UNITY).

    batch_tests.py OUT SOURCE…

A test file has its tests and helpers in one anonymous namespace. Two files may use the same names for different things, so each
anonymous namespace gets a name made from the file's name. Standard library only.
"""

import pathlib
import re
import sys

ANONYMOUS = re.compile(r"^namespace \{$", re.M)


def batch(sources):
    """Returns the joined text of `sources`, pairs of path and text. Raises ValueError for a file that cannot be in a batch."""
    parts = []
    for path, text in sources:
        name = "in_" + re.sub(r"\W", "_", "/".join(pathlib.PurePath(path).with_suffix("").parts[-2:]))
        renamed, count = ANONYMOUS.subn(f"namespace {name} {{", text)
        if count != 1 or not text.endswith("\n}  // namespace\n}  // namespace baton\n"):
            raise ValueError(f"{path}: a test file has one anonymous namespace, in namespace baton, that ends with the file")
        parts.append(f'#line 1 "{path}"\n{renamed}')
    return "".join(parts)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, *paths = sys.argv[1:]
    try:
        text = batch((path, pathlib.Path(path).read_text(encoding="utf-8")) for path in paths)
    except ValueError as error:
        sys.exit(str(error))
    pathlib.Path(out).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
