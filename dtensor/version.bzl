# SPDX-License-Identifier: Apache-2.0
"""The version. MODULE.bazel repeats it, since it cannot load this file."""

VERSION = "0.1.0"
