// SPDX-License-Identifier: Apache-2.0
#include "dtensor/placement/choose.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dtensor/placement/axis_choices.h"
#include "dtensor/placement/error.h"
#include "dtensor/placement/needed.h"

namespace dtensor {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The order of choices: by price, then by the comm price alone, then by the
// number of redistribution steps, then by the number of the combination.
struct Rank {
  int64_t total = 0, comm = 0;
  int steps = 0;
  uint64_t ordinal = 0;
  auto operator<=>(const Rank&) const = default;
};

// The choices of each mesh axis, see axis_choices().
using AxisChoices = std::vector<std::vector<AxisChoice>>;

// Branch and bound over the axes of a mesh, best first. A combination takes one
// choice for each axis: with six choices for each of four axes there are 1,296,
// and each would need a plan for every input's move. Two facts make the search
// cheap:
//   - Combinations that do the same to an input move it in the same way. So
//     there are few different moves (Leaf), and each is planned once.
//   - A price is a sum. Once the first axes have their choices, no combination
//     of the other axes costs less than the cheapest leaf of each input and
//     output, plus the work of a rank if all other axes split the work.
// Until a move's exact price matters, quick_plan()'s lower bound stands for it:
// settle() plans moves only for the combination that is the cheapest so far.
//
// REQUIRES: the arguments of the constructor outlive this object.
class Candidates {
 public:
  Candidates(const BoundRule& rule, std::span<const OpInput> inputs,
             std::span<const DType> dtypes, const OpWork& work,
             Planner& planner, const AxisChoices& per_axis, bool feasible_only)
      : rule_(rule),
        inputs_(inputs),
        dtypes_(dtypes),
        work_(work),
        planner_(planner),
        feasible_only_(feasible_only),
        per_axis_(per_axis),
        dims_(rule, inputs),
        terms_(inputs.size() + dtypes.size()) {
    for (size_t a = 0; a < per_axis_.size(); ++a) {
      picked_.push_back(&per_axis_[a][0]);
      if (per_axis_[a].size() == 1) continue;
      axes_.push_back(a);
      first_[axes_.size()] = first_[axes_.size() - 1] + per_axis_[a].size();
    }
    for (size_t t = 0; t < terms_.size(); ++t) find_effects(terms_[t], t);
  }

  // The first `count` choices in the order of Rank.
  std::vector<Choice> best(size_t count) {
    if (axes_.empty())
      push({});
    else
      branch({});
    while (!queue_.empty()) {
      Open open = queue_.top();
      if (found_.size() >= count && open.least > found_.back().first.total)
        break;
      queue_.pop();
      if (open.depth < axes_.size())
        branch(open);
      else
        settle(open, count);
    }
    std::vector<Choice> choices;
    for (auto& [rank, open] : found_) choices.push_back(choice(rank, open));
    return choices;
  }

 private:
  // The cost of one input or output under one combination of effects, one for
  // each axis (see Term).
  struct Leaf {
    Needed needed;
    int64_t ps;     // the price of its move, or a lower bound
    bool exact;     // whether it is the price
    int steps = 0;  // steps of the move, if exact
    bool allowed = true;
    double bytes;  // read or written, of its largest part
  };
  struct Least {
    int64_t ps;
    double bytes;
  };
  // An input or an output. Choices of an axis that do the same to it have the
  // same effect. A number with one effect for each axis as its digits stands
  // for a leaf; its first digits alone, for all leaves that begin with them.
  struct Term {
    std::array<uint16_t, kMaxAxes> effects{};  // by axis, the number of effects
    std::vector<uint16_t> effect;              // by axis and choice, see at()
    std::vector<uint16_t> like;  // by axis and effect: a choice that has it
    std::unordered_map<uint64_t, Leaf> leaves;
    std::vector<std::unordered_map<uint64_t, Least>> least;  // by depth
  };
  // All combinations that begin with the first `depth` of these choices.
  struct Open {
    int64_t least = 0;  // a lower bound of their prices
    size_t depth = 0;
    std::array<uint16_t, kMaxAxes> choice{};
    uint64_t ordinal = 0;
    // For std::priority_queue: the cheapest has priority, then the deepest.
    bool operator<(const Open& o) const {
      if (least != o.least) return least > o.least;
      if (depth != o.depth) return depth < o.depth;
      return ordinal > o.ordinal;
    }
  };

