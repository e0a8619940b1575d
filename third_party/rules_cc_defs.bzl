# SPDX-License-Identifier: Apache-2.0
"""The part of rules_cc that Bazel 4's own BUILD files load.

The rules are built into Bazel 4; this only gives them the names that
rules_cc exports. Debian's bazel-rules-cc does not load under Bazel 4.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library

# Some load statements name these, but no target that we build uses them.
def cc_flags_supplier(**_kwargs):
    pass

def compiler_flag(**_kwargs):
    pass
