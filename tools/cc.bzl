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

def _linked(ctx):
    return [CcInfo(linking_context = ctx.attr.dep[CcInfo].linking_context)]

_linked_library = rule(
    implementation = _linked,
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
    doc = "A library without its headers, and those of what it needs.",
)

def cc_library(
        name,
        copts = [],
        deps = [],
        implementation_deps = [],
        hdrs = [],
        visibility = None,
        **kwargs):
    """implementation_deps, which Debian's Bazel has not: what its .cc files
    alone include. Who depends on this library does not see them, and does not
    carry their headers, hundreds in some, to each compiler's sandbox."""
    compiled = name + "_compiled" if implementation_deps else name
    _cc_library(
        name = compiled,
        copts = _COPTS + copts,
        hdrs = hdrs,
        deps = deps + implementation_deps,
        visibility = ["//visibility:private"] if implementation_deps else visibility,
        **kwargs
    )
    if not implementation_deps:
        return
    _linked_library(name = name + "_linked", dep = compiled)
    _cc_library(
        name = name,
        hdrs = hdrs,
        deps = deps + [name + "_linked"],
        visibility = visibility,
    )

def cc_binary(copts = [], **kwargs):
    _cc_binary(copts = _COPTS + copts, **kwargs)