  bool is_input(size_t t) const { return t < inputs_.size(); }
  const Rule::Term& rule_term(size_t t) const {
    return is_input(t) ? rule_.rule().inputs()[t]
                       : rule_.rule().outputs()[t - inputs_.size()];
  }

  // The factors of the choice that matter to a term (bit f: factor f), and the
  // ReduceOp of the partial that the choice gives the term (-1: none).
  std::pair<uint64_t, int> effect_of(size_t t, const AxisChoice& c) const {
    uint64_t factors = 0;
    for (int f : c.factors) {
      // A factor that an output lacks leaves the output partial, unless the
      // operator itself combines the parts ("~" in the rule).
      const bool matters =
          contains(rule_term(t), f) ||
          (!is_input(t) && !rule_.rule().factors()[size_t(f)].inside);
      if (matters) factors |= uint64_t{1} << f;
    }
    int partial = -1;
    if (c.note >= 0) {
      const PartialNote& note = rule_.rule().notes()[size_t(c.note)];
      const bool member = std::find(note.inputs.begin(), note.inputs.end(),
                                    static_cast<int>(t)) != note.inputs.end();
      if (!is_input(t))
        partial = static_cast<int>(*note.pass(c.op));
      else if (member)
        partial = static_cast<int>(c.op);
    }
    return {factors, partial};
  }

  size_t at(size_t k, size_t choice) const { return first_[k] + choice; }

  void find_effects(Term& term, size_t t) {
    term.effect.resize(first_[axes_.size()]);
    term.like.resize(term.effect.size());
    term.least.resize(axes_.size());
    for (size_t k = 0; k < axes_.size(); ++k) {
      const auto& choices = per_axis_[axes_[k]];
      for (size_t c = 0; c < choices.size(); ++c) {
        const auto own = effect_of(t, choices[c]);
        uint16_t e = 0;
        while (e < term.effects[k] &&
               effect_of(t, choices[term.like[at(k, e)]]) != own)
          ++e;
        term.effect[at(k, c)] = e;
        if (e < term.effects[k]) continue;
        term.like[at(k, e)] = static_cast<uint16_t>(c);
        ++term.effects[k];
      }
    }
  }

  uint64_t number(size_t t, const Open& open) const {
    const Term& term = terms_[t];
    uint64_t n = 0;
    for (size_t k = 0; k < open.depth; ++k)
      n = n * term.effects[k] + term.effect[at(k, open.choice[k])];
    return n;
  }

  // The result is valid until the next call.
  const Assignment& assignment(const std::array<uint16_t, kMaxAxes>& choice) {
    for (size_t k = 0; k < axes_.size(); ++k)
      picked_[axes_[k]] = &per_axis_[axes_[k]][choice[k]];
    assemble(rule_, picked_, dims_, assignment_);
    return assignment_;
  }

  Leaf& leaf(size_t t, uint64_t n) {
    Term& term = terms_[t];
    if (auto it = term.leaves.find(n); it != term.leaves.end())
      return it->second;
    std::array<uint16_t, kMaxAxes> choice{};
    uint64_t rest = n;
    for (size_t k = axes_.size(); k-- > 0;) {
      choice[k] = term.like[at(k, rest % term.effects[k])];
      rest /= term.effects[k];
    }
    const Assignment& a = assignment(choice);
    Leaf made;
    made.needed = is_input(t)
                      ? needed_input(rule_, inputs_, a, t)
                      : needed_output(rule_, inputs_, a, t - inputs_.size(),
                                      dtypes_[t - inputs_.size()]);
    const auto& [spec, from, to] = made.needed;
    const Plan* plan = planner_.quick_plan(from, to, made.ps);
    made.exact = plan != nullptr;
    made.bytes = static_cast<double>(spec->largest_part_bytes()) *
                 (is_input(t) ? work_.reads(t) : work_.writes());
    if (plan) finish(t, made, *plan);
    // A move with a price sends something, but an input that stays must not be
    // sent.
    if (is_input(t) && inputs_[t].keep == Keep::kStay && made.ps > 0)
      made.allowed = false;
    return term.leaves.emplace(n, made).first->second;
  }

  void finish(size_t t, Leaf& leaf, const Plan& plan) const {
    leaf.exact = true;
    leaf.ps = plan.time_ps;
    leaf.steps = static_cast<int>(plan.steps.size());
    if (is_input(t)) leaf.allowed = allows(inputs_[t].keep, plan);
  }

