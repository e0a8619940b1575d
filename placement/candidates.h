// The layouts of operators that no rule describes: views, windows, and others
// that move indices around. Such an operator lists the layouts that it can
// compute on, and they are priced as a rule's assignments are.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "dtensor/placement/choose.h"

namespace dtensor {

// Inputs in these layouts give outputs in these, without communication.
struct Candidate {
  std::vector<const Spec*> in, out;
  // The local work: the points that the operator computes in all, of which a
  // rank has at most this share. None for a view.
  double points = 0, share = 1;
};

// The cheapest: what is sent to get there, the local work, and the reductions
// that partial outputs put off. Ties go to fewer steps, then to the first.
// Throws Error when each would send an input that stays where it is.
Choice choose(std::span<const Candidate>, std::span<const OpInput>,
              const OpWork&, Planner&, std::string_view op);

}  // namespace dtensor
