# SPDX-License-Identifier: Apache-2.0
"""The groups of kernels: GROUP_test.cc tests each."""

KERNEL_GROUPS = [
    "attention",
    "convolution",
    "gemm",
    "kernel_set",
    "linalg",
    "paged_attention",
    "pointwise",
    "pool",
    "reduce",
    "resample",
    "rows",
    "select",
    "training",
]
