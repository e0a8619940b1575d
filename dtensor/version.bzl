"""The version: here, and in MODULE.bazel, which can load nothing."""

VERSION = "0.1.0"
