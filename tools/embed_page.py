#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the page of program/page as C++ string literals with commas between them.

  tools/embed_page.py page.html page.css SCRIPT...

The style and the scripts, in the order given, replace @CSS@ and @SCRIPT@ in the
HTML. The line @RECORDS@ is a literal of its own, for page.cc to replace.
"""

import sys

MOST = 8000  # bytes of a literal: compilers have limits


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def main():
    html, css, *scripts = map(read, sys.argv[1:])
    text = html.replace("@CSS@", css).replace("@SCRIPT@", "".join(scripts))
    literals = [""]
    for line in text.splitlines(keepends=True):
        alone = "@RECORDS@\n" in (line, literals[-1])
        if alone or len((literals[-1] + line).encode()) > MOST:
            literals.append("")
        literals[-1] += line
    for literal in literals:
        print(f'R"page({literal})page",')


if __name__ == "__main__":
    main()
