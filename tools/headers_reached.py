#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the headers of this library that a header includes, directly or not.

  tools/headers_reached.py [HEADER]   (default: dtensor.h)

The last line is their count.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def path_of(include):
    """The path of the header with that name, or None if it is not ours."""
    for name in (include, include.removeprefix("dtensor/")):
        if (ROOT / name).is_file():
            return name
    return None


def reached(header):
    found, todo = [], [header]
    while todo:
        name = todo.pop()
        if name in found:
            continue
        found.append(name)
        for include in re.findall(r'^\s*#\s*include "([^"]+)"',
                                  (ROOT / name).read_text(), re.M):
            if path := path_of(include):
                todo.append(path)
    return sorted(found)


def main():
    arguments = sys.argv[1:] or ["dtensor.h"]
    if len(arguments) > 1 or not (ROOT / arguments[0]).is_file():
        print(__doc__, end="")
        return 0 if arguments[0] in ("-h", "--help") else 2
    headers = reached(arguments[0])
    print(*headers, len(headers), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
