# SPDX-License-Identifier: Apache-2.0
"""A header that the compiler parses once, for all sources that include it first.

Half of the time of compiling a short source goes into parsing headers of the
standard library.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    folder = "_%s/" % ctx.label.name
    header = ctx.actions.declare_file(folder + ctx.file.header.basename)
    outputs = [header]

    # Only GCC takes a precompiled header from the include path, and only for
    # sources with its options; some toolchains compile each source twice, once
    # with -fPIC. Otherwise, and with --features=-precompiled, sources include an
    # empty header.
    if (toolchain.compiler == "clang" or
        toolchain.needs_pic_for_dynamic_libraries(feature_configuration = features) or
        "precompiled" in ctx.disabled_features):
        ctx.actions.write(header, "")
    else:
        ctx.actions.symlink(output = header, target_file = ctx.file.header)
        precompiled = ctx.actions.declare_file(folder + header.basename + ".gch")
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            source_file = header.path,
            output_file = precompiled.path,
            include_directories = context.includes,
            quote_include_directories = context.quote_includes,
            system_include_directories = context.system_includes,
            user_compile_flags = ctx.fragments.cpp.copts +
                                 ctx.fragments.cpp.cxxopts +
                                 ctx.attr.copts + ["-x", "c++-header"],
        )
        ctx.actions.run(
            executable = cc_common.get_tool_for_action(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
            ),
            arguments = cc_common.get_memory_inefficient_command_line(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
                variables = variables,
            ),
            env = cc_common.get_environment_variables(
                feature_configuration = features,
                action_name = CPP_COMPILE_ACTION_NAME,
                variables = variables,
            ),
            inputs = depset([header], transitive = [toolchain.all_files, context.headers]),
            outputs = [precompiled],
            mnemonic = "CppPrecompile",
            progress_message = "Precompiling " + ctx.file.header.short_path,
        )
        outputs.append(precompiled)
    return [
        DefaultInfo(files = depset(outputs)),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset(outputs),
            includes = depset([header.dirname]),
        )),
    ]

precompiled_header = rule(
    implementation = _precompiled,
    attrs = {
        "header": attr.label(mandatory = True, allow_single_file = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(doc = "Those of the sources, which have to be equal."),
        "_cc_toolchain": attr.label(default = Label("@bazel_tools//tools/cpp:current_cc_toolchain")),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    doc = "For `deps` of a cc_library with the option `-include HEADER`.",
)
