#!/usr/bin/env python3
"""Lists the public functions that no test calls by name; exits 1 if any.

  tools/untested_functions.py [ROOT]

Public are the free functions of the headers that dtensor/dtensor.h includes
(and nn/nn.h, which is a list of headers too), and those that the lists in
dtensor/ops/functions/ declare. A call is NAME( in a test, or an entry of
tests/conformance/calls*.cc, which the checked-in cases run.
"""

import pathlib
import re
import sys

LISTS = {"dtensor/dtensor.h", "dtensor/nn/nn.h"}
NOT_FUNCTIONS = {"static_assert", "alignas", "decltype", "requires", "defined"}
# For the list of operators, or for operators that call operators.
INTERNAL = re.compile(
    r"(_ops?|^contract|^begin_move|^edge_to|^record_event|^spend_budget|"
    r"^alias|^redistribute)$")


def public_headers(root):
    headers, todo = [], ["dtensor/dtensor.h"]
    while todo:
        name = todo.pop()
        for include in re.findall(r'#include "(dtensor/[^"]+)"',
                                  (root / name).read_text()):
            if include in LISTS:
                todo.append(include)
            elif include not in headers:
                headers.append(include)
    return headers


def top_level(text):
    """The statements outside of all braces but those of namespaces."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    stack, statement, out = [], "", []
    for c in text:
        hidden = any(kind != "namespace" for kind in stack)
        if c == "{":
            words = statement.split()
            named = len(words) == 2 and words[0] == "namespace"
            plain = named and words[1] in ("dtensor", "dtensor::nn")
            if not hidden and not named:
                # A default argument {} belongs to the statement.
                if statement.count("(") > statement.count(")"):
                    stack.append("argument")
                    continue
                out.append(statement)
            stack.append("namespace" if plain else "body")
            if not hidden and stack[-1] == "namespace":
                statement = ""
        elif c == "}":
            kind = stack.pop()
            if kind == "body" and not any(k != "namespace" for k in stack):
                statement = ""
        elif hidden:
            continue
        elif c == ";":
            out.append(statement)
            statement = ""
        else:
            statement += c
    return out


def functions(root):
    names = {}
    for header in public_headers(root):
        for statement in top_level((root / header).read_text()):
            found = re.match(
                r"\s*(?:template\s*<[^<>]*>\s*)?(?:[\w:<>,&*\s]+?[\s&*>])"
                r"(\w+)\s*\(", statement)
            if not found or re.match(
                    r"\s*(?:using|struct|class|enum|friend|extern)\b",
                    statement):
                continue
            name = found.group(1)
            if name in NOT_FUNCTIONS or name.isupper() or "operator" in (
                    statement.split("(")[0]):
                continue
            if not INTERNAL.search(name):
                names.setdefault(name, header)
    for header in sorted((root / "dtensor/ops/functions").glob("*.h")):
        for name in re.findall(r"^\s*[FP]\(\w+, (\w+)\)", header.read_text(),
                               re.M):
            names.setdefault(name, str(header.relative_to(root)))
    return names


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    tests, calls = "", ""
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        text = re.sub(r"//[^\n]*", "", path.read_text())
        if path.parent.name == "conformance":
            if path.name.startswith("calls"):
                calls += text
        else:
            tests += text
    missing = []
    names = functions(root)
    for name, header in sorted(names.items()):
        called = re.search(
            r"(?:(?<![\w.:>])|\b(?:dtensor|nn)::)%s(?:<[^<>()]*>)?\(" % name, tests)
        mapped = re.search(r"(?:(?<![\w.:>])|\bdtensor::)%s[>(,]" % name, calls)
        if not called and not mapped:
            missing.append(f"{header}: {name}")
    for line in missing:
        print(f"no test calls {line}")
    print(f"{len(names)} public functions, {len(missing)} without a test")
    return 1 if missing or not names else 0


if __name__ == "__main__":
    sys.exit(main())
