# SPDX-License-Identifier: Apache-2.0
"""The libraries of system.bzl, for MODULE.bazel."""

load(":system.bzl", "libraries")

def _system(_module_ctx):
    libraries()

system = module_extension(implementation = _system)
