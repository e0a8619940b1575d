#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants bugs in a copy of the tree and reports which tests fail.

Every bug of planted_bugs.py is an edit that does nothing unless the environment
variable DTENSOR_PLANTED holds its number, so one build contains all of them. For
each bug, tests run until one fails: first those that are expected to notice it,
then the quick ones, those of its folder before others. A test runs with a bug
only if it reached the bug's line when it ran without any bug. A bug that no test
notices shows that a test is missing.

    tools/plant.py                     every bug
    tools/plant.py --only 17,40-60     some bugs
    tools/plant.py --list              their numbers and what they break
    tools/plant.py --check             whether all edits are still possible
    tools/plant.py --random 300        300 random edits
    tools/plant.py --random 20 --near 5    only five tests for each of them

With --random a bug is an edit of one line, drawn from the library and from
programs/report/, or from --folder. random_bugs.py describes the edits. The same
seed draws the same bugs from the same tree. An edit that does not compile is
dropped and counted.

To look at one bug, build with --tree DIR and run a test of DIR/bazel-bin with
DTENSOR_PLANTED=NUMBER.

Builds as on a machine without nvcc. Takes half an hour on two cores, most of it
for the build. --random takes longer, since a bug that no test notices takes
--seconds. The last line is "N of M bugs noticed". The exit status is 0 if at
least --share percent of them are, 1 if fewer are or if an edit is no longer
possible, and 2 on bad input.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from xml.etree import ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import random_bugs  # noqa: E402
from planted_bugs import BUGS  # noqa: E402

VARIABLE = "DTENSOR_PLANTED"
# The file to which the bugs that were reached are written.
REACHED = "DTENSOR_PLANTED_REACHED"
# A file in each folder that this script made and may overwrite. It records how
# long the tests take and which bugs they reach.
MARK = ".planted"
# The most bytes of memory, and of a file, for each process of a test.
MOST = 8 << 30
# The numbers of bugs are smaller.
MOST_BUGS = 4096
# First guess of a test's seconds, by its size.
GUESSES = {"small": 1, "medium": 5, "large": 60, "enormous": 600}
BAZEL = ["bazel"]
BAZEL_BUILD = ["--noshow_progress", "--repo_env=CUDA_HOME=no"]
# Reads the variables once, since edits are also in inner loops. Writes the number
# of a bug when a process reaches it for the first time.
SWITCH = f"""
#ifndef DTENSOR_PLANTED_SWITCH
#define DTENSOR_PLANTED_SWITCH
#include <atomic>
#include <cstdio>
#include <cstdlib>
inline void reached(int k, const char* file) {{
  static std::atomic<bool> seen[{MOST_BUGS}];
  if (seen[k].load(std::memory_order_relaxed) || seen[k].exchange(true)) return;
  if (FILE* out = std::fopen(file, "ae")) {{
    std::fprintf(out, "%d\\n", k);
    std::fclose(out);
  }}
}}
inline bool planted(int k) {{
  static const char* text = std::getenv("{VARIABLE}");
  static const int number = text ? std::atoi(text) : 0;
  static const char* file = std::getenv("{REACHED}");
  if (file) reached(k, file);
  return number == k;
}}
#define MUT(k) planted(k)
#endif
"""


def repository():
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def listed(root, *options):
    """The files that git lists. The checkout may belong to another user."""
    files = subprocess.check_output(
        ["git", "-C", root, "-c", f"safe.directory={root}", "ls-files", "-z",
         *options], text=True)
    return [f for f in files.split("\0") if f]


def ranges(text):
    chosen = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        try:
            chosen.append((int(low), int(high or low)))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"'{part}' is not a number or a range; write --only 3,10-20")
    return chosen


def selected(bugs, only, parser):
    for low, high in only:
        if not any(low <= b.number <= high for b in bugs):
            parser.error(f"--only: there is no bug {low}"
                         f"{f' to {high}' if high != low else ''}; --list shows "
                         "them")
    return [b for b in bugs
            if any(low <= b.number <= high for low, high in only)]


