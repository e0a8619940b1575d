# SPDX-License-Identifier: Apache-2.0
"""Tests as this tree's folders write them."""

def dt_test(name, library = "//:dtensor", deps = [], srcs = [], precompiled = True, **kwargs):
    """The cc_test of NAME.cc, on the library and on tests/testing.h.

    Args:
      name: the test's, and its source's without ".cc"; it may begin with a folder.
      library: the floor that it tests, or a higher one that it needs.
      deps: what it needs beside that.
      srcs: further sources.
      precompiled: false if .bazelrc has the optimizer on for it.
      **kwargs: as always.
    """
    native.cc_test(
        name = name,
        srcs = [name + ".cc"] + srcs,
        deps = deps + [
            library,
            "//tests:testing",
            "@googletest//:gtest_main",
        ] + (["//tests:std"] if precompiled else []),
        copts = ["-include", "dtensor_test_std.h", "-Winvalid-pch"] if precompiled else [],
        **kwargs
    )

def dt_tests(library = "//:dtensor", deps = [], exclude = [], **kwargs):
    """A dt_test for each *_test.cc that no rule above this call is named after."""
    for source in native.glob(["**/*_test.cc"], exclude):
        name = source[:-len(".cc")]
        if not native.existing_rule(name):
            dt_test(name, library, deps, **kwargs)
