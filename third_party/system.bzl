"""What this workspace is built from: libraries of the system, and, for Debian's
Bazel, the rules that other Bazels bring along.

In the WORKSPACE of a project that uses dtensor:

    local_repository(name = "dtensor", path = "...")
    load("@dtensor//third_party:system.bzl", "dtensor_dependencies")
    dtensor_dependencies()

A repository that the project has declared before stays as it is.
"""

load(":cuda.bzl", "cuda_repository")
load(":mpi.bzl", "mpi_repository")

_LIBRARIES = {
    "cli11": Label("//third_party:cli11.BUILD"),
    "dnnl": Label("//third_party:dnnl.BUILD"),
    "eigen": Label("//third_party:eigen.BUILD"),
    "fmt": Label("//third_party:fmt.BUILD"),
    "json": Label("//third_party:json.BUILD"),
    "xxhash": Label("//third_party:xxhash.BUILD"),
}

# What only the targets in tests/ use.
_TEST_LIBRARIES = {
    "benchmark": Label("//third_party:benchmark.BUILD"),
    "googletest": Label("//third_party:googletest.BUILD"),
}

def _system_library(repository):
    repository.symlink(repository.attr.build_file, "BUILD.bazel")
    for folder in ["include", "lib"]:
        repository.symlink("/usr/" + folder, folder)

system_library = repository_rule(
    implementation = _system_library,
    attrs = {"build_file": attr.label(mandatory = True)},
    local = True,
    doc = "A library that a Debian package puts below /usr.",
)

def _files(repository):
    for label, path in repository.attr.files.items():
        repository.symlink(label, path)
    for path in repository.attr.empty:
        repository.file(path)

_files_repository = repository_rule(
    implementation = _files,
    attrs = {
        "files": attr.label_keyed_string_dict(doc = "Where each file goes."),
        "empty": attr.string_list(doc = "Empty files."),
    },
    local = True,
)

def libraries():
    """Declares every library without looking: for a module extension."""
    for name, build_file in _LIBRARIES.items() + _TEST_LIBRARIES.items():
        system_library(name = name, build_file = build_file)
    cuda_repository(name = "cuda")
    mpi_repository(name = "mpi")

def _declare(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

# Debian's Bazel 4 would fetch these from the internet when the first rule is
# loaded. A released Bazel, which knows its version, has its own.
def _debian_bazel():
    for name, path in {
        "bazel_skylib": "tools/skylib",
        "platforms": "tools/platforms",
        "rules_java": "rules/java",
        "rules_proto": "rules/proto",
    }.items():
        _declare(
            native.local_repository,
            name,
            path = "/usr/share/bazel/" + path,
        )
    _declare(
        _files_repository,
        "rules_cc",
        empty = ["cc/BUILD"],
        files = {Label("//third_party:rules_cc_defs.bzl"): "cc/defs.bzl"},
    )
    _declare(
        _files_repository,
        "remote_coverage_tools",
        files = {Label("//third_party:remote_coverage_tools.BUILD"): "BUILD"},
    )

def dtensor_dependencies():
    """Declares what @dtensor//:dtensor and the programs are built from."""
    if not native.bazel_version:
        _debian_bazel()
    for name, build_file in _LIBRARIES.items():
        _declare(system_library, name, build_file = build_file)
    _declare(cuda_repository, "cuda")
    _declare(mpi_repository, "mpi")

def dtensor_test_dependencies():
    """Declares what the tests and benchmarks need besides."""
    for name, build_file in _TEST_LIBRARIES.items():
        _declare(system_library, name, build_file = build_file)
