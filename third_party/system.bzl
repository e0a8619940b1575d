# SPDX-License-Identifier: Apache-2.0
"""The dependencies of this workspace: libraries of the system and, for Debian's
Bazel, the rules that other versions of Bazel include.

In the WORKSPACE of a project that uses dtensor:

    local_repository(name = "dtensor", path = "...")
    load("@dtensor//third_party:system.bzl", "dtensor_dependencies")
    dtensor_dependencies()

A repository that the project has already declared stays as it is.
"""

load(":cuda.bzl", "cuda_repository")
load(":mpi.bzl", "mpi_repository")

_LIBRARIES = {
    "cli11": Label("//third_party:cli11.BUILD"),
    "dnnl": Label("//third_party:dnnl.BUILD"),
    "eigen": Label("//third_party:eigen.BUILD"),
    "fmt": Label("//third_party:fmt.BUILD"),
    "httplib": Label("//third_party:httplib.BUILD"),
    "json": Label("//third_party:json.BUILD"),
    "pcre2": Label("//third_party:pcre2.BUILD"),
    "utf8proc": Label("//third_party:utf8proc.BUILD"),
    "xxhash": Label("//third_party:xxhash.BUILD"),
}

# Used only by targets in tests/.
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
    doc = "A library that a Debian package installs below /usr.",
)

def _files(repository):
    for label, path in repository.attr.files.items():
        repository.symlink(label, path)
    for path in repository.attr.empty:
        repository.file(path)

_files_repository = repository_rule(
    implementation = _files,
    attrs = {
        "files": attr.label_keyed_string_dict(doc = "The path of each file."),
        "empty": attr.string_list(doc = "Empty files."),
    },
    local = True,
)

def libraries():
    """Declares every library, declared already or not: for a module extension."""
    for name, build_file in _LIBRARIES.items() + _TEST_LIBRARIES.items():
        system_library(name = name, build_file = build_file)
    cuda_repository(name = "cuda")
    mpi_repository(name = "mpi")

def _declare(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

# Debian's Bazel 4 would download these when the first rule is loaded. Released
# Bazels, which know their version, include them.
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
    """Declares the dependencies of @dtensor//:dtensor and of the programs."""
    if not native.bazel_version:
        _debian_bazel()
    for name, build_file in _LIBRARIES.items():
        _declare(system_library, name, build_file = build_file)
    _declare(cuda_repository, "cuda")
    _declare(mpi_repository, "mpi")

def dtensor_test_dependencies():
    """Declares the other dependencies of the tests and benchmarks."""
    for name, build_file in _TEST_LIBRARIES.items():
        _declare(system_library, name, build_file = build_file)
