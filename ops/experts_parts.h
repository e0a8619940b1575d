// SPDX-License-Identifier: Apache-2.0
// The layouts of experts() in reproducible runs, and its gradient that has one
// itself. Private to ops/.
#pragma once
#include <cstddef>
#include <cstdint>

#include "dtensor/ops/kernels/gemm.h"
#include "dtensor/ops/op.h"

namespace dtensor {

// The inputs of the operators, in this order. Only the backward one has kDy.
enum ExpertsInput : size_t { kX, kIds, kWeights, kGate, kUp, kDown, kDy };
inline constexpr size_t kFloats[] = {kX, kWeights, kGate, kUp, kDown};

// The gradient of an expert's weight adds up the tokens that chose it. A leaf
// of this sum are those of a run of kExpertLeaf tokens of one sequence.
inline constexpr int64_t kExpertLeaf = kernels::Gemm::kLeaf;

// Whether no rank's tokens begin or end inside a leaf.
bool between_expert_leaves(const Dim& tokens, const Mesh&, int64_t sequence);

// The layouts for a reproducible run: ranks split the tokens as those of x, but
// without axes that would cut leaves. Else the cheapest assignment might.
Assignment experts_by_leaves(const DistTensor& x, const DistTensor& gate,
                             const BoundRule&, int64_t sequence);

// Computes the gradients with differentiable operators. Every token passes
// through every expert, with weight 0 for the experts that it did not choose.
InputGradients experts_gradient(const GradientCall&);

}  // namespace dtensor
