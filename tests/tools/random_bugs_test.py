#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tools/random_bugs.py, and how tools/plant.py plants what it draws."""

import os
import sys
import tempfile
import unittest
from xml.etree import ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.getcwd(), "tools"))
import plant  # noqa: E402
import random_bugs  # noqa: E402

ALL = "dtensor/a.cc"


def edits_of(statement, kind=None):
    """[(the planted line, the edited line)] of a statement in a function."""
    text = f"void f() {{\n  {statement}\n}}\n"
    made = []
    for _, line, mask in random_bugs.statement_lines(text):
        for edit in random_bugs.edits(line, mask):
            both, edited = random_bugs.planted(line, mask, edit, 7)
            if both and kind in (None, edit[0]):
                made.append((both.strip(), edited.strip()))
    return made


class Edits(unittest.TestCase):
    def check(self, statement, kind, *wanted):
        self.assertEqual(edits_of(statement, kind), list(wanted))

    def test_operators(self):
        for old, new in random_bugs.OPERATORS.items():
            if "=" in old and old[0] in "+-*/":
                self.check(f"a {old} b;", "operator", (
                    f"{{ if (MUT(7)) {{ a {new} b; }} else {{ a {old} b; }} }}",
                    f"a {new} b;"))
            else:
                self.check(f"const int x = a {old} b;", "operator", (
                    f"const int x = MUT(7) ? (a {new} b) : (a {old} b);",
                    f"const int x = a {new} b;"))

    def test_conditions(self):
        self.check("if (a && b) {", "logical", (
            "if (MUT(7) ? bool(a || b) : bool(a && b)) {", "if (a || b) {"))
        self.check("while (a || b) {", "logical", (
            "while (MUT(7) ? bool(a && b) : bool(a || b)) {",
            "while (a && b) {"))
        self.check("} else if (f(x)) {", "negated", (
            "} else if (MUT(7) ? bool(!(f(x))) : bool(f(x))) {",
            "} else if (!(f(x))) {"))
        self.check("for (int i = a; i < n; ++i) {", "operator", (
            "for (int i = a; MUT(7) ? bool(i <= n) : bool(i < n); ++i) {",
            "for (int i = a; i <= n; ++i) {"))
        # A variable declared in a condition is used behind it.
        self.check("if (auto* p = f(x)) g(p);", "negated")
        self.check("for (int i : list) n = i;", "negated")

    def test_returns(self):
        self.check("return a - b;", "operator", (
            "{ if (MUT(7)) return a + b; return a - b; }", "return a + b;"))
        self.check("return {a - b, c};", "operator")

    def test_bodies_without_braces(self):
        self.check("if (a) return b == c;", "operator", (
            "if (a) { if (MUT(7)) return b != c; return b == c; }",
            "if (a) return b != c;"))
        self.check("if (a) b += c;", "operator", (
            "if (a) { if (MUT(7)) { b -= c; } else { b += c; } }",
            "if (a) b -= c;"))
        self.check("for (int i : list) f(i);", "dropped", (
            "for (int i : list) { if (MUT(7)) { ; } else { f(i); } }",
            "for (int i : list) ;"))
        self.check("else f(i);", "dropped", (
            "else { if (MUT(7)) { ; } else { f(i); } }", "else ;"))

    def test_literals(self):
        self.check("f(0, a[1], 1.0f, 10, 0x1, 0.5, x1, 1e3);", "constant",
                   *((f"f({both});", f"f({edited});") for both, edited in (
                       ("(MUT(7) ? 1 : 0), a[1], 1.0f, 10, 0x1, 0.5, x1, 1e3",
                        "1, a[1], 1.0f, 10, 0x1, 0.5, x1, 1e3"),
                       ("0, a[(MUT(7) ? 0 : 1)], 1.0f, 10, 0x1, 0.5, x1, 1e3",
                        "0, a[0], 1.0f, 10, 0x1, 0.5, x1, 1e3"),
                       ("0, a[1], (MUT(7) ? 0.0f : 1.0f), 10, 0x1, 0.5, x1, 1e3",
                        "0, a[1], 0.0f, 10, 0x1, 0.5, x1, 1e3"))))
        self.check("bool x{true};", "bool", (
            "bool x{(MUT(7) ? false : true)};", "bool x{false};"))

    def test_min_max(self):
        self.check("a = std::min(b, std::max<int>(c, d));", "min/max", (
            "{ if (MUT(7)) { a = std::max(b, std::max<int>(c, d)); } else "
            "{ a = std::min(b, std::max<int>(c, d)); } }",
            "a = std::max(b, std::max<int>(c, d));"), (
            "{ if (MUT(7)) { a = std::min(b, std::min<int>(c, d)); } else "
            "{ a = std::min(b, std::max<int>(c, d)); } }",
            "a = std::min(b, std::min<int>(c, d));"))

    def test_calls(self):
        self.check("a.b[1]->c<int>(x, {y});", "dropped", (
            "{ if (MUT(7)) { ; } else { a.b[1]->c<int>(x, {y}); } }", ";"))
        # A declaration that looks like a call lives to the end of its block.
        self.check("std::lock_guard lock(mutex_);", "dropped")
        self.check("std::vector<int> v(n);", "dropped")
        self.check("(void)f(x);", "dropped")

    def test_left_alone(self):
        for statement in (
                'f("a == b && 1 < 0", \'0\');',
                "g(a);  // a < b, 0",
                "std::array<int, 1> a = std::get<0>(b);",
                "constexpr int kOne = 1;",
                "static_assert(a == 1);",
                "case 1: return a == b;",
                "#define X(a) f(a, 0);",
                "p->q();",
                "auto f = [a] { return a == b; };",
                "int x = a == b, y = c;",
                "f(a,",
                "f(0, n, [&] {",
                "f(0); \\",
                'return "a" + b + "c";',
                ": a_(1) {",
        ):
            self.assertEqual([m for m in edits_of(statement)
                              if not m[1].startswith(";")], [], statement)

    def test_reserving_memory(self):
        """Neither dropped nor edited, and not the condition in front of it."""
        for statement in (
                "a.reserve(b.size());",
                "a[0]->b.reserve(static_cast<size_t>(c) + 1);  // says why",
                "if (a + 1 > b.capacity()) b.reserve(2 * a + 4);",
                "for (int i = 0; i < n; ++i) a->reserve(i);",
        ):
            self.assertEqual(edits_of(statement), [], statement)
        self.check("reserve(a == b);", "operator", (
            "{ if (MUT(7)) { reserve(a != b); } else { reserve(a == b); } }",
            "reserve(a != b);"))
        self.check("a.reserved(0);", "constant", (
            "a.reserved((MUT(7) ? 1 : 0));", "a.reserved(1);"))

    def test_only_whole_statements(self):
        text = ("int one = 1;\n"      # a constant that others may need early
                "void f() {\n"
                "  if (a)\n"
                "    b = 0;\n"        # a body without braces
                "  g(c,\n"
                "    d == 1);\n"      # the rest of one
                "  h(0);\n"
                "  // says why\n"
                "\n"
                "  i(0);\n"
                "  const char* s = R\"(\n"
                "  ;\n"
                "  j(0);\n"
                "  )\";\n"
                "}\n")
        self.assertEqual(
            [line.strip() for _, line, _ in random_bugs.statement_lines(text)],
            ["h(0);", "i(0);"])


