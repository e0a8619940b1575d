// SPDX-License-Identifier: Apache-2.0
// Rules are proven, not believed.
//
// For every sample of an operator, on every mesh, under every assignment of the
// mesh's axes to factors and partials, the inputs are laid out exactly as the
// assignment says, the operator runs, and its outputs and gradients are put
// together from the ranks' parts here (proof_values.h) and compared with one
// rank. One rank's gradients are compared with finite differences. The oracle
// never asks the rule under test: it reads specs and data alone.
//
// The same is done for inputs in arbitrary layouts, where the operator chooses.
// A dry run must give the same specs and collectives, and the bytes predicted
// there must be those that are counted.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dtensor/comm/backend.h"
#include "dtensor/ops/all_ops.h"
#include "dtensor/ops/op.h"

namespace dtensor::proof {

struct Options {
  std::vector<std::string> meshes = {"2", "3", "2x2", "2x3", "2x2x2"};
  int chosen = 8;      // runs with random input layouts, per sample and mesh
  int sampled = 120;   // assignments tried in all of a mesh with over two axes
  int reported = 5;    // failures described; the others are counted
  bool second = true;  // second derivatives too
  // Of the ranks of a mesh; empty: threads.
  BackendFactory backend = nullptr;
  // How many of them are in each process, when they are in several; 0: all.
  int64_t processes = 0;
  // What the ranks of a mesh compute on; null: the CPU.
  Device* device = nullptr;
  // What their floats are. One rank's are f64, on the CPU, of the same values.
  DType dtype = DType::kF64;
};

struct Report {
  std::string op;
  int64_t samples = 0, forced = 0, chosen = 0;
  int64_t refused = 0;  // calls that ended with an Error on all ranks alike
  // The largest errors: of outputs, gradients and second derivatives against
  // one rank, and of one rank's derivatives against differences.
  double values = 0, gradients = 0, second = 0, differences = 0;
  int64_t failed = 0;
  std::vector<std::string> failures;  // the first few

  std::string line() const;
};

// Whether an operator decides its layouts itself and refuses some: a view is
// free or refused, and a cache of pages never moves.
inline bool refuses_some(const Op& op) {
  return op.name() == "view" || op.name() == "paged_attention";
}

// Throws nothing that the operator throws: that is a failure in the report.
// An operator that refuses_some() may throw.
Report prove(const Op&, const Options& = {});

// Input placements {R, S(d), P} on one axis of two ranks that the rule does not
// offer although the local operator on the parts happens to give a valid
// result, of the first sample: "R,P->P". A missing rule, or luck.
std::vector<std::string> missing_rules(const Op&);

// Every operator with a name of its own: "exp", "exp_prime", "einsum_2".
std::vector<std::pair<std::string, const Op*>> named_ops();

}  // namespace dtensor::proof
