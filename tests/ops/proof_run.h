// SPDX-License-Identifier: Apache-2.0
// Internals of the proof driver: one evaluation of an operator, and the results
// of one rank that others are compared with.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/ops/op.h"
#include "tests/ops/proof.h"
#include "tests/ops/proof_values.h"

namespace dtensor::proof {

inline constexpr double kTolerance = 1e-11;     // f64, compared with one rank
inline constexpr double kF32Tolerance = 1e-5;   // f32, with one rank's f64
inline constexpr double kHalfTolerance = 2e-2;  // bf16 and f16, with f64
inline constexpr double kSecondTolerance = 1e-10;  // many operators, composed
inline constexpr double kDifferences = 1e-6;       // one rank, with differences

inline bool has_gradient(const SampleInput& in) {
  return in.values == SampleInput::Values::kAny ||
         in.values == SampleInput::Values::kPositive;
}

// How much to evaluate: the outputs; with kGradients, their gradients; with
// kSecond, also the gradients of dot products of these gradients with fixed
// vectors (`probes`). Gradients are those of the first output, since any other
// outputs only serve the backward pass.
enum class Level { kValues, kGradients, kSecond };

struct Evaluated {
  std::vector<DistTensor> out;
  std::vector<DistTensor> grads;   // by floating input
  std::vector<DistTensor> second;  // by floating input; then the cotangent's
};
Evaluated evaluate(const Op&, const Sample&, const Assignment*,
                   std::vector<DistTensor> in,
                   const std::function<DistTensor(const Spec*)>& cotangent,
                   const std::vector<DistTensor>& probes, Level);

// This rank's part of a whole tensor under a spec; without data in a dry run.
DistTensor place(const Array& whole, const Spec*, int which = 0);

// The results of one rank, with which meshes are compared. Unless the proof is
// of reproducible runs, they were computed in f64, although their `dtype` says
// that of the mesh's results. Only `in`, the cotangent and the probes are
// rounded to that type.
struct Reference {
  std::string text;  // names the sample: "0", or "0 (ties)"
  Sample sample;
  bool ties = false;  // whether many of the inputs' values are equal
  std::vector<Array> in, out;
  Array cotangent;
  std::vector<Array> probes;  // by floating input
  std::vector<Array> grads, second;
  Level level = Level::kValues;
};

// Runs an operator on a mesh in all ways, and compares it with the references.
void prove_on_mesh(const Op&, const Options&, const std::string& mesh,
                   const std::vector<Reference>& references, Report&);

}  // namespace dtensor::proof
