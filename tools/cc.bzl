# SPDX-License-Identifier: Apache-2.0
"""cc_library and cc_binary for all targets of this library.

A header of placement/, ops/, nn/ or program/ is included as
dtensor/placement/x.h and so on, in this workspace and in others, so that no
folder of a user can hide it. For this, each of these packages has an include
folder of links.

The flag for C++20 is here as well as in .bazelrc, because a workspace that
depends on this one does not read our .bazelrc.
"""

load(
    "@rules_cc//cc:defs.bzl",
    _cc_binary = "cc_binary",
    _cc_library = "cc_library",
)

_COPTS = ["-std=c++20"]

# Vectorizes plain loops. With -O2 alone, GCC does not do so if it does not know
# their length; clang does so by default.
VECTORIZED = ["-ftree-vectorize"] + select({
    "//tools:clang": [],
    "//conditions:default": ["-fvect-cost-model=dynamic"],
})

# dtensor.h is in the root package, "".
_BESIDE_DTENSOR = ["placement", "ops", "nn", "program", ""]

def _links(ctx):
    package = [ctx.label.package] if ctx.label.package else []
    links = []
    for header in ctx.files.hdrs + ctx.files.private_hdrs:
        # A generated file is owned by its rule.
        name = header.owner.name if header.is_source else header.basename
        link = ctx.actions.declare_file(
            "/".join(["_include/dtensor"] + package + [name]),
        )
        ctx.actions.symlink(output = link, target_file = header)
        links.append(link)
    root = [ctx.label.workspace_root] if ctx.label.workspace_root else []
    folder = [ctx.bin_dir.path] + root + package + ["_include"]
    return [
        DefaultInfo(files = depset(links)),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset(links),
            includes = depset(["/".join(folder)]),
        )),
    ]

_header_links = rule(
    implementation = _links,
    attrs = {
        "hdrs": attr.label_list(allow_files = True),
        "private_hdrs": attr.label_list(
            allow_files = True,
            doc = "Headers that //:dist leaves out.",
        ),
    },
    doc = "Headers under the name dtensor/PACKAGE/x.h.",
)

def _linked(ctx):
    return [CcInfo(linking_context = ctx.attr.dep[CcInfo].linking_context)]

_linked_library = rule(
    implementation = _linked,
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
    doc = "A library without its own headers and those of its dependencies.",
)

def cc_library(
        name,
        srcs = [],
        hdrs = [],
        textual_hdrs = [],
        copts = [],
        deps = [],
        implementation_deps = [],
        visibility = None,
        **kwargs):
    """A cc_library with implementation_deps, which Debian's Bazel lacks.

    Only the library's .cc files include implementation_deps. Targets that
    depend on the library do not see them, and do not copy their headers,
    sometimes hundreds, into the sandbox of each compiler.
    """
    testonly = kwargs.get("testonly", False)
    package = native.package_name()
    if package.split("/")[0] in _BESIDE_DTENSOR:
        private = [f for f in srcs if f.endswith((".h", ".inc"))]
        srcs = [f for f in srcs if f not in private]
        if hdrs + textual_hdrs:
            links = name + "_headers"
            _header_links(name = links, hdrs = hdrs + textual_hdrs, testonly = testonly)
            deps = deps + [links]
            if package:
                hdrs, textual_hdrs = [], []
        if private:
            links = name + "_private_headers"
            _header_links(name = links, private_hdrs = private, testonly = testonly)
            implementation_deps = implementation_deps + [links]
    if srcs and not copts:  # with other options, it would not be used
        copts = ["-include", "dtensor_std.h", "-Winvalid-pch"]
        implementation_deps = implementation_deps + [Label("//tools:std")]
    compiled = name + "_compiled" if implementation_deps else name
    _cc_library(
        name = compiled,
        srcs = srcs,
        hdrs = hdrs,
        textual_hdrs = textual_hdrs,
        copts = _COPTS + copts,
        deps = deps + implementation_deps,
        visibility = ["//visibility:private"] if implementation_deps else visibility,
        **kwargs
    )
    if not implementation_deps:
        return
    _linked_library(name = name + "_linked", dep = compiled, testonly = testonly)
    _cc_library(
        name = name,
        hdrs = hdrs,
        textual_hdrs = textual_hdrs,
        deps = deps + [name + "_linked"],
        visibility = visibility,
        testonly = testonly,
    )

def cc_binary(copts = [], **kwargs):
    _cc_binary(copts = _COPTS + copts, **kwargs)
