// SPDX-License-Identifier: Apache-2.0
// The kernels of one device, which compute on memory that the device holds.
//
//   kernels_of(device).run(stream, kernels::Softmax{.x = x, .y = y});
//
// A kernel consists of a struct of its arguments, in the header of its family,
// whose comment is the kernel's contract, and of an entry in the list below.
// The list declares the kernel for all devices, so that a program with a device
// that lacks the kernel does not link.
#pragma once
#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/kernels/cross_entropy.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/paged_attention.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/kernels/random.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/kernels/rotary.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/kernels/select.h"

// Each kernel, as X(the struct of its arguments).
#define DT_KERNELS(X)      \
  X(Gemm)                  \
  X(FinishGemm)            \
  X(Int8Linear)            \
  X(Unary)                 \
  X(Binary)                \
  X(Where)                 \
  X(Reduce)                \
  X(SumSquares)            \
  X(ScanRows)              \
  X(Softmax)               \
  X(SoftmaxBackward)       \
  X(RowMaxSum)             \
  X(RowSum)                \
  X(RowDot)                \
  X(TopK)                  \
  X(TakeRows)              \
  X(PutRows)               \
  X(LastPlaces)            \
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
  X(Rotary)                \
  X(AdamW)                 \
  X(Sgd)                   \
  X(Clip)                  \
  X(RandomBox)

namespace dtensor {

struct Kernels : KernelTable {
  virtual ~Kernels() = default;
#define DT_KERNEL(A) virtual void run(Stream, const kernels::A&) const = 0;
  DT_KERNELS(DT_KERNEL)
#undef DT_KERNEL
};
// The declaration of one kernel in the class of a device.
#define DT_OVERRIDE(A) void run(Stream, const kernels::A&) const override;

// The CPU's kernels, and those of a dry run, which do nothing.
const Kernels& cpu_kernels();
const Kernels& no_kernels();
// The device's own kernels, or those of its kind. Throws Error if the build has
// none for it.
const Kernels& kernels_of(const Device&);

}  // namespace dtensor
