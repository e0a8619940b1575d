#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what README.md and docs/*.md show.

  pages.py compile PAGE... > OUT.cc   a test of the pages' C++ snippets
  pages.py run PAGE...                runs the pages' commands, compares output
  pages.py quoted PAGE...             compares quoted files with the tree

A fence ```sh holds commands. After "$ " stands one, and below it the output
that it prints: "..." stands for any text, a line of "..." for any lines. In a
fence without "$ " each line is a command whose output is not compared. The
commands of a page run in one folder. "bazel run -c opt //:train -- FLAGS" runs
the program that is built, and "tools/X" is the tree's. A fence below "<!-- not
run: REASON -->" is counted, not run.

A fence ```cpp holds C++. With an "int main" it is a program, which runs without
arguments. The others of a page are one function's body, run on four ranks, with
`Runtime& rt` and `const Mesh mesh` (dp=2,tp=2); below "<!-- namespace scope -->"
they stand in front of that function. Below "<!-- from PATH -->" a fence quotes
lines of a file, with "..." between parts, and is not compiled. Below
"<!-- compiled -->" stands a table. The code in the second cell of each row is
compiled at that place of the page, but not run.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass

# The longest that one command may take.
SECONDS = 120
MARK = re.compile(r"\s*<!-- (not run|from|namespace scope|compiled)"
                  r"(?::? ([^>]*?))? ?-->$")
PROGRAM = re.compile(r"bazel run (?:-c opt )?//(?:examples)?:(\w+)(?: --(?= |$))?")


@dataclass
class Fence:
    page: str
    line: int  # of its first line of text
    language: str
    mark: str  # "not run", "from", "namespace scope", "compiled" or ""
    value: str  # of the mark
    text: list


def fences(page):
    found, open_, mark = [], None, ("", "")
    with open(page) as f:
        lines = f.read().split("\n")
    for number, line in enumerate(lines, 1):
        if open_:
            if line.strip() == "```":
                found.append(open_)
                open_, mark = None, ("", "")
            else:
                open_.text.append(line)
        elif line.strip().startswith("```"):
            open_ = Fence(page, number + 1, line.strip()[3:], *mark, [])
        elif mark[0] == "compiled" and line.startswith("|"):
            # A | in code is written as \|.
            cells = re.split(r"(?<!\\)\|", line)
            code = "; ".join(re.findall("`([^`]+)`", cells[2]))
            if code:
                code = code.replace("\\|", "|")
                found.append(Fence(page, number, "cpp", "compiled", "",
                                   ["(void)[&] { %s; };" % code]))
        elif match := MARK.match(line):
            mark = match[1], (match[2] or "").strip()
        elif line.strip():
            mark = "", ""
    if open_:
        sys.exit(f"{page}:{open_.line}: the fence does not end")
    return found


# ---- C++ ----


def snippets(pages):
    """The source of a test, one TEST for each page."""
    includes, bodies, count = set(), [], 0
    for page in pages:
        cpp = [f for f in fences(page) if f.language == "cpp" and f.mark != "from"]
        if not cpp:
            continue
        name = re.sub(r"\W", "_", os.path.splitext(os.path.basename(page))[0])
        scope, body, mains = [], [], []
        for fence in cpp:
            text = [f'#line {fence.line} "{page}"']
            for line in fence.text:
                if line.startswith("#include"):
                    includes.add(line)
                    line = ""
                text.append(line)
            if any(re.match(r"int main\(", x) for x in fence.text):
                main = f"main_{len(mains)}"
                mains.append(main)
                text = [re.sub(r"^int main\(\)", f"int {main}(int, char**)",
                               re.sub(r"^int main\(int", f"int {main}(int", x))
                        for x in text]
                # main() alone may end without a return.
                text.insert(len(text) - text[::-1].index("}") - 1, "return 0;")
                mains[-1] = f"{main}::{main}"
                scope += [f"namespace {main} {{", *text, f"}}  // namespace {main}"]
            elif fence.mark == "namespace scope":
                scope += text
            else:
                body += text
            count += 1
        bodies += [f"namespace page_{name} {{", "using namespace dtensor;", *scope]
        run = []
        if body:
            bodies += ["void fragments([[maybe_unused]] Runtime& rt) {",
                       '  const Mesh mesh = Mesh::parse("dp=2,tp=2");', *body, "}"]
            run.append("  run(4, [](Runtime& rt) { fragments(rt); });")
        run += [f"  EXPECT_EQ({m}(1, arguments), 0);" for m in mains]
        bodies += [f'#line 1 "{page}.cc"', f"TEST(Page, {name}) {{",
                   "  std::filesystem::current_path(::testing::TempDir());",
                   '  [[maybe_unused]] char program[] = "page";',
                   "  [[maybe_unused]] char* arguments[] = {program, nullptr};",
                   *run, "}", f"}}  // namespace page_{name}"]
    return "\n".join([
        "// Made by tests/docs/pages.py.", '#include "dtensor/dtensor.h"',
        "#include <gtest/gtest.h>", "#include <cstdio>", "#include <filesystem>",
        *sorted(includes),
        '#pragma GCC diagnostic ignored "-Wunused-variable"',
        '#pragma GCC diagnostic ignored "-Wunused-but-set-variable"',
        '#pragma GCC diagnostic ignored "-Wunused-function"',
        '#pragma GCC diagnostic ignored "-Wunused-value"',
        *bodies, "TEST(Pages, Count) {",
        f'  std::printf("{count} snippets compiled\\n");', "}", ""])