  int64_t price(const Leaf& leaf) const {
    return feasible_only_ && !leaf.allowed ? kNever : leaf.ps;
  }

  // The least price and the least bytes of all leaves whose number begins with
  // these digits. The two may come from different leaves.
  Least least(size_t t, size_t depth, uint64_t n) {
    if (depth == axes_.size()) {
      const Leaf& l = leaf(t, n);
      return {price(l), l.bytes};
    }
    if (auto it = terms_[t].least[depth].find(n);
        it != terms_[t].least[depth].end())
      return it->second;
    Least least{kNever, std::numeric_limits<double>::infinity()};
    const size_t effects = terms_[t].effects[depth];
    for (size_t e = 0; e < effects; ++e) {
      Least one = this->least(t, depth + 1, n * effects + e);
      if (one.ps == kNever) continue;
      least.ps = std::min(least.ps, one.ps);
      least.bytes = std::min(least.bytes, one.bytes);
    }
    return terms_[t].least[depth].emplace(n, least).first->second;
  }

  // The share of the points on the rank that has the most: exact if all axes
  // are chosen, else a lower bound.
  double share(const Open& open) {
    if (open.depth == axes_.size()) {
      // Multiplies in the same order as BoundRule::largest_share, so that both
      // round alike.
      double share = 1;
      for (size_t f = 0; f < rule_.rule().factors().size(); ++f) {
        AxisMask mask = 0;
        for (size_t k = 0; k < axes_.size(); ++k)
          if (contains(per_axis_[axes_[k]][open.choice[k]].factors,
                       static_cast<int>(f)))
            mask |= AxisMask{1} << axes_[k];
        if (mask) share *= dims_.share(static_cast<int>(f), mask);
      }
      return share;
    }
    const Mesh& mesh = inputs_[0].spec->mesh();
    double parts = 1;
    for (size_t k = 0; k < axes_.size(); ++k)
      if (k >= open.depth ||
          !per_axis_[axes_[k]][open.choice[k]].factors.empty())
        parts *=
            static_cast<double>(mesh.axis_size(static_cast<int>(axes_[k])));
    return (1 - 1e-9) / parts;
  }

  // A lower bound of the prices of all combinations that begin with these
  // choices.
  int64_t price_of(const Open& open) {
    double bytes = 0;
    int64_t moves = 0;
    for (size_t t = 0; t < terms_.size(); ++t) {
      const Least l = least(t, open.depth, number(t, open));
      if (l.ps == kNever) return kNever;
      moves += l.ps;
      bytes += l.bytes;
    }
    // While some axes have no choice yet, compute()'s own messages are unknown:
    // count 0.
    if (open.depth == axes_.size()) moves += sends(open);
    return moves + work_ps(rule_, work_, share(open), bytes, planner_.cost());
  }
  // The price of the messages that compute() itself sends.
  int64_t sends(const Open& open) {
    if (work_.exchange.times == 0 && rule_.windows().empty()) return 0;
    return exchange_ps(rule_, inputs_, work_, assignment(open.choice),
                       planner_.cost());
  }

  void push(Open open) {
    open.least = price_of(open);
    if (open.least < kNever) queue_.push(open);
  }

  void branch(const Open& open) {
    const size_t choices = per_axis_[axes_[open.depth]].size();
    for (size_t c = 0; c < choices; ++c) {
      Open next = open;
      next.choice[next.depth++] = static_cast<uint16_t>(c);
      next.ordinal = open.ordinal * choices + c;
      push(next);
    }
  }

  // Plans one move that only has a lower bound so far, and puts the combination
  // back into the queue. Once all its moves are planned, adds the combination
  // to found_.
  void settle(const Open& open, size_t count) {
    Rank rank{open.least, 0, 0, open.ordinal};
    for (size_t t = 0; t < terms_.size(); ++t) {
      Leaf& l = leaf(t, number(t, open));
      if (!l.exact) {
        finish(t, l, planner_.plan(l.needed.from, l.needed.to));
        return push(open);
      }
      if (price(l) == kNever) return;
      if (!is_input(t)) continue;
      rank.comm += l.ps;
      rank.steps += l.steps;
    }
    rank.comm += sends(open);
    // Since this combination was queued, another one may have planned a move
    // that both make. If that raised the price, queue this one again.
    if (const int64_t now = price_of(open); now > open.least) return push(open);
    auto at = std::upper_bound(
        found_.begin(), found_.end(), rank,
        [](const Rank& r, const auto& entry) { return r < entry.first; });
    found_.insert(at, {rank, open});
    if (found_.size() > count) found_.pop_back();
  }

