// SPDX-License-Identifier: Apache-2.0
#include "dtensor/program/choice_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "dtensor/placement/axis_choices.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

double us(int64_t ps) { return static_cast<double>(ps) / 1e6; }

nlohmann::ordered_json layouts_json(std::span<const SpecRef> specs) {
  auto list = nlohmann::ordered_json::array();
  for (const Spec* s : specs) list.push_back(s->layout().to_string(s->mesh()));
  return list;
}

// The price by which choices are compared. (It does not include the fixed order
// that breaks the last ties.)
auto rank(const Choice& c) {
  return std::tuple(c.total_ps(), c.comm_ps, c.steps);
}

// The factors that the axis splits, in the rule's order.
std::vector<int> factors_of(const Choice& c, int axis) {
  std::vector<int> factors;
  for (size_t f = 0; f < c.assignment.dims.size(); ++f)
    if (c.assignment.dims[f].axes() >> axis & 1)
      factors.push_back(static_cast<int>(f));
  return factors;
}

// The alternative of axis_choices() that the axis takes in this choice. The
// function finds it by the factors that the axis splits.
AxisChoice taken(const ChoiceMade& made, const Choice& c, int axis) {
  const std::vector<int> factors = factors_of(c, axis);
  const auto all = axis_choices(made.rule, made.in, Reach::kAll);
  for (const AxisChoice& a : all[static_cast<size_t>(axis)])
    if (std::is_permutation(factors.begin(), factors.end(), a.factors.begin(),
                            a.factors.end()))
      return a;
  fail("choice",
       "the choice '{}' splits what axis {} may not split, which is an error "
       "in dtensor; report it with the command that you ran",
       made.split(c), made.mesh().axis_name(axis));
}

// Says why the axis may not take this alternative, whose reach is beyond
// Reach::kMoved (axis_choices.h).
std::string out_of_reach(const ChoiceMade& made, const AxisChoice& c,
                         int axis) {
  const std::string& name = made.mesh().axis_name(axis);
  bool split = false;
  std::string partial;
  for (size_t i = 0; i < made.in.size(); ++i) {
    const Spec* spec = made.in[i].spec;
    split |= spec->split_axes() >> axis & 1;
    if (spec->partial_axes() >> axis & 1)
      partial += fmt::format("{}{}", partial.empty() ? "" : " and ", i);
  }
  if (!split && partial.empty())
    return fmt::format("no input is split or partial over {}", name);
  const auto first = static_cast<size_t>(c.factors[0]);
  std::string text = fmt::format("{} splits no input by {}", name,
                                 made.rule.rule().factors()[first].letter);
  if (c.reach == Reach::kAll) return text;
  text += fmt::format(": input {} is partial over it, and ", partial);
  if (made.chosen.basis == Basis::kForwardPrice)
    return text + "the work saved does not pay for all that is sent";
  return text + fmt::format(
                    "the price of a gradient that may follow is not known; "
                    "redistribute input {} to split it",
                    partial);
}

// Says why a cheaper choice was not taken: which axes split factors beyond
// Reach::kMoved. Returns "" if none does. If some of these axes need
// Reach::kAll, names only these.
std::string out_of_reach(const ChoiceMade& made, const Choice& c) {
  for (const Reach reach : {Reach::kAll, Reach::kReduced}) {
    std::string text;
    for (int axis = 0; axis < made.mesh().num_axes(); ++axis) {
      if (!(c.beyond >> axis & 1)) continue;
      if (const AxisChoice own = taken(made, c, axis); own.reach == reach)
        text += (text.empty() ? "" : "; ") + out_of_reach(made, own, axis);
    }
    if (!text.empty()) return text;
  }
  return "";
}

// "The next, k: tp, costs 2.00 us more (communication +2.00). ".
std::string compared(const ChoiceMade& made, const Choice& next) {
  const Choice& best = made.chosen;
  std::string parts;
  const auto part = [&](const char* what, int64_t more) {
    if (more)
      parts += fmt::format("{}{} {:+.2f}", parts.empty() ? "" : ", ", what,
                           us(more));
  };
  part("communication", next.comm_ps - best.comm_ps);
  part("work", next.work_ps - best.work_ps);
  part("postponed reduction", next.reduce_ps - best.reduce_ps);
  return fmt::format("The next, {}, costs {:.2f} us more{}. ", made.split(next),
                     us(next.total_ps() - best.total_ps()),
                     parts.empty() ? "" : " (" + parts + ")");
}

}  // namespace

