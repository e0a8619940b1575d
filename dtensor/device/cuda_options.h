// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dtensor {

// How all GPUs compute; see cuda_set_options(). Aligned so that a std::atomic
// of it needs no lock.
struct alignas(4) CudaOptions {
  // f32 matrix products may round their operands to TF32 (10 mantissa bits).
  bool tf32 = false;
  // The first matrix product of each kind measures cuBLASLt's algorithms, and
  // later products use the fastest, also in other processes and runs: the
  // choice is kept in $XDG_CACHE_HOME/dtensor (~/.cache/dtensor). Runs on GPUs
  // of one model that share this folder give the same bits. If false, products
  // use cuBLASLt's first proposal, and all runs on GPUs of one model give the
  // same bits.
  bool tune_gemm = false;
  // The gradient of attention in 16 bits has the same bits in every run. This
  // is slower, and takes up to 1 GiB more memory. (All other operators give the
  // same bits in every run anyway.)
  bool deterministic = false;
};

}  // namespace dtensor
