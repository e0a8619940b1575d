#!/usr/bin/env python3
"""Plants bugs into a copy of the tree and reports which tests fall.

Every bug of planted_bugs.py is an edit that does nothing until the environment
variable DTENSOR_PLANTED holds its number, so one build holds them all. For each
bug the tests run until one falls: those that are expected to notice it, then
the quick ones, those of its folder before others. A bug that no test notices is
a test that is missing.

    tools/plant.py                     every bug
    tools/plant.py --only 17,40-60     some
    tools/plant.py --list              their numbers and what they break
    tools/plant.py --check             are all edits still possible?

To look at one bug, build with --tree DIR and run a test of DIR/bazel-bin with
DTENSOR_PLANTED=NUMBER.

Takes half an hour on two cores, most of it to build. The last line is "N of M
bugs noticed"; the exit status is 0 when --share percent of them are, 1 when
fewer are or an edit is not possible any more, 2 on bad input.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from xml.etree import ElementTree

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from planted_bugs import BUGS  # noqa: E402

VARIABLE = "DTENSOR_PLANTED"
# In a folder that this script made, and may overwrite: how long its tests take.
MARK = ".planted"
# Read once: the edits stand in inner loops too.
SWITCH = f"""
#ifndef DTENSOR_PLANTED_SWITCH
#define DTENSOR_PLANTED_SWITCH
#include <cstdlib>
inline bool planted(int k) {{
  static const char* text = std::getenv("{VARIABLE}");
  static const int number = text ? std::atoi(text) : 0;
  return number == k;
}}
#define MUT(k) planted(k)
#endif
"""


def repository():
    here = os.path.dirname(os.path.abspath(__file__))
    return subprocess.check_output(
        ["git", "-C", here, "rev-parse", "--show-toplevel"], text=True).strip()


def numbers(text):
    chosen = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        try:
            chosen |= set(range(int(low), int(high or low) + 1))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"'{part}' is no number and no range; write --only 3,10-20")
    unknown = chosen - {bug.number for bug in BUGS}
    if "-" not in text and unknown:
        raise argparse.ArgumentTypeError(
            f"there is no bug {sorted(unknown)[0]}; --list shows them")
    return chosen


def edited(root):
    """The files with all edits in them, and why bugs cannot be planted."""
    texts, impossible = {}, {}
    for bug in BUGS:
        own = {}
        for file, old, new in bug.edits:
            path = os.path.join(root, file)
            text = own.get(file) or texts.get(file)
            if text is None and os.path.exists(path):
                with open(path) as f:
                    text = f.read()
            found = (text or "").count(old)
            if found != 1:
                impossible[bug.number] = f"{file}: {found} places say {old!r}"
                break
            own[file] = text.replace(old, new)
        else:
            texts.update(own)
    return texts, impossible


def with_switch(text):
    at = text.find("#pragma once")
    if at < 0:
        return SWITCH.lstrip("\n") + text
    at = text.index("\n", at) + 1
    return text[:at] + SWITCH + text[at:]


def copy_tree(root, to):
    mark = os.path.join(to, MARK)
    if not os.path.exists(mark):
        if os.path.isdir(to) and os.listdir(to):
            sys.exit(f"plant.py: {to} holds files that are not this script's and "
                     "would be removed; name an empty folder")
        os.makedirs(to, exist_ok=True)
        with open(mark, "w") as f:
            f.write("{}")
    files = subprocess.check_output(
        ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"])
    wanted = {f for f in files.decode().split("\0") if f}
    for file in wanted:
        source, target = os.path.join(root, file), os.path.join(to, file)
        if not os.path.isfile(source):
            continue
        with open(source, "rb") as f:
            content = f.read()
        # Untouched files keep their time, so that a second run builds little.
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


def how_to_run(rule):
    """The arguments and the environment of a cc_test."""
    def expanded(text):
        return re.sub(r"\$\(rootpath @(\w+)//:([^)]*)\)", r"external/\1/\2", text)

    arguments = [expanded(x.get("value"))
                 for x in rule.findall("list[@name='args']/string")]
    environment = {}
    for pair in rule.findall("dict[@name='env']/pair"):
        name, value = (x.get("value") for x in pair)
        environment[name] = expanded(value)
    return arguments, environment


def end_what_is_left(scratch):
    """Ends what a test left behind, in sessions of their own too."""
    mark = f"TEST_TMPDIR={scratch}".encode()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as f:
                if mark in f.read().split(b"\0"):
                    os.kill(int(process), signal.SIGKILL)
        except OSError:
            pass  # it has ended, or is another user's


class Tests:
    """The built tests, run outside of Bazel."""

    def __init__(self, tree):
        self.tree = tree
        rules = ElementTree.fromstring(subprocess.check_output(
            ["bazel", "query", "--noshow_progress", "--output=xml",
             "kind('cc_test rule', //tests/...) except attr(tags, manual, //tests/...)"],
            cwd=tree))
        # All by a pattern, which leaves out those that need what is not here:
        # CUDA's headers, say.
        built = subprocess.run(
            ["bazel", "build", "--noshow_progress", "--build_tests_only",
             "//tests/..."], cwd=tree)
        if built.returncode:
            sys.exit("plant.py: the tree with the bugs in it does not build")
        self.how = {rule.get("name"): how_to_run(rule)
                    for rule in rules.iter("rule")}
        self.labels = [x for x in self.how if os.path.exists(self.binary(x))]
        # The tests need its memory more.
        subprocess.run(["bazel", "shutdown"], cwd=tree, check=True)

    def binary(self, label):
        return os.path.join(self.tree, "bazel-bin",
                            label.removeprefix("//").replace(":", "/"))

    def run(self, label, bug=0, limit=600):
        """ "passed", "failed" (a crash too) or "hangs"."""
        binary = self.binary(label)
        folder = os.path.join(binary + ".runfiles", "dtensor")
        with tempfile.TemporaryDirectory() as scratch:
            arguments, own = self.how[label]
            environment = dict(os.environ, TEST_TMPDIR=scratch,
                               TEST_SRCDIR=os.path.dirname(folder),
                               GTEST_FAIL_FAST="1", **own)
            environment.pop(VARIABLE, None)
            if bug:
                environment[VARIABLE] = str(bug)
            process = subprocess.Popen(
                [binary, *arguments], cwd=folder, env=environment,
                start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                return "passed" if process.wait(limit) == 0 else "failed"
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "hangs"
            finally:
                end_what_is_left(scratch)

    def keep_sound(self, pool):
        """Runs all without a bug, and leaves out those that fail."""
        mark = os.path.join(self.tree, MARK)
        with open(mark) as f:
            known = json.load(f)

        def timed(label):
            what = [os.path.getmtime(self.binary(label)), *self.how[label]]
            if label in known and known[label][0] == what:
                return
            begin = time.monotonic()
            outcome = self.run(label)
            known[label] = what, outcome, time.monotonic() - begin

        for i, _ in enumerate(pool.map(timed, self.labels)):
            if sys.stderr.isatty():
                print(f"\rwithout a bug: {i + 1} of {len(self.labels)} tests",
                      end="", file=sys.stderr)
        with open(mark, "w") as f:
            json.dump(known, f)
        self.seconds = {}
        for label in self.labels:
            _, outcome, self.seconds[label] = known[label]
            if outcome != "passed":
                print(f"plant.py: {label} {outcome} without any bug; left out",
                      file=sys.stderr)
        self.labels = [x for x in self.labels if known[x][1] == "passed"]

    def notice(self, bug, seconds):
        """The first test that falls, and how; and how long that took."""
        begin = time.monotonic()
        for label in self.order(bug):
            expected = label.rpartition(":")[2] in bug.tests
            end = time.monotonic() - begin + self.seconds[label]
            if end > seconds and not expected:
                continue
            # A bug may make a test hang.
            outcome = self.run(label, bug.number, 30 + 5 * self.seconds[label])
            if outcome != "passed":
                return f"{label} {outcome}", time.monotonic() - begin
        return None, time.monotonic() - begin

    def order(self, bug):
        """Those expected to fall, then the quick ones; near ones a bit earlier."""
        layer = bug.edits[0][0].removeprefix("dtensor/").split("/")[0]

        def rank(label):
            name = label.rpartition(":")[2]
            package = label.removeprefix("//tests/").split(":")[0]
            near = package.split("/")[0] in (layer, "issues")
            hint = bug.tests.index(name) if name in bug.tests else len(bug.tests)
            return hint, self.seconds[label] * (1 if near else 5)

        return sorted(self.labels, key=rank)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=numbers, metavar="LIST",
                        help="these bugs: numbers and ranges")
    parser.add_argument("--list", action="store_true",
                        help="prints the bugs and stops")
    parser.add_argument("--check", action="store_true",
                        help="tries the edits, builds nothing")
    parser.add_argument("--tree", metavar="DIR",
                        help="builds in this folder, which is overwritten, and "
                        "keeps it for the next time (default: a temporary one)")
    parser.add_argument("--seconds", type=float, default=120, metavar="S",
                        help="begins no test for a bug that would take longer "
                        "in all, but for those expected to notice it (default: "
                        "%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N",
                        help="bugs at a time (default: %(default)s)")
    parser.add_argument("--share", type=float, default=95, metavar="PERCENT",
                        help="of noticed bugs for exit status 0 "
                        "(default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="writes the outcomes")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs {options.jobs}: at least 1")

    bugs = [b for b in BUGS if not options.only or b.number in options.only]
    if options.list:
        for bug in bugs:
            print(f"{bug.number:4} {bug.edits[0][0]}: {bug.what}")
        return 0
    root = repository()
    texts, impossible = edited(root)
    stale = [b for b in bugs if b.number in impossible]
    for bug in stale:
        print(f"plant.py: bug {bug.number} ({bug.what}) cannot be planted: "
              f"{impossible[bug.number]}", file=sys.stderr)
    if stale or options.check:
        print(f"{len(bugs) - len(stale)} of {len(bugs)} bugs can be planted")
        return 1 if stale else 0

    tree = options.tree or tempfile.mkdtemp(prefix="dtensor-planted-")
    try:
        outcomes = run(root, tree, texts, bugs, options)
    finally:
        if not options.tree:
            subprocess.run(["bazel", "clean", "--expunge"], cwd=tree, check=False)
            shutil.rmtree(tree, ignore_errors=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(outcomes, f, indent=1)
    missed = [o for o in outcomes if not o["noticed_by"]]
    for o in missed:
        print(f"not noticed: {o['number']} {o['what']}")
    noticed = len(outcomes) - len(missed)
    print(f"{noticed} of {len(outcomes)} bugs noticed")
    return 0 if noticed * 100 >= options.share * len(outcomes) else 1


def run(root, tree, texts, bugs, options):
    copy_tree(root, tree)
    for file, text in texts.items():
        with open(os.path.join(tree, file), "w") as f:
            f.write(with_switch(text))
    tests = Tests(tree)
    outcomes = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tests.keep_sound(pool)
        found = pool.map(lambda b: tests.notice(b, options.seconds), bugs)
        for bug, (fell, took) in zip(bugs, found):
            outcomes.append({"number": bug.number, "what": bug.what,
                             "noticed_by": fell, "seconds": round(took)})
            print(f"[{len(outcomes)}/{len(bugs)}] {bug.number} {bug.what}: "
                  f"{fell or 'NOT NOTICED'} ({took:.0f} s)", flush=True)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