def edited(root, bugs):
    """The files with all edits, and the reason for each bug that does not fit."""
    texts, impossible = {}, {}
    for bug in bugs:
        own = {}
        for file, old, new in bug.edits:
            path = os.path.join(root, file)
            text = own.get(file) or texts.get(file)
            if text is None and os.path.exists(path):
                with open(path) as f:
                    text = f.read()
            lines = (text or "").split("\n")
            if bug.line and lines[bug.line - 1:bug.line] == [old]:
                lines[bug.line - 1] = new
                own[file] = "\n".join(lines)
                continue
            found = (text or "").count(old)
            if bug.line or found != 1:
                impossible[bug.number] = f"{file}: {found} places say {old!r}"
                break
            own[file] = text.replace(old, new)
        else:
            texts.update(own)
    return texts, impossible


def with_switch(text):
    """The text with the switch added; its lines keep their numbers."""
    at = text.find("#pragma once")
    at = text.index("\n", at) + 1 if at >= 0 else 0
    line = text.count("\n", 0, at) + 1
    return f"{text[:at]}{SWITCH}#line {line}\n{text[at:]}"


def copy_tree(root, to):
    mark = os.path.join(to, MARK)
    if not os.path.exists(mark):
        if os.path.isdir(to) and os.listdir(to):
            sys.exit(f"plant.py: {to} holds files of others, which would be "
                     "removed; write an empty folder")
        os.makedirs(to, exist_ok=True)
        with open(mark, "w") as f:
            f.write("{}")
    wanted = set(listed(root, "-co", "--exclude-standard"))
    for file in wanted:
        source, target = os.path.join(root, file), os.path.join(to, file)
        if not os.path.isfile(source):
            continue
        with open(source, "rb") as f:
            content = f.read()
        # Files that do not change keep their time, so that a second run builds
        # little.
        if os.path.isfile(target):
            with open(target, "rb") as f:
                if f.read() == content:
                    continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(content)
        shutil.copymode(source, target)
    for folder, _, names in os.walk(to):
        if "/bazel-" in folder:
            continue
        for name in names:
            path = os.path.join(folder, name)
            known = name == MARK or os.path.relpath(path, to) in wanted
            if not known and not os.path.islink(path):
                os.remove(path)


def culprits(output, bugs):
    """The numbers of the bugs that do not compile, from the build's output."""
    of_file = collections.defaultdict(list)
    for bug in bugs:
        for file in {file for file, _, _ in bug.edits}:
            of_file[file].append(bug)
    found = set()
    for file in set(re.findall(r"Compiling (\S+) failed", output)):
        def at(what):
            lines = set(map(int, re.findall(
                rf"\b{re.escape(file)}:(\d+):(?:\d+:)?{what}", output)))
            return [b for b in of_file[file] if b.line in lines]
        # If an edit breaks a template, the error may be in another file.
        found |= {b.number for b in at(" error:") or at("") or of_file[file]}
    return found


def build(tree, labels):
    """Builds the tests. Returns the output if that failed, otherwise ""."""
    process = subprocess.Popen(
        [*BAZEL, "build", *BAZEL_BUILD, "--keep_going", "--build_tests_only",
         *labels], cwd=tree, stderr=subprocess.PIPE, text=True)
    output = list(process.stderr)
    return "".join(output) if process.wait() else ""


def how_to_run(rule):
    """The arguments and the environment of a test."""
    package = rule.get("name").removeprefix("//").split(":")[0]

    def path(match):
        repository, at, name = match.groups()
        if repository:
            return f"external/{repository}/{name}"
        return os.path.join(package if at is None else at[2:], name)

    def expanded(text):
        return re.sub(r"\$\((?:rootpath|location) (?:@(\w+)(?=//))?(//[^:)]*)?:?"
                      r"([^)]*)\)", path, text)

    arguments = [expanded(x.get("value"))
                 for x in rule.findall("list[@name='args']/string")]
    environment = {}
    for pair in rule.findall("dict[@name='env']/pair"):
        name, value = (x.get("value") for x in pair)
        environment[name] = expanded(value)
    return arguments, environment


