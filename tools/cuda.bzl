# SPDX-License-Identifier: Apache-2.0
"""Rules that build the CUDA plugin. Without a toolkit (@cuda), targets of these
rules exist and are empty.

The plugin is a shared library. It contains its own copy of the parts of dtensor
that it needs, compiled as position-independent code.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load(
    "@cuda//:config.bzl",
    "ARCHITECTURES",
    "HAS_CUDA",
    "INCLUDES",
    "LINKOPTS",
    "NVCC",
    "STATUS",
    "VERSION",
)
load("//tools:cc.bzl", "cc_binary", "cc_library")

_FLAGS = [
    "-x",
    "cu",
    "-std=c++20",
    # For host code, which launches kernels. They are optimized in any case.
    "-O1",
    "--extended-lambda",
    "--expt-relaxed-constexpr",
    # Profilers and compute-sanitizer name lines by it. It costs no time when a
    # kernel runs.
    "-lineinfo",
    "-Xptxas=-v",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra",
]

# $1 gets what nvcc prints, and the terminal gets it without the lines in which
# ptxas describes kernels. $2 gets those of the headers listed in $3 that nvcc
# did not read: Bazel does not compile again when they change. nvcc writes ./
# in front of what -I. finds.
#
# nvcc names its temporary files by its process id, which is the same in every
# sandbox, and all sandboxes share /tmp. Bazel sets an action's TMPDIR itself, so
# the folder of its own is made here.
_LOGGED = """
log=$1 unused=$2 headers=$3; shift 3
export TMPDIR=$(mktemp -d)
"$@" -MD -MF "$TMPDIR/read" 2>"$log"
status=$?
tr -s ' \\\\' '\\n' <"$TMPDIR/read" | sed 's|^[.]/||' |
  grep -vxFf - "$headers" >"$unused"
