// The local kernels of one device: what it computes on memory that it holds. A
// new kernel is a pure virtual function of its family, so that a device without
// it does not compile.
#pragma once
#include "dtensor/ops/kernels/attention.h"
#include "dtensor/ops/kernels/cross_entropy.h"
#include "dtensor/ops/kernels/embedding.h"
#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/kernels/norm.h"
#include "dtensor/ops/kernels/optim.h"
#include "dtensor/ops/kernels/pointwise.h"
#include "dtensor/ops/kernels/random.h"
#include "dtensor/ops/kernels/reduce.h"
#include "dtensor/ops/kernels/rotary.h"
#include "dtensor/ops/kernels/rows.h"
#include "dtensor/ops/kernels/select.h"

namespace dtensor {

struct Kernels : KernelTable,
                 kernels::GemmKernels,
                 kernels::PointwiseKernels,
                 kernels::ReduceKernels,
                 kernels::RowKernels,
                 kernels::SelectKernels,
                 kernels::NormKernels,
                 kernels::EmbeddingKernels,
                 kernels::CrossEntropyKernels,
                 kernels::AttentionKernels,
                 kernels::RotaryKernels,
                 kernels::OptimKernels,
                 kernels::RandomKernels {};

// The CPU's kernels; and those of a dry run, which do nothing.
const Kernels& cpu_kernels();
const Kernels& no_kernels();
// The device's own kernels, or those of its kind. Throws Error if the build has
// none for it.
const Kernels& kernels_of(const Device&);

}  // namespace dtensor