def can_be_built(rule):
    """False for a test of something that this machine lacks, such as CUDA."""
    return not any("platforms//:incompatible" in label.get("value") for label in
                   rule.findall("list[@name='target_compatible_with']/label"))


def size_of(rule):
    size = rule.find("string[@name='size']")
    return size.get("value") if size is not None else "medium"


def headers_of(rule, tree):
    """The headers of the library that the test's own sources include."""
    text = ""
    for label in rule.findall("list[@name='srcs']/label"):
        path = os.path.join(tree, path_of(label.get("value")))
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as f:
                text += f.read()
    return set(re.findall(r'#include "dtensor/(.*)[.]h"', text))


def end_what_is_left(scratch):
    """Ends the processes that a test left behind, even in other sessions."""
    mark = f"TEST_TMPDIR={scratch}".encode()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as f:
                if mark in f.read().split(b"\0"):
                    os.kill(int(process), signal.SIGKILL)
        except OSError:
            pass  # the process has ended, or belongs to another user


def measured(root):
    """The seconds of each test that `bazel test` ran last in the checkout."""
    seconds = collections.Counter()
    logs = os.path.join(root, "bazel-testlogs")
    for folder, _, names in os.walk(logs):
        if "test.xml" not in names:
            continue
        test = re.sub(r"/shard_\d+_of_\d+$", "", os.path.relpath(folder, logs))
        try:
            cases = ElementTree.parse(os.path.join(folder, "test.xml"))
        except ElementTree.ParseError:
            continue  # the test was ended while it wrote
        seconds[test] += sum(float(case.get("time") or 0)
                             for case in cases.iter("testcase"))
    return seconds


def path_of(label):
    return label.removeprefix("//").replace(":", "/")


