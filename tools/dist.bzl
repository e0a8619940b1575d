# SPDX-License-Identifier: Apache-2.0
"""The archive for people who do not use Bazel."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

_Headers = provider(fields = ["files"])

# The headers in `hdrs` of this repository's targets. Those in `srcs` are
# private.
def _headers_of(_target, ctx):
    deps = list(getattr(ctx.rule.attr, "deps", []))
    if getattr(ctx.rule.attr, "actual", None):
        deps.append(ctx.rule.attr.actual)
    own = []
    for target in getattr(ctx.rule.attr, "hdrs", []):
        own += [f for f in target.files.to_list() if not f.owner.workspace_name]
    return [_Headers(files = depset(
        own,
        transitive = [d[_Headers].files for d in deps if _Headers in d],
    ))]

_headers = aspect(implementation = _headers_of, attr_aspects = ["deps", "actual"])

def _dist(ctx):
    library, name = ctx.attr.library, ctx.attr.name_of_all
    # dtensor/x.h keeps its path; dtensor.h and the other folders go below
    # dtensor/.
    headers = [
        (f, path if path.startswith(name + "/") else name + "/" + path)
        for f in library[_Headers].files.to_list()
        for path in [f.short_path]
    ]
    archives, flags = [], []
    for linked in library[CcInfo].linking_context.linker_inputs.to_list():
        # Only the flags of MPI, which is optional; the templates name the
        # others.
        if linked.owner.workspace_name.endswith("mpi"):
            flags += linked.user_link_flags
        for one in linked.libraries:
            archives.append(one.static_library or one.pic_static_library)
    archive = ctx.actions.declare_file(
        "%s-%s.tar.gz" % (ctx.attr.name_of_all, ctx.attr.version),
    )
    lists = ctx.actions.declare_file(ctx.label.name + ".files")
    ctx.actions.write(lists, "".join(
        ["header %s %s\n" % (f.path, path) for f, path in headers] +
        ["archive %s\n" % f.path for f in archives] +
        ["flag %s\n" % f for f in flags] +
        ["template %s\n" % f.path for f in ctx.files.templates],
    ))
    toolchain = find_cpp_toolchain(ctx)
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [
            ctx.attr.name_of_all,
            ctx.attr.version,
            toolchain.ar_executable,
            lists.path,
            archive.path,
        ],
        inputs = depset(
            [f for f, _ in headers] + archives + [lists] + ctx.files.templates,
            transitive = [toolchain.all_files],
        ),
        outputs = [archive],
        mnemonic = "Pack",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([archive]))]

dist = rule(
    implementation = _dist,
    attrs = {
        "library": attr.label(mandatory = True, aspects = [_headers]),
        "name_of_all": attr.string(
            mandatory = True,
            doc = "The name of the archive, the folder of headers, and the library.",
        ),
        "version": attr.string(mandatory = True),
        "templates": attr.label_list(
            allow_files = True,
            doc = "NAME.in, in which @VERSION@ is replaced, for *.cmake and *.pc.",
        ),
        "_pack": attr.label(
            default = "//tools:pack",
            executable = True,
            cfg = "exec",
        ),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    doc = "NAME-VERSION.tar.gz: a library, its headers, and files to find them.",
)
