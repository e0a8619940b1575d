// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dtensor {

// How all GPUs compute; see cuda_set_options(). Aligned to be atomic.
struct alignas(4) CudaOptions {
  // f32 matrix products may round their operands to TF32 (10 mantissa bits).
  bool tf32 = false;
  // The first matrix product of each kind measures cuBLASLt's algorithms, and
  // later ones use the fastest, also in other processes and runs: it is kept in
  // $XDG_CACHE_HOME/dtensor (~/.cache/dtensor). Otherwise products use
  // cuBLASLt's first proposal. Either gives the same bits in every run and on
  // every GPU of the same model; that of a measurement, where they share that
  // folder.
  bool tune_gemm = false;
  // The gradient of attention in 16 bits has the same bits in every run. This
  // is slower, and takes up to 1 GiB more memory. Everything else always has.
  bool deterministic = false;
};

}  // namespace dtensor
