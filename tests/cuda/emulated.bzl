"""Tests of GPUs where there are none."""

_PLUGIN = "//tests/cuda:libdtensor_cuda_emulated.so"

def emulated_test(name, test, filter = None, env = {}, **kwargs):
    """The cc_test `test`, of whose tests none may be skipped, on emulated GPUs.

    Args:
      name: of this test.
      test: what tests GPUs, and skips where there are none.
      filter: which of its tests; all of them unless set.
      env: for it; see emulation/cuda_runtime.h, too.
      **kwargs: as always.
    """
    native.sh_test(
        name = name,
        srcs = ["//tests/cuda:emulated.sh"],
        args = [
            "$(rootpath %s)" % _PLUGIN,
            "$(rootpath %s)" % test,
        ] + (["--gtest_filter=" + filter] if filter else []),
        data = [
            test,
            _PLUGIN,
        ],
        env = env,
        **kwargs
    )