class Tests:
    """The tests of a tree, run outside of Bazel once they are built."""

    def __init__(self, root, tree):
        self.tree = tree
        # Includes scripts that run programs of the tree.
        rules = ElementTree.fromstring(subprocess.check_output(
            [*BAZEL, "query", *BAZEL_BUILD, "--output=xml",
             "(kind('cc_test rule', //tests/...) union attr(args, "
             "'location|rootpath', kind('sh_test rule', //tests/...))) "
             "except attr(tags, manual, //tests/...)"], cwd=tree))
        rules = [rule for rule in rules.iter("rule") if can_be_built(rule)]
        self.how = {rule.get("name"): how_to_run(rule) for rule in rules}
        # The seconds of each test: a guess until it has run.
        seconds = measured(root)
        self.seconds = {rule.get("name"): seconds[path_of(rule.get("name"))]
                        or GUESSES[size_of(rule)] for rule in rules}
        self.headers = {rule.get("name"): headers_of(rule, tree)
                        for rule in rules}
        self.labels = list(self.how)
        self.locks = {label: threading.Lock() for label in self.labels}
        self.mark_lock = threading.Lock()
        self.sound = {}
        # The bugs that each test reaches.
        self.reached = {}
        with open(os.path.join(tree, MARK)) as f:
            # An older script recorded less.
            self.known = {label: entry for label, entry in json.load(f).items()
                          if len(entry) == 4}

    def keep_near(self, bugs, number):
        """Leaves out all but the first tests of each bug's order."""
        self.labels = sorted({label for bug in bugs
                              for label in self.order(bug)[:number]})

    def are_built(self):
        self.labels = [x for x in self.labels if os.path.exists(self.binary(x))]
        # Frees Bazel's memory for the tests.
        subprocess.run([*BAZEL, "shutdown"], cwd=self.tree, check=True)

    def binary(self, label):
        return os.path.join(self.tree, "bazel-bin", path_of(label))

    def runfiles(self, label):
        return os.path.join(self.binary(label) + ".runfiles", "dtensor")

    def built_at(self, label):
        # A test may start other binaries, as those of the emulated GPU do.
        files = [self.binary(label),
                 *(os.path.join(folder, f)
                   for folder, _, names in os.walk(self.runfiles(label))
                   for f in names)]
        return max(os.path.getmtime(f) for f in files if os.path.exists(f))

    def run(self, label, bug, limit, reached=None):
        """Returns "passed", "failed" (also for a crash) or "hangs". Writes the
        bugs that were reached to the file `reached`."""
        binary, folder = self.binary(label), self.runfiles(label)
        with tempfile.TemporaryDirectory() as scratch:
            arguments, own = self.how[label]
            environment = dict(os.environ, TEST_TMPDIR=scratch,
                               TEST_SRCDIR=os.path.dirname(folder),
                               GTEST_FAIL_FAST="1", **own)
            environment.pop(VARIABLE, None)
            environment.pop(REACHED, None)
            if bug:
                environment[VARIABLE] = str(bug)
            if reached:
                environment[REACHED] = reached
            process = subprocess.Popen(
                [binary, *arguments], cwd=folder, env=environment,
                start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                # A bug may allocate or write without end.
                for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
                    resource.prlimit(process.pid, kind, (MOST, MOST))
                return "passed" if process.wait(limit) == 0 else "failed"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "hangs"
            finally:
                end_what_is_left(scratch)

    def is_sound(self, label, limit):
        """Whether it passes without a bug within the limit. Runs it only once."""
        with self.locks[label]:
            if label in self.sound:
                return self.sound[label]
            what = [self.built_at(label), limit, *self.how[label]]
            if label not in self.known or self.known[label][0] != what:
                begin = time.monotonic()
                with tempfile.NamedTemporaryFile("r") as reached:
                    outcome = self.run(label, 0, limit, reached.name)
                    numbers = sorted({int(line) for line in reached})
                mark = os.path.join(self.tree, MARK)
                with self.mark_lock:
                    self.known[label] = (what, outcome,
                                         time.monotonic() - begin, numbers)
                    with open(mark + ".new", "w") as f:
                        json.dump(self.known, f)
                    os.replace(mark + ".new", mark)
            _, outcome, self.seconds[label], self.reached[label] = (
                self.known[label])
            self.sound[label] = outcome == "passed"
            if not self.sound[label]:
                print(f"plant.py: {label} {outcome} without any bug; left out",
                      file=sys.stderr)
            return self.sound[label]

    def still_sound(self, label):
        """Whether it also passes without a bug under this load. If not, the bug
        is not the reason for its failure, and the test is left out from now on."""
        with self.locks[label]:
            if self.sound[label] and self.run(
                    label, 0, 30 + 5 * self.seconds[label]) != "passed":
                self.sound[label] = False
                print(f"plant.py: {label} fails without any bug now; left out",
                      file=sys.stderr)
            return self.sound[label]

    def notice(self, bug, seconds):
        """The first test that fails and its outcome, the number of tests that ran
        with the bug, and the seconds that they took."""
        took, ran = 0, 0
        for label in self.order(bug):
            expected = label.rpartition(":")[2] in bug.tests
            if took + self.seconds[label] > seconds and not expected:
                continue
            if not self.is_sound(label, 600 if expected else seconds):
                continue
            if bug.number not in self.reached[label] and not expected:
                continue
            ran += 1
            begin = time.monotonic()
            # A bug may make a test hang.
            outcome = self.run(label, bug.number, 30 + 5 * self.seconds[label])
            took += time.monotonic() - begin
            if outcome != "passed" and self.still_sound(label):
                return f"{label} {outcome}", ran, took
        return None, ran, took

    def order(self, bug):
        """The tests in this order: those expected to fail, those named after the
        file, those that include its header, then the quick ones. Tests of the
        same folder come somewhat earlier, and so do tests that share words with
        the file's path."""
        file = bug.edits[0][0].removeprefix("dtensor/")
        layer = file.split("/")[0]
        stem = os.path.splitext(os.path.basename(file))[0]
        words = set(re.split(r"\W|_", file))

        def rank(label):
            name = label.rpartition(":")[2]
            package = label.removeprefix("//tests/").split(":")[0]
            near = package.split("/")[0] == layer
            hint = bug.tests.index(name) if name in bug.tests else len(bug.tests)
            of_file = name.rpartition("/")[2] in (f"{stem}_test", f"{stem}s_test")
            shared = len(words & set(re.split("[_/]", name)))
            # A test that takes no time hardly runs the library.
            took = self.seconds[label]
            seconds = took if took >= 0.1 else 1
            includes = os.path.splitext(file)[0] in self.headers[label]
            return (hint, not of_file, not includes,
                    seconds * (1 if near else 5) / 4**shared)

        return sorted(self.labels, key=rank)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--random", type=int, metavar="N",
                        help="plant N random edits")
    parser.add_argument("--seed", type=int, default=0,
                        help="the seed of --random (default: %(default)s)")
    parser.add_argument("--folder", metavar="DIR",
                        help="with --random: edit only files below this folder")
    parser.add_argument("--only", type=ranges, metavar="LIST",
                        help="plant these bugs: numbers and ranges")
    parser.add_argument("--list", action="store_true",
                        help="print the bugs and stop")
    parser.add_argument("--check", action="store_true",
                        help="try the edits without building")
    parser.add_argument("--tree", metavar="DIR",
                        help="build in this folder, which is overwritten, and "
                        "keep it for the next run (default: a temporary one)")
    parser.add_argument("--near", type=int, metavar="N",
                        help="build and run only the N tests that are the most "
                        "likely to notice a bug")
    parser.add_argument("--output-base", metavar="DIR",
                        help="Bazel's output base; that of a tree that is built "
                        "saves most of the build")
    parser.add_argument("--seconds", type=float, default=120, metavar="S",
                        help="the most time for the tests of one bug; tests that "
                        "are expected to notice it run regardless (default: "
                        "%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N",
                        help="bugs at the same time (default: %(default)s)")
    parser.add_argument("--share", type=float, default=95, metavar="PERCENT",
                        help="the share of noticed bugs for exit status 0 "
                        "(default: %(default)s)")
    parser.add_argument("--json", metavar="FILE",
                        help="write the outcomes to this file, after each bug")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; write 1 or more")
    if options.near is not None and options.near < 1:
        parser.error(f"--near is {options.near}; write 1 or more")
    if options.output_base:
        BAZEL.append("--output_base=" + os.path.abspath(options.output_base))
    if options.random is None and (options.seed or options.folder):
        parser.error("--seed and --folder need --random; write --random N, too")

    root = repository()
    planted = BUGS
    if options.random is not None:
        planted = drawn(root, options, parser)
    bugs = planted
    if options.only:
        bugs = selected(planted, options.only, parser)
    if options.list:
        for bug in bugs:
            print(f"{bug.number:4} {bug.edits[0][0]}: {bug.what}")
        return 0
    _, impossible = edited(root, planted)
    stale = [b for b in bugs if b.number in impossible]
    for bug in stale:
        print(f"plant.py: bug {bug.number} ({bug.what}) cannot be planted: "
              f"{impossible[bug.number]}", file=sys.stderr)
    if stale or options.check:
        print(f"{len(bugs) - len(stale)} of {len(bugs)} bugs can be planted")
        return 1 if stale else 0

    tree = options.tree or tempfile.mkdtemp(prefix="dtensor-planted-")
    try:
        outcomes = run(root, tree, planted, bugs, options)
    finally:
        if not options.tree:
            end = "shutdown" if options.output_base else "clean --expunge"
            subprocess.run([*BAZEL, *end.split()], cwd=tree, check=False)
            shutil.rmtree(tree, ignore_errors=True)
    if options.random is not None:
        print_folders(outcomes)
    ran = [o for o in outcomes if o["outcome"] != "dropped"]
    missed = [o for o in ran if o["outcome"] == "not noticed"]
    for o in missed:
        print(f"not noticed: {o['number']} {o['file']}: {o['what']}")
    noticed = len(ran) - len(missed)
    print(f"{noticed} of {len(ran)} bugs noticed")
    return 0 if noticed * 100 >= options.share * len(ran) else 1


