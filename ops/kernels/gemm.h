// SPDX-License-Identifier: Apache-2.0
// Products of matrices.
#pragma once
#include <cstdint>
#include <span>

#include "dtensor/ops/kernels/kernel.h"

namespace dtensor::kernels {

// Additional work when c is written; p stands for the sum of products. REQUIRES
// for all kinds but kNone: a, b and c have the same float type, `accumulate` is
// false, and c has no stride of 0 (for kSumB, its batch strides may be 0).
struct Epilogue {
  enum Kind : uint8_t {
    kNone,      // c = p
    kBias,      // c = p + bias
    kGeluTanh,  // aux = p + bias, c = gelu_tanh(aux)
    kSumB,      // c = p; b_sum = the sum of b over k and the summed batches
  };
  Kind kind = kNone;
  const void* bias = nullptr;  // [n]; kGeluTanh: may be null
  void* aux = nullptr;         // laid out as c
  // [n]. REQUIRES: in each batch dimension, b or c has stride 0.
  void* b_sum = nullptr;
};

// c[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]. Strides are
// arbitrary, but the product is slower unless one of the two matrix strides of
// each operand is 1. There are up to 4 batch dimensions. A batch dimension with
// stride 0 in c is summed over, like k. Takes all dtypes but bool.
struct Gemm {
  DType type = DType::kF32;  // of a and b
  // Equal to `type`, or f32 for half types: their products are summed in f32.
  // Exact: see by_leaves.
  DType c_type = DType::kF32;
  Shape batch = {};
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  Shape a_batch_strides = {};
  int64_t a_m = 0, a_k = 0;
  const void* b = nullptr;
  Shape b_batch_strides = {};
  int64_t b_k = 0, b_n = 0;
  void* c = nullptr;
  Shape c_batch_strides = {};
  int64_t c_m = 0, c_n = 0;
  bool accumulate = false;  // c += instead of c =
  // Whether the sums over k are those that docs/reproducible.md defines, for
  // all sizes and strides: a leaf, kLeaf consecutive k, is a chain of fused
  // multiply-adds, and the leaves are added exactly and rounded once (those of
  // f64 are added in turn). Half types are widened to f32 first. On the CPU,
  // for float types, without dimensions of stride 0 in c. If c_type is exact, c
  // gets each leaf, of f32, as a number of its exact sum; then c may have such
  // dimensions.
  static constexpr int64_t kLeaf = 128;
  bool by_leaves = false;
  // If c_type is exact: where each leaf ends, ascending, the last at k; each
  // has 1 to kLeaf products. Empty: at multiples of kLeaf, and at k.
  std::span<const int64_t> leaf_ends = {};
  Epilogue epilogue = {};
};

// Applies only the epilogue, to a c that holds the sums of products already,
// rounded to its type. For products that were computed without the epilogue.
struct FinishGemm {
  Gemm of;
};

// y[m, n] = scale[n] * (sum over k of x[m, k] * weight[n, k]) + bias[n]. Sums
// are taken in f32 (f64 for f64), and rounded once. All arrays are contiguous.
struct Int8Linear {
  DType type = DType::kF32;  // of x, bias and y: a float type
  int64_t m = 0, n = 0, k = 0;
  const void* x = nullptr;
  const int8_t* weight = nullptr;
  const void* scale = nullptr;  // of type stat_of(type)
  const void* bias = nullptr;   // may be null
  void* y = nullptr;
};

}  // namespace dtensor::kernels