std::string ChoiceMade::split(const Choice& c) const {
  return rule.to_string(c.assignment, mesh());
}

bool ChoiceMade::chosen_is_listed() const {
  return std::any_of(all.begin(), all.end(), [&](const Choice& c) {
    return c.assignment == chosen.assignment;
  });
}

std::string layouts_text(std::span<const SpecRef> specs) {
  std::string text;
  for (const Spec* s : specs)
    text += (text.empty() ? "" : " | ") + s->layout().to_string(s->mesh());
  return text;
}

std::string why_not(const ChoiceMade& made, const Choice& c) {
  const Choice& best = made.chosen;
  if (c.assignment == best.assignment) return "";
  if (!c.feasible) return "it would send a parameter, which must stay";
  if (best.basis == Basis::kWay)
    return "the operator has several algorithms, and chose one by its own "
           "price before";
  if (const int64_t more = c.total_ps() - best.total_ps(); more > 0)
    return us(more) < 0.005 ? "it costs less than 0.01 us more"
                            : fmt::format("it costs {:.2f} us more", us(more));
  if (best.basis == Basis::kGiven)
    return "the caller gave the assignment, as a gradient takes its forward's";
  if (rank(c) < rank(best) || c.beyond)
    if (const std::string text = out_of_reach(made, c); !text.empty())
      return text;
  DT_CHECK(
      rank(c) >= rank(best), "choice",
      "{} is cheaper than {}, which was chosen, and nothing forbids it, which "
      "is an error in dtensor; report it with the command that you ran",
      made.split(c), made.split(best));
  if (c.comm_ps > best.comm_ps) return "it costs the same, but sends more now";
  if (c.steps > best.steps) return "it costs the same, but takes more steps";
  return "it costs the same, but comes later in the order of the rule";
}

std::string why(const ChoiceMade& made) {
  const Choice& best = made.chosen;
  std::string text = fmt::format("chosen: {}, at {:.2f} us. ", made.split(best),
                                 us(best.total_ps()));
  int64_t blocked = 0, cheaper = 0;
  const Choice *next = nullptr, *first = nullptr;
  for (const Choice& c : made.all) {
    if (c.assignment == best.assignment) continue;
    if (!c.feasible) {
      ++blocked;
    } else if (c.total_ps() < best.total_ps()) {
      ++cheaper;
      if (!first) first = &c;
    } else if (!next) {
      next = &c;
    }
  }
  if (next)
    text += compared(made, *next);
  else if (!first)
    text += "It is the only possible one. ";
  if (first)
    text += fmt::format("{} would cost {:.2f} us, but {}. ", made.split(*first),
                        us(first->total_ps()), why_not(made, *first));
  if (cheaper > 1)
    text += fmt::format("{} more would cost less than the chosen one. ",
                        cheaper - 1);
  if (blocked)
    text += fmt::format(
        "{} of the others would send a parameter, which must stay where it "
        "is. ",
        blocked);
  text.pop_back();
  return text;
}

nlohmann::ordered_json choices_json(const ChoiceMade& made, size_t most) {
  auto list = nlohmann::ordered_json::array();
  const auto add = [&](const Choice& c) {
    list.push_back({{"split", made.split(c)},
                    {"in", layouts_json(c.in)},
                    {"out", layouts_json(c.out)},
                    {"comm_us", us(c.comm_ps)},
                    {"work_us", us(c.work_ps)},
                    {"reduce_us", us(c.reduce_ps)},
                    {"chosen", c.assignment == made.chosen.assignment},
                    {"feasible", c.feasible},
                    {"why_not", why_not(made, c)}});
  };
  if (!made.chosen_is_listed()) add(made.chosen);
  for (size_t i = 0; i < made.all.size(); ++i)
    if (i < most || made.all[i].assignment == made.chosen.assignment)
      add(made.all[i]);
  return list;
}

}  // namespace dtensor
