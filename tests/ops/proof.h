// SPDX-License-Identifier: Apache-2.0
// Proves the rules of operators by running them.
//
// For every sample of an operator, on every mesh, and for every assignment of
// the mesh's axes to factors and partials (on more than two axes, for some),
// the driver lays out the inputs exactly as the assignment says and runs the
// operator. It puts together outputs and gradients from the ranks' parts
// (proof_values.h), and compares them with one rank's. It compares one rank's
// gradients with finite differences. The comparison never asks the rule under
// test: it reads only specs and data.
//
// The driver does the same for inputs in arbitrary layouts, for which the
// operator chooses. A dry run must give the same specs and collectives, and
// must predict the bytes that are counted.
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
  int chosen = 8;      // runs with random layouts, for each sample and mesh
  int sampled = 120;   // assignments tried on each mesh of more than two axes
  int reported = 5;    // failures that are described; others are only counted
  bool second = true;  // also compares second derivatives
  // The backend of a mesh's ranks; empty: threads of this process.
  BackendFactory backend = nullptr;
  // How many ranks each process has, if there are several; 0: one process.
  int64_t processes = 0;
  // The device that a mesh's ranks compute on; null: the CPU.
  Device* device = nullptr;
  // The type of floats on meshes. The one rank always computes on the CPU, in
  // f64, with the same values.
  DType dtype = DType::kF64;
  // Runs with RunOptions::reproducible: the one rank computes in `dtype`, too,
  // and results must have its bits. Only layouts that the operator chooses for
  // inputs without partials are tried, since no sum of floats may be split.
  bool reproducible = false;
};

struct Report {
  std::string op;
  int64_t samples = 0, forced = 0, chosen = 0;
  int64_t refused = 0;  // calls for which all ranks threw the same Error
  std::string refusal;  // the first of these Errors
  // The largest errors: of outputs, gradients and second derivatives, compared
  // with one rank's; and of one rank's derivatives, compared with differences.
  double values = 0, gradients = 0, second = 0, differences = 0;
  int64_t failed = 0;
  std::vector<std::string> failures;  // the first few failures, described

  std::string line() const;
};

// Whether an operator decides its layouts itself, and may refuse some: a view
// sends nothing or is refused, and a cache of pages never moves.
inline bool refuses_some(const Op& op) {
  return op.name() == "view" || op.name() == "paged_attention";
}

// Runs the proof. Reports every Error that the operator throws as a failure,
// unless the operator refuses_some().
Report prove(const Op&, const Options& = {});

// Finds placements of the first sample's inputs on one axis of two ranks, R,
// S(d) or P, that the rule does not offer although the operator on each rank's
// parts gives a valid result: "R,P->P". Either the rule lacks them, or the
// result is valid by chance.
std::vector<std::string> missing_rules(const Op&);

// Every operator, with a name of its own: "exp", "exp_prime", "einsum_2".
std::vector<std::pair<std::string, const Op*>> named_ops();

}  // namespace dtensor::proof
