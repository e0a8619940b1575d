"""The version. MODULE.bazel repeats it, since it cannot load this file."""

VERSION = "0.1.0"
