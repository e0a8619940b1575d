// SPDX-License-Identifier: Apache-2.0
// Says why an operator's layouts were chosen.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "dtensor/placement/choose.h"

namespace dtensor {

// An operator's choice among the assignments of its rule. REQUIRES: the objects
// that the members refer to outlive it.
struct ChoiceMade {
  const BoundRule& rule;
  const Choice& chosen;
  std::span<const OpInput> in;  // the inputs that it was made for
  std::span<const Choice> all;  // all_choices(), the cheapest first

  // Whether `all` has the chosen assignment. It may not: a gradient takes the
  // assignment of its forward operator, and all_choices() may be called with a
  // limit.
  bool chosen_is_listed() const;
  const Mesh& mesh() const { return chosen.in[0]->mesh(); }
  // The factors and the axes that split them: "m: dp; k: tp".
  std::string split(const Choice&) const;
};

// The layouts of these specs: "S0,R | R,S1".
std::string layouts_text(std::span<const SpecRef>);

// "chosen: m: dp, at 1.50 us. The next, k: tp, costs 2.00 us more ...".
std::string why(const ChoiceMade&);

// Says why one of `all` was not chosen, such as "it costs 2.00 us more" or, if
// it is cheaper, "no input is split or partial over tp". Returns "" for the
// choice that was made.
std::string why_not(const ChoiceMade&, const Choice&);

// The first `most` of ChoiceMade::all, and the chosen one: [{"split", "in",
// "out", "comm_us", "work_us", "reduce_us", "chosen", "feasible", "why_not"},
// ...].
nlohmann::ordered_json choices_json(const ChoiceMade&, size_t most);

}  // namespace dtensor