rm -rf "$TMPDIR"
grep -v -e "^ptxas info" -e "bytes stack frame" "$log" >&2
exit $status
"""

_TRANSITIONS = "@bazel_tools//tools/allowlists/function_transition_allowlist"

def _objects(ctx):
    compiler = find_cpp_toolchain(ctx)
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = depset(
        ctx.files.hdrs,
        transitive = [c.headers for c in contexts],
    )
    folders = depset(transitive = [
        folders
        for c in contexts
        for folders in [c.includes, c.quote_includes, c.system_includes]
    ])
    listed = ctx.actions.declare_file(ctx.label.name + "/headers")
    lines = ctx.actions.args()
    lines.add_all(headers)
    lines.set_param_file_format("multiline")
    ctx.actions.write(listed, lines)
    objects, logs, unread = [], [], []
    for source in ctx.files.srcs:
        # Named by the whole path, since two folders may have a file of the same
        # name.
        object = ctx.actions.declare_file(
            "%s/%s.o" % (ctx.label.name, source.owner.name),
        )
        objects.append(object)
        log = ctx.actions.declare_file(
            "%s/%s.ptxas" % (ctx.label.name, source.owner.name),
        )
        logs.append(log)
        unused = ctx.actions.declare_file(
            "%s/%s.unused" % (ctx.label.name, source.owner.name),
        )
        unread.append(unused)
        arguments = ctx.actions.args()
        arguments.add_all(["-c", _LOGGED, "nvcc", log, unused, listed])
        arguments.add(NVCC)
        arguments.add_all(_FLAGS + ARCHITECTURES)
        arguments.add("-ccbin", compiler.compiler_executable)
        arguments.add("-I.")
        arguments.add_all(folders, before_each = "-I")
        arguments.add_all(INCLUDES, before_each = "-isystem")
        arguments.add_all(ctx.attr.copts)
        arguments.add("-c", source)
        arguments.add("-o", object)
        ctx.actions.run(
            executable = "/bin/bash",
            arguments = [arguments],
            inputs = depset([source, listed], transitive = [headers]),
            unused_inputs_list = unused,
            tools = compiler.all_files,
            outputs = [object, log, unused],
            # NVCC_VERSION makes a new toolkit in the same place another
            # compiler.
            env = {
                "NVCC_VERSION": VERSION,
                "PATH": "/usr/bin:/bin",
            },
            mnemonic = "Nvcc",
            progress_message = "Compiling %s with nvcc" % source.short_path,
        )
    return [
        DefaultInfo(files = depset(objects)),
        OutputGroupInfo(ptxas = depset(logs), unused = depset(unread)),
    ]

_cuda_objects = rule(
    implementation = _objects,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cc", ".cu"]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(
            default = "@bazel_tools//tools/cpp:current_cc_toolchain",
        ),
    },
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    doc = "Object files compiled by nvcc, for a shared library. The output " +
          "group ptxas has the registers, stacks and spills of their kernels, " +
          "and unused the headers that nvcc did not read.",
)

def cuda_objects(name, srcs, hdrs = [], deps = [], visibility = None, **kwargs):
    """Object files compiled by nvcc, for `objects` of a cuda_plugin."""
    if HAS_CUDA:
        _cuda_objects(
            name = name,
            srcs = srcs,
            hdrs = hdrs,
            deps = deps,
            visibility = visibility,
            **kwargs
        )
    else:
        native.filegroup(name = name, visibility = visibility)

def cuda_cc_library(name, deps = [], visibility = None, **kwargs):
    """A cc_library that sees the headers of CUDA, cuBLASLt, cuDNN and NCCL."""
    if HAS_CUDA:
        cc_library(
            name = name,
            deps = deps + ["@cuda//:headers"],
            visibility = visibility,
            **kwargs
        )
    else:
        cc_library(name = name, visibility = visibility)

# Libraries of programs are compiled without -fPIC (.bazelrc: -supports_pic), so
# the plugin's are compiled once more.
def _with_pic(settings, _attr):
    copts = settings["//command_line_option:copt"]
    return {
        "//command_line_option:copt": copts + ["-fPIC", "-fvisibility=hidden"],
    }

_pic_transition = transition(
    implementation = _with_pic,
    inputs = ["//command_line_option:copt"],
    outputs = ["//command_line_option:copt"],
)

def _pic(ctx):
    return [cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )]

_pic_deps = rule(
    implementation = _pic,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo], cfg = _pic_transition),
        "_allowlist_function_transition": attr.label(
            default = _TRANSITIONS,
        ),
    },
    doc = "The libraries, compiled for a shared library.",
)

def plugin_library(
        name,
        deps,
        exports,
        objects = [],
        linkopts = [],
        testonly = False,
        visibility = None):
    """A shared library that shares nothing with the program that loads it.

    Args:
      name: the file's name.
      deps: C++ libraries; the plugin gets its own copy of them.
      exports: a version script with the symbols that the library exports.
      objects: further object files.
      linkopts: as in cc_binary.
      testonly: as in cc_binary.
      visibility: as in cc_binary.
    """
    _pic_deps(name = name + "_deps", testonly = testonly, deps = deps)
    cc_binary(
        name = name,
        testonly = testonly,
        srcs = objects,
        linkshared = True,
        linkopts = linkopts + [
            "-Wl,--no-undefined",
            "-Wl,--version-script=$(location %s)" % exports,
        ],
        visibility = visibility,
        deps = [":" + name + "_deps", exports],
    )

def cuda_plugin(name, objects, deps, exports, visibility = None):
    """A plugin_library made of cuda_objects and C++ libraries."""
    if HAS_CUDA:
        plugin_library(
            name = name,
            deps = deps,
            exports = exports,
            objects = objects,
            linkopts = LINKOPTS,
            visibility = visibility,
        )
    else:
        native.filegroup(name = name, visibility = visibility)

def _no_cuda(_ctx):
    fail("dtensor_cuda=1 asks for the CUDA plugin, but there is %s; install " %
         STATUS + "it (./setup.sh --cuda), or build without the flag")

_no_cuda_rule = rule(
    implementation = _no_cuda,
    doc = "Stops a build that asks for CUDA on a machine without a toolkit.",
)

def requested_cuda(name, plugin):
    """The plugin, for builds that ask for it. Fails if there is no toolkit."""
    if HAS_CUDA:
        native.alias(name = name, actual = plugin)
    else:
        _no_cuda_rule(name = name, tags = ["manual"])
