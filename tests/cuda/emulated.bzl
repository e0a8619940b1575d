# SPDX-License-Identifier: Apache-2.0
"""Tests of GPUs where there are none."""

_PLUGIN = "//tests/cuda:libdtensor_cuda_emulated.so"

def _path(label):
    return label[2:].replace(":", "/")

def emulated_test(name, test, filter = "*", env = {}, **kwargs):
    """The cc_test `test`, of which nothing may be skipped, on emulated GPUs.

    Args:
      name: of this test.
      test: "//folder:test", which tests GPUs, and skips where there are none.
      filter: which of its tests.
      env: for it, without commas; see emulation/cuda_runtime.h, too.
      **kwargs: as always.
    """
    environment = ["%s=%s" % pair for pair in env.items()]
    native.cc_test(
        name = name,
        srcs = ["//tests/cuda:emulated.cc"],
        data = [
            test,
            _PLUGIN,
        ],
        local_defines = ["%s=\\\"%s\\\"" % pair for pair in [
            ("EMULATED_PLUGIN", _path(_PLUGIN)),
            ("EMULATED_TEST", _path(test)),
            ("EMULATED_FILTER", filter),
            ("EMULATED_ENVIRONMENT", ",".join(environment)),
        ]],
        **kwargs
    )
