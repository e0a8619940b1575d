#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each public header has a test of its name, or a line in tests/mirror.txt.

The test of ops/softmax.h is tests/ops/softmax_test.cc. A header is public if a
target outside its folder and outside tests/ may depend on it. Internal headers,
such as those of the CPU's kernels, are tested through the public ones.

A line of tests/mirror.txt is "HEADERS: TEST, REASON". HEADERS is a path, or a
pattern: "*" also matches "/", and "{a,b}" stands for a or b. The line fails if
a pattern matches no public header without a test of its name, or if TEST, a path
or a pattern, does not exist.
"""

import builtins
import fnmatch
import glob
import itertools
import os
import re
import sys
import tempfile
import unittest

FOLDERS = "placement", "dtensor", "ops", "nn", "program", "programs"
LIST = "tests/mirror.txt"


def files(root, *folders, ends):
    return sorted(os.path.relpath(os.path.join(at, name), root)
                  for folder in folders
                  for at, _, names in os.walk(os.path.join(root, folder))
                  for name in names if name.endswith(ends))


def read(root, path):
    with open(os.path.join(root, path)) as f:
        return f.read()


class Loaded:
    """A name that a BUILD file loads, or what it returns. A call with a name is
    a target."""

    def __init__(self, targets):
        self.targets = targets

    def __call__(self, *_, **facts):
        if "name" in facts:
            self.targets.append(facts)
        return self

    def __add__(self, other):
        return other

    def __radd__(self, other):
        return other


class Package(dict):
    """The names that a BUILD file may use."""

    def __init__(self, root, package):
        super().__init__(glob=self.glob, package=self.package)
        self.at = os.path.join(root, package)
        self.targets, self.visibility = [], []

    def __missing__(self, name):
        if name in dir(builtins):
            raise KeyError(name)
        return Loaded(self.targets)

    def package(self, default_visibility):
        self.visibility = default_visibility

    def glob(self, include, exclude=(), **_):
        found = {os.path.relpath(f, self.at) for pattern in include
                 for f in glob.glob(os.path.join(self.at, pattern), recursive=True)}
        return sorted(f for f in found if not any(
            fnmatch.fnmatch(f, pattern) for pattern in exclude))


def public_headers(root):
    public = set()
    for build in files(root, *FOLDERS, ends="BUILD"):
        package = os.path.dirname(build)
        names = Package(root, package)
        exec(compile(read(root, build), build, "exec"), names)
        for target in names.targets:
            seen_by = target.get("visibility", names.visibility)
            if target.get("testonly") or all(
                    re.match(rf"//(tests|{package}:|visibility:private)", label)
                    for label in seen_by):
                continue
            for header in target.get("hdrs", []) + target.get("textual_hdrs", []):
                if header.endswith(".h"):
                    public.add(f"{package}/{header}")
    return sorted(public)


def alternatives(pattern):
    """The patterns that one with {a,b} stands for."""
    parts = [part.split(",") for part in re.split(r"[{}]", pattern)]
    return list(map("".join, itertools.product(*parts)))


def complaints(root):
    untested = [h for h in public_headers(root) if not os.path.exists(
        os.path.join(root, "tests", h.removesuffix(".h") + "_test.cc"))]
    tests = files(root, "tests", ends=(".cc", ".py", ".sh"))
    wrong, listed = [], set()
    for number, line in enumerate(read(root, LIST).splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        where = f"{LIST}:{number}"
        match = re.match(r"(\S+): ([^\s,]+), \S", line)
        if not match:
            wrong.append(f'{where} is not "HEADERS: TEST, REASON"')
            continue
        for pattern in alternatives(match[1]):
            found = fnmatch.filter(untested, pattern)
            listed.update(found)
            if not found:
                wrong.append(f"{where}: {pattern} matches no public header "
                             "without a test of its name; remove it")
        if not fnmatch.filter(tests, match[2]):
            wrong.append(f"{where}: there is no {match[2]}")
    wrong += [f"{h} has no tests/{h.removesuffix('.h')}_test.cc; write it, or "
              f"name the test that covers it in {LIST}"
              for h in untested if h not in listed]
    return wrong


BUILD = """
package(default_visibility = ["//visibility:private"])

