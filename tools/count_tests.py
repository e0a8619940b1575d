#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the test cases of one `bazel test` run.

Reads the file that `bazel test --build_event_json_file=FILE` writes and the
test.xml of each test in it, so that results of earlier runs do not count. Prints
a line for each target that failed, and at the end "N passed, N failed", with
", N skipped" if any were skipped.

  - A GoogleTest binary counts its cases; a disabled case counts as skipped.
  - Any other test counts as one case.
  - A target that was not built, crashed, ran out of time, or left no readable
    result counts as at least one failure. So does Bazel if it failed for any
    other reason, such as a BUILD file that does not parse.

Exit status: 0 if something passed and nothing failed, 2 if the command line is
wrong, 1 otherwise.
"""

import argparse
import json
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


class Count:
    """The cases of one target, and the reason if the target itself failed."""

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
        """Counts at least one failure, even if no case failed."""
        self.failed = max(self.failed, 1)
        self.reason = self.reason or reason


def count_xml(path):
    """The cases in one test.xml, written by GoogleTest or by Bazel."""
    count = Count()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        # A case may have several failures, but counts once.
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
                return  # cut off: Bazel died before "finished"


def count_run(events):
    """(label -> Count, whether Bazel finished, its exit code)."""
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
            # A later attempt of a flaky test replaces an earlier one.
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
        "events", help="the file that bazel test --build_event_json_file wrote"
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
        parser.error("--also-failed is negative; write 0 or more")

    total = Count(failed=args.also_failed)
    try:
        counts, finished, exit_code = count_run(read_events(args.events))
    except OSError as error:
        print("count_tests: cannot read the events: %s" % error)
        counts, finished, exit_code = {}, False, 0
    for label in sorted(counts):
        count = counts[label]
        total.add(count)
        if count.failed:
            reason = " (%s)" % count.reason if count.reason else ""
            print("FAILED %s: %d failed%s" % (label, count.failed, reason))
    if not finished:
        print("FAILED bazel: it did not finish")
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