  Choice choice(const Rank& rank, const Open& open) {
    Choice c;
    c.assignment = assignment(open.choice);
    c.comm_ps = sends(open);
    int64_t moves = c.comm_ps;
    for (size_t t = 0; t < terms_.size(); ++t) {
      const Leaf& l = leaf(t, number(t, open));
      (is_input(t) ? c.in : c.out).push_back(l.needed.spec);
      (is_input(t) ? c.comm_ps : c.reduce_ps) += l.ps;
      c.feasible &= l.allowed;
      moves += l.ps;
    }
    c.steps = rank.steps;
    c.work_ps = rank.total - moves;
    for (size_t k = 0; k < axes_.size(); ++k)
      if (per_axis_[axes_[k]][open.choice[k]].reach > Reach::kMoved)
        c.beyond |= AxisMask{1} << axes_[k];
    return c;
  }

  const BoundRule& rule_;
  const std::span<const OpInput> inputs_;
  const std::span<const DType> dtypes_;
  const OpWork& work_;
  Planner& planner_;
  const bool feasible_only_;
  const AxisChoices& per_axis_;
  std::vector<size_t> axes_;                  // with two or more choices
  std::array<size_t, kMaxAxes + 1> first_{};  // each axis's start, see at()
  std::vector<const AxisChoice*> picked_;
  FactorDims dims_;
  Assignment assignment_;
  std::vector<Term> terms_;
  std::priority_queue<Open> queue_;
  std::vector<std::pair<Rank, Open>> found_;
};

// Whether input i lies where the assignment needs it.
bool lies_so(const BoundRule& rule, const Assignment& a, size_t i,
             const Spec& have) {
  const Rule::Term& term = rule.rule().inputs()[i];
  for (size_t d = 0; d < term.size(); ++d)
    if (term[d].size() != 1)
      return rule.input_layout(a, have.mesh(), static_cast<int>(i)) ==
             have.layout();
    else if (a.dims[static_cast<size_t>(term[d][0])] != have.layout().dims[d])
      return false;
  return have.layout().partials.empty();
}

// Returns the choice that moves no input and postpones no reduction, if it is
// certainly the cheapest; else nullopt. This is certain only if each axis has
// no option but to split the factors that the inputs split over it, or nothing.
// An axis that split nothing would move an input, make no part smaller, and
// save no work.
std::optional<Choice> in_place(const BoundRule& rule,
                               std::span<const OpInput> inputs,
                               std::span<const DType> dtypes,
                               const OpWork& work, const CostTable& cost,
                               const AxisChoices& per_axis) {
  std::vector<const AxisChoice*> picked;
  for (const auto& choices : per_axis) {
    picked.push_back(&choices.back());
    if (choices.size() > 2 || picked.back()->note >= 0) return std::nullopt;
  }
  Choice c;
  FactorDims dims(rule, inputs);
  assemble(rule, picked, dims, c.assignment);
  if (exchange_ps(rule, inputs, work, c.assignment, cost) > 0)
    return std::nullopt;
  const Mesh& mesh = inputs[0].spec->mesh();
  double bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Spec* have = inputs[i].spec;
    if (!lies_so(rule, c.assignment, i, *have)) return std::nullopt;
    c.in.push_back(have);
    bytes += static_cast<double>(have->largest_part_bytes()) * work.reads(i);
  }
  for (size_t o = 0; o < dtypes.size(); ++o) {
    const Needed n = needed_output(rule, inputs, c.assignment, o, dtypes[o]);
    if (n.from != n.to) return std::nullopt;
    c.out.push_back(n.spec);
    bytes += static_cast<double>(n.spec->largest_part_bytes()) * work.writes();
  }
  c.work_ps =
      work_ps(rule, work, rule.largest_share(c.assignment, mesh), bytes, cost);
  return c;
}

