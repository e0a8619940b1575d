# SPDX-License-Identifier: Apache-2.0
"""The CUDA toolkit, if there is one: @cuda.

@cuda//:config.bzl tells tools/cuda.bzl what find_cuda.sh has found.
@cuda//:headers has the headers for C++. @cuda//:status.txt and STATUS are a
line for people. Without a toolkit HAS_CUDA is False, which is not an error.
"""

_CONFIG = """\
HAS_CUDA = {has}
STATUS = {status}
NVCC = {nvcc}
CUOBJDUMP = {cuobjdump}
VERSION = {version}
INCLUDES = {includes}
ARCHITECTURES = {architectures}
LINKOPTS = {linkopts}
"""

# Without a GPU to ask: code for A100, and PTX for newer GPUs.
_ARCHITECTURES = "80"

def _of_this_machine(repository):
    """The architectures of this machine's GPUs, as code; "" if it has none that
    the kernels run on."""
    smi = repository.which("nvidia-smi")
    if not smi:
        return ""
    asked = repository.execute(
        [smi, "--query-gpu=compute_cap", "--format=csv,noheader"],
    )
    found = {}
    for line in asked.stdout.splitlines() if asked.return_code == 0 else []:
        number = line.strip().replace(".", "")
        if number.isdigit() and int(number) >= 80:
            found[number + "-real"] = True
    return ",".join(sorted(found))

def _architectures(text):
    """nvcc's flags for "80-real,90", CMake's notation: 90-real is machine
    code, 90-virtual is PTX, 90 is both."""
    flags, names = [], []
    for entry in text.replace(";", ",").replace(" ", ",").split(","):
        if not entry:
            continue
        number, _, kind = entry.partition("-")
        if not number[:2].isdigit() or kind not in ["", "real", "virtual"]:
            fail("DTENSOR_CUDA_ARCHS=%s: %s is not an architecture; write 90, " %
                 (text, entry) + "90-real or 90-virtual, with commas between")
        code = [
            prefix + number
            for prefix, other in [("sm_", "virtual"), ("compute_", "real")]
            if kind != other
        ]
        names += [c for c in code if c.startswith("sm_")] or code
        arch = "-gencode=arch=compute_" + number
        flags += ["%s,code=%s" % (arch, c) for c in code]
    if not flags:
        fail("DTENSOR_CUDA_ARCHS names no architecture; write 90, for example")
    return flags, names

def _linkopts(libraries):
    opts = []
    for library in libraries:
        folder, _, name = library.rpartition("/")
        if "-L" + folder not in opts:
            opts += ["-L" + folder, "-Wl,-rpath," + folder]
        opts.append("-l:" + name)
    return opts + ["-lpthread", "-ldl", "-lrt"]

def _cuda(repository):
    environ = repository.os.environ
    result = repository.execute(
        ["/bin/bash", repository.path(repository.attr._find)],
    )
    found = {
        "nvcc": [""],
        "version": [""],
        "cuobjdump": [],
        "include": [],
        "library": [],
        "note": [],
    }
    if result.return_code == 0:
        for name in found.keys():
            start = name + "="
            found[name] = [
                line[len(start):]
                for line in result.stdout.splitlines()
                if line.startswith(start)
            ]
        flags, names = _architectures(
            environ.get("DTENSOR_CUDA_ARCHS") or _of_this_machine(repository) or
            _ARCHITECTURES,
        )
        status = "; ".join(
            ["nvcc %s for %s" % (found["version"][0], ", ".join(names))] +
            found["note"],
        )
    else:
        flags = []
        status = "no CUDA: " + result.stderr.strip()
    # cuDNN's C++ layer includes its headers as ../include/x.
    headers = ["%d/include" % i for i in range(len(found["include"]))]
    for folder, path in zip(headers, found["include"]):
        repository.symlink(path, folder)
    repository.file("status.txt", status + "\n", executable = False)
    repository.file("config.bzl", _CONFIG.format(
        has = result.return_code == 0,
        status = repr(status),
        nvcc = repr(found["nvcc"][0]),
        cuobjdump = repr("".join(found["cuobjdump"])),
        version = repr(found["version"][0]),
        includes = repr(found["include"]),
        architectures = repr(flags),
        linkopts = repr(_linkopts(found["library"])),
    ), executable = False)
    repository.template(
        "BUILD.bazel",
        repository.attr._build_file,
        {"[] # HEADERS": repr(headers)},
        executable = False,
    )

cuda_repository = repository_rule(
    implementation = _cuda,
    attrs = {
        "_find": attr.label(default = "//third_party:find_cuda.sh"),
        "_build_file": attr.label(default = "//third_party:cuda.BUILD"),
    },
    environ = [
        "CUDA_HOME",
        "CUDA_PATH",
        "DTENSOR_CUDA_ARCHS",
        "HOME",
        "PATH",
        "XDG_DATA_HOME",
    ],
    local = True,
)
