# SPDX-License-Identifier: Apache-2.0
"""The headers that a library's users see, for a test that reads them."""

def _public_headers(ctx):
    all = ctx.attr.dep[CcInfo].compilation_context.headers.to_list()
    ours = [f for f in all if not f.owner.workspace_name]

    # Links (tools/cc.bzl) get the names of the headers that they stand for.
    return [DefaultInfo(runfiles = ctx.runfiles(
        files = [f for f in ours if f.is_source],
        symlinks = {
            f.short_path.rpartition("_include/dtensor/")[2]: f
            for f in ours
            if not f.is_source and f.basename != "dtensor.h"
        },
    ))]

public_headers = rule(
    implementation = _public_headers,
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
    doc = "All headers of this workspace that `dep` brings along.",
)