# ---- Commands ----


@dataclass
class Command:
    fence: Fence
    line: int
    text: str
    output: list  # None: not compared


def commands(fence):
    shown = any(x.startswith("$ ") for x in fence.text)
    found, more = [], False
    for number, line in enumerate(fence.text, fence.line):
        if more:  # the line before ended with a backslash
            found[-1].text += "\n" + line
        elif shown and line.startswith("$ "):
            found.append(Command(fence, number, line[2:], []))
        elif not shown and line.strip() and not line.startswith("#"):
            found.append(Command(fence, number, line, None))
        elif shown and found:
            found[-1].output.append(line)
            continue
        more = bool(found) and line.endswith("\\")
    return found


def differs(printed, wanted):
    """The first line of `wanted` that is not where it should be, or None."""
    def same(line, pattern):
        parts = map(re.escape, pattern.rstrip().split("..."))
        return re.fullmatch(".*".join(parts), line.rstrip())

    at, skips = 0, False
    for pattern in wanted:
        if pattern.strip() == "...":
            skips = True
            continue
        while at < len(printed) and skips and not same(printed[at], pattern):
            at += 1
        if at == len(printed) or not same(printed[at], pattern):
            return pattern
        at, skips = at + 1, False
    return None if skips or at == len(printed) else f"(nothing after {at} lines)"


def run_commands(pages):
    root = os.getcwd()
    ran = compared = failed = 0
    skipped = []

    def program(match):
        path = os.path.join(
            root, "examples" if match[1][0].isdigit() else "programs", match[1])
        if not os.path.exists(path):
            raise FileNotFoundError(path)
        return shlex.quote(path)

    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.join(root, "tools"), os.path.join(folder, "tools"))
            for fence in fences(page):
                if fence.language != "sh":
                    continue
                for c in commands(fence):
                    where = f"{page}:{c.line}"
                    if fence.mark == "not run":
                        skipped.append(f"{where}: not run, {fence.value}: {c.text}")
                        continue
                    try:
                        text = PROGRAM.sub(program, c.text)
                        got = subprocess.run(
                            ["bash", "-c", text], cwd=folder, text=True,
                            capture_output=True, timeout=SECONDS,
                            stdin=subprocess.DEVNULL)
                    except (FileNotFoundError, subprocess.TimeoutExpired) as e:
                        print(f"FAILED {where}: {c.text}\n  {e}")
                        failed += 1
                        continue
                    ran += 1
                    if got.returncode != 0 and c.output is None:
                        print(f"FAILED {where}: {c.text}\n  exit status "
                              f"{got.returncode}\n{got.stdout}{got.stderr}")
                        failed += 1
                    if c.output is None or not "".join(c.output).strip():
                        continue
                    compared += 1
                    while c.output and not c.output[-1].strip():
                        c.output.pop()
                    # A terminal shows both, in an order that varies.
                    wrong = [differs(text.rstrip("\n").split("\n"), c.output)
                             for text in (got.stdout, got.stderr,
                                          got.stdout + got.stderr)]
                    if None not in wrong:
                        print(f"FAILED {where}: {c.text}\n  does not print "
                              f"{wrong[0]!r}, but\n{got.stdout}{got.stderr}")
                        failed += 1
    print("\n".join(skipped))
    print(f"{ran} commands ran, {compared} of them with output to compare, "
          f"{len(skipped)} not run, {failed} failed")
    return failed


def check_quoted(pages):
    count = failed = 0
    for page in pages:
        for fence in fences(page):
            if fence.mark != "from":
                continue
            with open(fence.value) as f:
                file = f.read()
            for part in re.split(r"^\s*\.\.\.$", "\n".join(fence.text), flags=re.M):
                if part.strip():
                    count += 1
                    if "\n" + part.strip("\n") + "\n" not in "\n" + file:
                        print(f"FAILED {page}:{fence.line}: {fence.value} does not "
                              f"say\n{part}")
                        failed += 1
    print(f"{count} quotations compared, {failed} differ")
    return failed


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("compile", "run", "quoted"):
        print(__doc__, end="")
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    pages = sys.argv[2:]
    if sys.argv[1] == "compile":
        print(snippets(pages))
        return 0
    failed = (run_commands if sys.argv[1] == "run" else check_quoted)(pages)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