cc_library(
    name = "x",
    srcs = ["hidden.h"],
    hdrs = ["x.h"],
    visibility = ["//:use_ops"],
)

cc_library(
    name = "y",
    hdrs = ["y.h"],
    visibility = ["//tests/ops:__pkg__"],
)

cc_library(
    name = "z",
    hdrs = ["z.h"],
)
"""


class Complaints(unittest.TestCase):
    def check(self, list_, *wanted, tests=()):
        """What is said of a tree with the headers ops/{x,y,z,hidden}.h, of which
        x.h is public, these tests and this list."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in {
                    "ops/BUILD": BUILD, LIST: list_, "ops/x.h": "",
                    "ops/y.h": "", "ops/z.h": "", "ops/hidden.h": "",
                    **dict.fromkeys(tests, "")}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)),
                            exist_ok=True)
                with open(os.path.join(root, path), "w") as f:
                    f.write(text)
            self.assertEqual(complaints(root), list(wanted))

    UNTESTED = ("ops/x.h has no tests/ops/x_test.cc; write it, or name the test "
                "that covers it in tests/mirror.txt")

    def stale(self, pattern):
        return (f"tests/mirror.txt:1: {pattern} matches no public header without "
                "a test of its name; remove it")

    def test_a_public_header_without_a_test(self):
        self.check("", self.UNTESTED)
        self.check("# ops/x.h\n\n", self.UNTESTED)
        self.check("", tests=["tests/ops/x_test.cc"])

    def test_listed_headers(self):
        a = ["tests/ops/a_test.cc"]
        for pattern in "ops/x.h", "ops/*.h", "*/x.h", "{ops/x,*/x}.h":
            self.check(f"{pattern}: tests/*/a_test.cc, tests it\n", tests=a)
        self.check("ops/{x,y}.h: tests/ops/a_test.cc, tests it\n",
                   self.stale("ops/y.h"), tests=a)
        self.check("ops/gone.h: tests/ops/a_test.cc, tests it\n",
                   self.stale("ops/gone.h"), self.UNTESTED, tests=a)
        self.check("ops/x.h: tests/ops/a_test.cc, tests it\n",
                   self.stale("ops/x.h"), tests=[*a, "tests/ops/x_test.cc"])

    def test_the_named_test_and_the_reason(self):
        self.check("ops/x.h: tests/ops/a_test.cc, tests it\n",
                   "tests/mirror.txt:1: there is no tests/ops/a_test.cc")
        self.check("ops/x.h: tests/ops/a_test.cc\n",
                   'tests/mirror.txt:1 is not "HEADERS: TEST, REASON"',
                   self.UNTESTED, tests=["tests/ops/a_test.cc"])


class ThisTree(unittest.TestCase):
    def root(self):
        # A header that is new is no input that Bazel knows: the tree itself is
        # read, which this file links to.
        root = os.path.dirname(os.path.realpath(__file__))
        while not os.path.exists(os.path.join(root, "WORKSPACE")):
            self.assertNotEqual(root, "/", "the tree is not there")
            root = os.path.dirname(root)
        return root

    def test_mirror(self):
        root = self.root()
        self.assertGreater(len(public_headers(root)), 200)
        self.assertEqual(complaints(root), [])

    def test_legs_of_the_gpu_bundle(self):
        """Their tests exist. nn.x_test is tests/nn/x_test.cc, and only building
        the bundle would show that it has moved."""
        root = self.root()
        names = set(re.findall(r"(?:test_of|sanitizer \$name) ([\w.]+)(?!\$)\b",
                               read(root, "tools/gpu_bundle_run.sh")))
        names = {name for name in names if name.endswith("_test")}
        self.assertGreater(len(names), 6)
        self.assertEqual([name for name in sorted(names) if not os.path.exists(
            os.path.join(root, "tests", name.replace(".", "/") + ".cc"))], [])


if __name__ == "__main__":
    unittest.main()
