"""cc_library and cc_binary as this library's targets use them.

C++20 stands here and not in .bazelrc alone, which a workspace that depends on
this one does not read.
"""

load(
    "@rules_cc//cc:defs.bzl",
    _cc_binary = "cc_binary",
    _cc_library = "cc_library",
)

_COPTS = ["-std=c++20"]

def cc_library(copts = [], **kwargs):
    _cc_library(copts = _COPTS + copts, **kwargs)

def cc_binary(copts = [], **kwargs):
    _cc_binary(copts = _COPTS + copts, **kwargs)