class Draw(unittest.TestCase):
    texts = {f"dtensor/{name}.cc": "void f() {\n" + "".join(
        f"  if (a < {i}) b += c;\n" for i in range(20)) + "}\n"
        for name in "abcde"}

    def test_the_same_for_the_same_seed(self):
        backwards = dict(reversed(self.texts.items()))
        self.assertEqual(random_bugs.draw(self.texts, 6, 7),
                         random_bugs.draw(backwards, 6, 7))
        self.assertNotEqual(random_bugs.draw(self.texts, 6, 7),
                            random_bugs.draw(self.texts, 6, 8))

    def test_a_mend_elsewhere_moves_few(self):
        def places(texts):
            return {(b.edits[0][0], b.original)
                    for b in random_bugs.draw(texts, 6, 7)}
        more = dict(self.texts)
        more["dtensor/a.cc"] = "// Longer.\n" + more["dtensor/a.cc"].replace(
            "a < 3", "a.b")
        self.assertGreaterEqual(len(places(more) & places(self.texts)), 5)

    def test_at_most_two_of_a_file(self):
        bugs = random_bugs.draw(self.texts, 100, 1)
        files = [b.edits[0][0] for b in bugs]
        self.assertEqual({files.count(f) for f in self.texts}, {2})
        self.assertEqual(len({(b.edits[0][0], b.line) for b in bugs}), 10)
        self.assertEqual([b.number for b in bugs], list(range(1, 11)))

    def test_which_sources(self):
        files = ["ops/a.cc", "ops/a.h", "ops/cuda_plugin/a.cc",
                 "dtensor/comm/nccl/a.cc", "tests/ops/a_test.cc",
                 "dtensor/comm/no_mpi.cc", "programs/report/a.cc",
                 "examples/a.cc", "dtensor/opsx/a.cc", "dtensor/ops/a.cc"]
        scratch = os.environ["TEST_TMPDIR"]
        for file in files:
            os.makedirs(os.path.join(scratch, os.path.dirname(file)),
                        exist_ok=True)
            open(os.path.join(scratch, file), "w").close()
        self.assertEqual(sorted(random_bugs.sources(scratch, files)), [
            "dtensor/ops/a.cc", "dtensor/opsx/a.cc", "ops/a.cc",
            "programs/report/a.cc"])
        self.assertEqual(sorted(random_bugs.sources(scratch, files,
                                                    "dtensor/ops/")),
                         ["dtensor/ops/a.cc"])

    def test_planted_by_line(self):
        """Lines that are the same are told apart, and keep their numbers."""
        same = {ALL: "void f() {\n" + "  g(0);\n" * 9 + "}\n"}
        scratch = os.environ["TEST_TMPDIR"]
        os.makedirs(os.path.join(scratch, "dtensor"), exist_ok=True)
        with open(os.path.join(scratch, ALL), "w") as f:
            f.write(same[ALL])
        bugs = random_bugs.draw(same, 2, 3)
        texts, impossible = plant.edited(scratch, bugs)
        self.assertEqual(impossible, {})
        lines = texts[ALL].split("\n")
        self.assertEqual([i + 1 for i, x in enumerate(lines) if "MUT" in x],
                         sorted(b.line for b in bugs))
        after = plant.with_switch(texts[ALL]).split("#line 1\n")[1]
        self.assertEqual(after, texts[ALL])


