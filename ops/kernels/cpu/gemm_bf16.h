// SPDX-License-Identifier: Apache-2.0
// oneDNN's bf16 product. Private to ops/kernels.
#pragma once
#include <cstdint>

#include "dtensor/placement/dtype.h"

namespace dtensor::kernels::cpu {

// As gemm_f64(), with c of f32 or bf16. Returns false, without a result, if
// oneDNN has no such primitive (below AVX-512) or fails to run it. The first
// call disables oneDNN's primitive cache for the whole process; each thread has
// its own cache here.
bool gemm_bf16(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const bf16* a,
               int64_t lda, const bf16* b, int64_t ldb, bool accumulate,
               DType c_type, void* c, int64_t ldc);

}  // namespace dtensor::kernels::cpu