// The cheapest choice within this reach; nullopt if every choice would move an
// input in a way that its Keep forbids.
std::optional<Choice> cheapest(const BoundRule& rule,
                               std::span<const OpInput> inputs,
                               std::span<const DType> dtypes,
                               const OpWork& work, Planner& planner,
                               Reach reach) {
  const AxisChoices per_axis = axis_choices(rule, inputs, reach);
  if (auto choice =
          in_place(rule, inputs, dtypes, work, planner.cost(), per_axis))
    return choice;
  auto best = Candidates(rule, inputs, dtypes, work, planner, per_axis,
                         /*feasible_only=*/true)
                  .best(1);
  if (best.empty()) return std::nullopt;
  return std::move(best[0]);
}

}  // namespace

bool allows(Keep keep, const Plan& p) {
  if (keep == Keep::kMove || !p.communicates()) return true;
  if (keep == Keep::kStay) return false;
  return only_gathers(p);
}

Choice price(const BoundRule& rule, std::span<const OpInput> inputs,
             std::span<const DType> out_dtypes, const OpWork& work,
             const Assignment& assignment, Planner& planner) {
  const Mesh& mesh = inputs[0].spec->mesh();
  Choice c;
  c.assignment = rule.legal(assignment, mesh);
  double bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Needed n = needed_input(rule, inputs, c.assignment, i);
    c.in.push_back(n.spec);
    const Plan& p = planner.plan(n.from, n.to);
    c.comm_ps += p.time_ps;
    c.steps += static_cast<int>(p.steps.size());
    c.feasible &= allows(inputs[i].keep, p);
    bytes += static_cast<double>(n.spec->largest_part_bytes()) * work.reads(i);
  }
  for (size_t o = 0; o < out_dtypes.size(); ++o) {
    const Needed n =
        needed_output(rule, inputs, c.assignment, o, out_dtypes[o]);
    c.out.push_back(n.spec);
    c.reduce_ps += planner.plan(n.from, n.to).time_ps;
    bytes += static_cast<double>(n.spec->largest_part_bytes()) * work.writes();
  }
  c.comm_ps += exchange_ps(rule, inputs, work, c.assignment, planner.cost());
  c.work_ps = work_ps(rule, work, rule.largest_share(c.assignment, mesh), bytes,
                      planner.cost());
  return c;
}

std::vector<size_t> operand_order(std::span<const OpInput> inputs) {
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // stable_sort would allocate.
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool stays = inputs[a].keep == Keep::kStay;
    if (stays != (inputs[b].keep == Keep::kStay)) return stays;
    const int64_t n = numel(inputs[a].spec->shape());
    const int64_t m = numel(inputs[b].spec->shape());
    return n != m ? n > m : a < b;
  });
  return order;
}

Choice choose(const BoundRule& rule, std::span<const OpInput> inputs,
              std::span<const DType> out_dtypes, const OpWork& work,
              Planner& planner, std::string_view op, bool forward_only) {
  auto best = cheapest(rule, inputs, out_dtypes, work, planner, Reach::kMoved);
  if (!best) {
    std::string listed;
    for (const OpInput& in : inputs)
      listed += (listed.empty() ? "" : ", ") + in.spec->to_string() +
                (in.keep == Keep::kMove ? "" : " (parameter)");
    fail(op,
         "there is no way to compute on {} without sending a parameter; "
         "redistribute an input first, or do not call as_parameter() on a "
         "tensor that may be sent: set_requires_grad() alone asks for a "
         "gradient",
         listed);
  }
  if (!forward_only) return std::move(*best);
  auto split =
      cheapest(rule, inputs, out_dtypes, work, planner, Reach::kReduced);
  if (split->total_ps() < best->work_ps + best->reduce_ps)
    best = std::move(split);
  best->basis = Basis::kForwardPrice;
  return std::move(*best);
}

std::vector<Choice> all_choices(const BoundRule& rule,
                                std::span<const OpInput> inputs,
                                std::span<const DType> out_dtypes,
                                const OpWork& work, Planner& planner,
                                int limit) {
  const AxisChoices per_axis = axis_choices(rule, inputs, Reach::kAll);
  return Candidates(rule, inputs, out_dtypes, work, planner, per_axis,
                    /*feasible_only=*/false)
      .best(limit > 0 ? static_cast<size_t>(limit)
                      : std::numeric_limits<size_t>::max());
}

}  // namespace dtensor
