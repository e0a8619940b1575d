// SPDX-License-Identifier: Apache-2.0
// The parts of the proof driver: what it runs, and what one rank gives.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "dtensor/ops/op.h"
#include "tests/ops/proof.h"
#include "tests/ops/proof_values.h"

namespace dtensor::proof {

inline constexpr double kTolerance = 1e-11;        // against one rank
inline constexpr double kF32Tolerance = 1e-5;      // of its f64
inline constexpr double kHalfTolerance = 2e-2;     // of that, too
inline constexpr double kSecondTolerance = 1e-10;  // composed of many operators
inline constexpr double kDifferences = 1e-6;       // against differences

inline bool has_gradient(const SampleInput& in) {
  return in.values == SampleInput::Values::kAny ||
         in.values == SampleInput::Values::kPositive;
}

// What is asked for: outputs; their gradients; the gradients of the gradients'
// products with fixed vectors. Gradients are those of the first output: what
// others there are serve the backward pass.
enum class Level { kValues, kGradients, kSecond };

struct Evaluated {
  std::vector<DistTensor> out;
  std::vector<DistTensor> grads;   // of the floating inputs
  std::vector<DistTensor> second;  // of these, and of the cotangent
};
Evaluated evaluate(const Op&, const Sample&, const Assignment*,
                   std::vector<DistTensor> in,
                   const std::function<DistTensor(const Spec*)>& cotangent,
                   const std::vector<DistTensor>& probes, Level);

// This rank's part of a whole value; without data in a dry run.
DistTensor place(const Array& whole, const Spec*, int which = 0);

// What one rank gives, as the values that meshes have to come to: in their
// dtype, though no number is rounded to it but those of `in`, the cotangent and
// the probes.
struct Reference {
  std::string text;  // "0", "0 (ties)"
  Sample sample;
  bool ties = false;  // on values of which many are equal
  std::vector<Array> in, out;
  Array cotangent;
  std::vector<Array> probes;  // by floating input
  std::vector<Array> grads, second;
  Level level = Level::kValues;
};

// All runs of an operator on a mesh.
void prove_on_mesh(const Op&, const Options&, const std::string& mesh,
                   const std::vector<Reference>& references, Report&);

}  // namespace dtensor::proof