def drawn(root, options, parser):
    bugs = random_bugs.draw(
        random_bugs.sources(root, listed(root), options.folder or ""),
        options.random, options.seed)
    if not 1 <= options.random < MOST_BUGS or len(bugs) < options.random:
        parser.error(f"--random is {options.random}; write 1 to {MOST_BUGS - 1}, "
                     "and not more bugs than the sources allow, here "
                     f"{len(bugs)}")
    return bugs


def print_folders(outcomes):
    table = collections.defaultdict(collections.Counter)
    for o in outcomes:
        for row in (os.path.dirname(o["file"]), "all"):
            table[row][o["outcome"]] += 1
    columns = "noticed", "not noticed", "dropped"
    width = max(map(len, table))
    print(" " * width, *columns, sep="  ")
    for row in sorted(table, key=lambda row: (row == "all", row)):
        print(row.ljust(width),
              *(str(table[row][c]).rjust(len(c)) for c in columns), sep="  ")


def write_edits(root, tree, bugs):
    copy_tree(root, tree)
    for file, text in edited(root, bugs)[0].items():
        with open(os.path.join(tree, file), "w") as f:
            f.write(with_switch(text))


def plant(root, tree, bugs, labels):
    """Builds the tree with the bugs in it. Returns the bugs that compile."""
    while True:
        print(f"plant.py: building {len(bugs)} bugs", flush=True)
        write_edits(root, tree, bugs)
        output = build(tree, labels)
        if not output:
            return bugs
        bad = culprits(output, bugs)
        if not bad or any(not b.line for b in bugs if b.number in bad):
            sys.exit(f"{output}plant.py: the tree with the bugs in it does not "
                     "build")
        print(f"plant.py: {len(bad)} edits do not compile", flush=True)
        bugs = [b for b in bugs if b.number not in bad]


