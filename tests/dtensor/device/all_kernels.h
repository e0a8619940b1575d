// SPDX-License-Identifier: Apache-2.0
// The list of all kernels, for tests and for devices of tests. kernel_set_test
// fails if a kernel is missing here, or on a device.
#pragma once
#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/kernels/convolution.h"
#include "dtensor/ops/kernels/cross_entropy.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/linalg.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/paged_attention.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/kernels/pool.h"
#include "dtensor/ops/kernels/random.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/kernels/resample.h"
#include "dtensor/ops/kernels/rotary.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/kernels/select.h"

// Each kernel, as X(the struct of its arguments).
#define DT_KERNELS(X)      \
  X(Convolution)           \
  X(PoolMax)               \
  X(PoolPick)              \
  X(PoolSpread)            \
  X(Unfold)                \
  X(Fold)                  \
  X(Resample)              \
  X(Gemm)                  \
  X(FinishGemm)            \
  X(Int8Linear)            \
  X(Unary)                 \
  X(Binary)                \
  X(Where)                 \
  X(Reduce)                \
  X(SumSquares)            \
  X(ScanRows)              \
  X(ScanExp)               \
  X(Softmax)               \
  X(SoftmaxBackward)       \
  X(RowMaxSum)             \
  X(RowSum)                \
  X(RowDot)                \
  X(TopK)                  \
  X(TakeRows)              \
  X(PutRows)               \
  X(LastPlaces)            \
  X(CountBefore)           \
  X(NormForward)           \
  X(NormBackward)          \
  X(RowCenteredSumSquares) \
  X(NormApply)             \
  X(NormBackwardSums)      \
  X(NormBackwardApply)     \
  X(Embedding)             \
  X(EmbeddingBackward)     \
  X(WriteRows)             \
  X(CePick)                \
  X(CeRange)               \
  X(CeBackward)            \
  X(AttentionForward)      \
  X(AttentionBackward)     \
  X(PagedAttention)        \
  X(Cholesky)              \
  X(Lu)                    \
  X(SolveTriangular)       \
  X(MatrixExp)             \
  X(Qr)                    \
  X(Eigh)                  \
  X(Svd)                   \
  X(Rotary)                \
  X(AdamW)                 \
  X(Sgd)                   \
  X(Clip)                  \
  X(RandomBox)