class Built(unittest.TestCase):
    def test_culprits(self):
        bugs = [random_bugs.Drawn(k, "", [(file, "", "")], line=line)
                for k, file, line in ((1, "dtensor/a.cc", 5),
                                      (2, "dtensor/a.cc", 50),
                                      (3, "dtensor/b.cc", 5),
                                      (4, "dtensor/c.cc", 5),
                                      (5, "dtensor/c.cc", 6),
                                      (6, "dtensor/d.cc", 5),
                                      (7, "dtensor/b.cc", 6))]
        self.assertEqual(plant.culprits(
            "ERROR: x/BUILD:1:1: Compiling dtensor/a.cc failed: (Exit 1)\n"
            "dtensor/a.cc:5:9: warning: too long\n"
            "dtensor/a.cc:50:9: error: no match for operator-\n"
            "ERROR: x/BUILD:1:1: Compiling dtensor/b.cc failed: (Exit 1)\n"
            "dtensor/b.cc:5:12:   required from here\n"
            "dtensor/b.h:3:2: error: no member\n"
            "ERROR: x/BUILD:1:1: Compiling dtensor/c.cc failed: (Exit 1)\n"
            "dtensor/c.cc:80:1: error: not a constant\n"
            "dtensor/d.cc:5:9: warning: too long\n", bugs), {2, 3, 4, 5})

    def test_how_to_run(self):
        rule = ElementTree.fromstring(
            '<rule name="//tests/x:y_test"><list name="args">'
            '<string value="$(location :near)"/>'
            '<string value="$(rootpath far.py)"/>'
            '<string value="--a=$(rootpath //b/c:d)"/>'
            '<string value="$(rootpath @repo//:e)"/></list></rule>')
        self.assertEqual(plant.how_to_run(rule)[0], [
            "tests/x/near", "tests/x/far.py", "--a=b/c/d", "external/repo/e"])

    def test_headers(self):
        with tempfile.TemporaryDirectory() as tree:
            os.mkdir(os.path.join(tree, "tests"))
            with open(os.path.join(tree, "tests", "y_test.cc"), "w") as f:
                f.write('#include "dtensor/nn/linear.h"\n#include <map>\n')
            rule = ElementTree.fromstring(
                '<rule name="//tests:y_test"><list name="srcs">'
                '<label value="//tests:y_test.cc"/>'
                '<label value="//tests:made.cc"/></list></rule>')
            self.assertEqual(plant.headers_of(rule, tree), {"nn/linear"})

    def test_order(self):
        tests = plant.Tests.__new__(plant.Tests)
        seconds = {"nn:split_test": 1, "placement:split_test": 9,
                   "placement:quick_test": 0.9, "placement:tiny_test": 0.01,
                   "ops:long_test": 1,
                   "ops:kernels_gemm_portable_test": 20,
                   "placement:expected_test": 99}
        tests.seconds = {"//tests/" + x: s for x, s in seconds.items()}
        tests.labels = list(tests.seconds)
        tests.headers = {label: set() for label in tests.labels}
        tests.headers["//tests/ops:long_test"] = {"placement/shape"}

        def order(file):
            bug = random_bugs.Drawn(1, "", [(file, "", "")], ["expected_test"])
            return [x.removeprefix("//tests/") for x in tests.order(bug)]

        self.assertEqual(order("placement/split.cc"), [
            "placement:expected_test", "nn:split_test",
            "placement:split_test", "placement:quick_test",
            "placement:tiny_test", "ops:long_test",
            "ops:kernels_gemm_portable_test"])
        self.assertEqual(order("placement/shape.cc")[:2], [
            "placement:expected_test", "ops:long_test"])
        self.assertEqual(order("ops/kernels/portable/gemm.cc")[:2], [
            "placement:expected_test", "ops:kernels_gemm_portable_test"])


if __name__ == "__main__":
    unittest.main()
