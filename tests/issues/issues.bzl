"""Tests of this folder that need nothing special."""

def issue_tests():
    """One cc_test for each *_test.cc that no rule above this call is named after."""
    for source in native.glob(["*_test.cc"]):
        name = source[:-len(".cc")]
        if native.existing_rule(name):
            continue
        native.cc_test(
            name = name,
            srcs = [source],
            deps = [
                "//:dtensor",
                "//tests:testing",
                "@googletest//:gtest_main",
            ],
        )
