// SPDX-License-Identifier: Apache-2.0
// Layouts for operators that no rule describes: views, windows and others that
// move indices around. Such an operator lists the layouts that it can compute
// on, and they are priced like the assignments of a rule.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/choose.h"

namespace dtensor {

// If the inputs are in the layouts `in`, the operator can compute, and leaves
// its outputs in the layouts `out`.
struct Candidate {
  std::vector<SpecRef> in, out;
  // The local work: the number of points that the operator computes in all, and
  // the largest share of them that one rank computes. 0 points for a view.
  double points = 0, share = 1;
  // Picoseconds of anything else that this candidate costs: messages that the
  // operator itself sends, as far as its work does not hide them, and moves
  // that will follow.
  int64_t other_ps = 0;
};

// The cheapest candidate, by the sum of the redistribution of the inputs, the
// local work, other_ps, and the reductions that partial outputs put off. Ties
// go to fewer steps, then to the first. Stores the index of the cheapest
// candidate in `*which`, unless that is null. Throws Error if every candidate
// would move an input in a way that its Keep forbids.
Choice choose(std::span<const Candidate>, std::span<const OpInput>,
              const OpWork&, Planner&, std::string_view op,
              size_t* which = nullptr);

}  // namespace dtensor
