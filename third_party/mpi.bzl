# SPDX-License-Identifier: Apache-2.0
"""MPI, if there is one: @mpi.

@mpi//:config.bzl tells dtensor/comm whether there is one. @mpi//:mpi has the
flags that MPI's compiler wrapper adds (mpicc, or the program that MPICC names;
MPICC=no builds without MPI). Without MPI HAS_MPI is False, which is not an
error.
"""

_CONFIG = """\
HAS_MPI = {has}
"""

_BUILD = """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "mpi",
    hdrs = glob([f + "/**" for f in {includes}]),
    includes = {includes},
    linkopts = {linkopts},
)
"""

def _mpi(repository):
    wrapper = repository.os.environ.get("MPICC") or "mpicc"
    if not wrapper.startswith("/"):
        wrapper = repository.which(wrapper)
    flags = []
    if wrapper:
        result = repository.execute([wrapper, "-show"])
        if result.return_code == 0:
            flags = [f for f in result.stdout.split(" ") if f.strip()]
    includes, linkopts = [], []
    for flag in flags:
        flag = flag.strip()
        if flag.startswith("-I"):
            folder = "include%d" % len(includes)
            repository.symlink(flag[2:], folder)
            includes.append(folder)
        elif flag.startswith("-L") or flag.startswith("-l"):
            linkopts.append(flag)
        elif flag.startswith("-Wl,"):
            linkopts.append(flag)
    repository.file(
        "config.bzl",
        _CONFIG.format(has = bool(linkopts)),
        executable = False,
    )
    repository.file("BUILD.bazel", _BUILD.format(
        includes = repr(includes),
        linkopts = repr(linkopts),
    ), executable = False)

mpi_repository = repository_rule(
    implementation = _mpi,
    environ = ["MPICC", "PATH"],
    local = True,
)