def run(root, tree, planted, bugs, options):
    outcomes = []

    def record(bug, outcome, **more):
        outcomes.append({"number": bug.number, "what": bug.what,
                         "file": bug.edits[0][0], "outcome": outcome, **more})
        if bug.line:
            outcomes[-1].update(line=bug.line, kind=bug.kind,
                                original=bug.original, edited=bug.edited)
        if options.json:
            with open(options.json + ".new", "w") as f:
                json.dump(outcomes, f, indent=1)
            os.replace(options.json + ".new", options.json)

    copy_tree(root, tree)
    tests = Tests(root, tree)
    # The pattern leaves out tests that need something that this machine lacks.
    labels = ["//tests/..."]
    if options.near:
        tests.keep_near(bugs, options.near)
        labels = tests.labels
    compiled = plant(root, tree, planted, labels)
    for bug in bugs:
        if bug not in compiled:
            record(bug, "dropped", noticed_by=None)
    bugs = [b for b in bugs if b in compiled]
    tests.are_built()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        bug_of = {pool.submit(tests.notice, b, options.seconds): b for b in bugs}
        for i, done in enumerate(concurrent.futures.as_completed(bug_of), 1):
            bug, (fell, ran, took) = bug_of[done], done.result()
            record(bug, "noticed" if fell else "not noticed", noticed_by=fell,
                   tests=ran, seconds=round(took))
            print(f"[{i}/{len(bugs)}] {bug.number} {bug.edits[0][0]}: "
                  f"{bug.what}: "
                  f"{fell or 'NOT NOTICED'} ({ran} tests, {took:.0f} s)",
                  flush=True)
    return sorted(outcomes, key=lambda o: o["number"])


if __name__ == "__main__":
    sys.exit(main())
