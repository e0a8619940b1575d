#!/usr/bin/env python3
"""Counts the test cases of one `bazel test` run.

Reads the file that `bazel test --build_event_json_file=FILE` writes, and the
test.xml of each test that it names, so that results which an earlier run left
behind do not count. Prints a line for each target that failed, and as its last
line "N passed, N failed", with ", N skipped" when there are skipped ones.

  - A GoogleTest binary counts its cases; a disabled case counts as skipped.
  - Any other test counts as one case.
  - A target that was not built, crashed, ran out of time, or left no readable
    result counts as at least one failed, and so does Bazel when it failed for
    a reason that is none of these (a BUILD file that does not parse).

Exit status: 0 when something passed and nothing failed, 1 otherwise, 2 when
the command line is wrong.
"""

import argparse
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


class Count:
    """Cases of one target, and why it failed beyond what its cases say."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed = passed
        self.failed = failed
        self.skipped = skipped
        self.reason = ""

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def must_fail(self, reason):
        """Makes this a failure even if no single case is one."""
        self.failed = max(self.failed, 1)
        self.reason = self.reason or reason


def count_xml(path):
    """The cases in one test.xml, of GoogleTest or of Bazel itself."""
    count = Count()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        # A case may hold several failures; it is one case all the same.
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            count.skipped += 1
        else:
            count.passed += 1
    return count


def local_path(uri):
    parts = urllib.parse.urlparse(uri)
    return urllib.parse.unquote(parts.path) if parts.scheme == "file" else uri


def count_result(result):
    """The cases of one run of one shard of one test."""
    status = result.get("status", "NO_STATUS")
    paths = [
        local_path(f.get("uri", ""))
        for f in result.get("testActionOutput", [])
        if f.get("name") == "test.xml"
    ]
    count = Count()
    try:
        for path in paths:
            count.add(count_xml(path))
    except (OSError, ElementTree.ParseError) as error:
        count.must_fail("no readable test.xml: %s" % error)
    if not paths:
        count.must_fail("no test.xml")
    if status not in ("PASSED", "FLAKY"):
        count.must_fail(status)
    return count


def read_events(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                return  # cut short: Bazel died, and "finished" is missing


def count_run(events):
    """(label -> Count, whether Bazel came to its end, its exit code)."""
    tests = set()
    not_built = {}
    skipped = set()
    results = {}
    finished, exit_code = False, 0
    for event in events:
        ids = event["id"]
        if "targetConfigured" in ids:
            if "testSize" in event.get("configured", {}):
                tests.add(ids["targetConfigured"]["label"])
        elif "targetCompleted" in ids:
            label = ids["targetCompleted"]["label"]
            if event.get("aborted", {}).get("reason") == "SKIPPED":
                skipped.add(label)
            elif not event.get("completed", {}).get("success", False):
                not_built[label] = "not built"
        elif "testResult" in ids:
            key = ids["testResult"]
            shard = (key.get("run", 1), key.get("shard", 1))
            attempts = results.setdefault(key["label"], {})
            # A later attempt of a flaky test takes the place of an earlier.
            old = attempts.get(shard)
            if old is None or old[0] <= key.get("attempt", 1):
                attempts[shard] = (key.get("attempt", 1), event["testResult"])
        elif "buildFinished" in ids:
            finished = True
            exit_code = event["finished"].get("exitCode", {}).get("code", 0)

    counts = {}
    for label in tests | set(not_built) | set(results) | skipped:
        count = counts[label] = Count()
        for _, result in results.get(label, {}).values():
            one = count_result(result)
            count.add(one)
            count.reason = count.reason or one.reason
        if label in not_built:
            count.must_fail(not_built[label])
        elif label in skipped and label in tests:
            count.skipped += 1
        elif label in tests and label not in results:
            count.must_fail("not run")
    return counts, finished, exit_code


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "events", help="what bazel test --build_event_json_file wrote"
    )
    parser.add_argument(
        "--also-failed",
        type=int,
        default=0,
        metavar="N",
        help="add N failures of checks that Bazel does not run",
    )
    args = parser.parse_args()
    if args.also_failed < 0:
        parser.error("--also-failed takes a number from 0 up")

    total = Count(failed=args.also_failed)
    try:
        counts, finished, exit_code = count_run(read_events(args.events))
    except OSError as error:
        print("count_tests: no events: %s" % error)
        counts, finished, exit_code = {}, False, 0
    for label in sorted(counts):
        count = counts[label]
        total.add(count)
        if count.failed:
            reason = " (%s)" % count.reason if count.reason else ""
            print("FAILED %s: %d failed%s" % (label, count.failed, reason))
    if not finished:
        print("FAILED bazel: it did not come to its end")
        total.failed += 1
    elif exit_code != 0 and not any(c.failed for c in counts.values()):
        print("FAILED bazel: exit code %d" % exit_code)
        total.failed += 1

    line = "%d passed, %d failed" % (total.passed, total.failed)
    if total.skipped:
        line += ", %d skipped" % total.skipped
    print(line)
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
