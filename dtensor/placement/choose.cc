#include "dtensor/placement/choose.h"

#include <algorithm>
#include <numeric>

#include "dtensor/placement/dims.h"
#include "dtensor/placement/error.h"

namespace dtensor {
namespace {

// What one mesh axis does in an assignment.
struct AxisChoice {
  std::vector<int> factors;      // splits these
  int note = -1;                 // or lets this note's inputs pass ...
  ReduceOp op = ReduceOp::kSum;  // ... partial by this
};

bool contains(const Rule::DimFactors& d, int f) {
  return std::find(d.begin(), d.end(), f) != d.end();
}

// What an input has of factor f: whole where it lacks it, or where a group of
// factors is split in another way.
Dim dim_on(const BoundRule& rule, const Spec* spec, size_t input, int f) {
  const Rule::Term& term = rule.rule().inputs()[input];
  for (size_t d = 0; d < term.size(); ++d) {
    if (!contains(term[d], f)) continue;
    const Dim& dim = spec->dim(static_cast<int>(d));
    if (term[d].size() == 1) return dim;
    std::vector<int64_t> sizes;
    for (int g : term[d]) sizes.push_back(rule.size(g));
    if (auto parts = dim.unflatten(spec->mesh(), sizes))
      for (size_t k = 0; k < parts->size(); ++k)
        if (term[d][k] == f) return (*parts)[k];
  }
  return Dim(rule.size(f));
}

// The Dim of factor f over exactly the axes in `mask`: as an operand has it
// where one does (one that stays first, then the largest), else that
// operand's leading axes and the others after them in mesh order.
Dim dim_for(const BoundRule& rule, std::span<const OpInput> inputs,
            const std::vector<size_t>& order, int f, AxisMask mask) {
  int64_t n = rule.size(f), granule = 1;
  if (!mask) return Dim(n);
  const Mesh& mesh = inputs[0].spec->mesh();
  Dim base(n);
  for (size_t i : order) {
    Dim d = dim_on(rule, inputs[i].spec, i, f);
    if (d.axes() == mask) return d;
    Dim kept = restricted(d, mesh, mask);
    // A tree is taken whole or not at all: nothing is pushed onto it.
    bool fits = kept.kind() == Dim::Kind::kLeaf || kept.axes() == mask;
    if (base.whole() && fits) base = kept;
    if (!d.split().points()) granule = std::lcm(granule, d.split().granule());
  }
  if (base.kind() != Dim::Kind::kLeaf) return base;
  Split s = base.split();
  if (s.points()) {
    for (int a = 0; a < mesh.num_axes(); ++a)
      if ((mask & ~s.mask()) >> a & 1) s = s.pushed(mesh, n, a);
    return Dim(n, s);
  }
  std::vector<int> axes = s.axes();
  for (int a = 0; a < mesh.num_axes(); ++a)
    if ((mask & ~s.mask()) >> a & 1) axes.push_back(a);
  return Dim(n, Split::over(axes, granule).canonical(mesh, n));
}

// Calls fn(choice per axis) for every combination.
template <class Fn>
void combinations(const std::vector<std::vector<AxisChoice>>& per_axis,
                  Fn&& fn) {
  std::vector<size_t> at(per_axis.size(), 0);
  std::vector<const AxisChoice*> picked(per_axis.size());
  for (;;) {
    for (size_t a = 0; a < at.size(); ++a) picked[a] = &per_axis[a][at[a]];
    fn(picked);
    size_t a = at.size();
    while (a > 0 && ++at[a - 1] == per_axis[a - 1].size()) at[--a] = 0;
    if (a == 0) return;
  }
}

template <class DimOf>
Assignment assemble(const BoundRule& rule,
                    const std::vector<const AxisChoice*>& picked,
                    DimOf&& dim_of) {
  Assignment a;
  size_t factors = rule.rule().factors().size();
  std::vector<AxisMask> masks(factors, 0);
  for (size_t axis = 0; axis < picked.size(); ++axis) {
    for (int f : picked[axis]->factors)
      masks[static_cast<size_t>(f)] |= AxisMask{1} << axis;
    if (picked[axis]->note >= 0)
      a.passes.push_back(
          {static_cast<int>(axis), picked[axis]->note, picked[axis]->op});
  }
  for (size_t f = 0; f < factors; ++f)
    a.dims.push_back(dim_of(static_cast<int>(f), masks[f]));
  return a;
}

// Does some input's dimension with factor f split over this axis?
bool carried(const BoundRule& rule, std::span<const OpInput> inputs, int axis,
             int f) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Rule::Term& term = rule.rule().inputs()[i];
    for (size_t d = 0; d < term.size(); ++d)
      if (contains(term[d], f) &&
          (inputs[i].spec->dim(static_cast<int>(d)).axes() >> axis & 1))
        return true;
  }
  return false;
}

std::vector<std::vector<AxisChoice>> axis_choices(
    const BoundRule& rule, std::span<const OpInput> inputs, bool all) {
  const Mesh& mesh = inputs[0].spec->mesh();
  std::vector<std::vector<AxisChoice>> per_axis;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<AxisChoice> list{{}};
    bool used = all && mesh.axis_size(axis) > 1;
    for (const OpInput& in : inputs)
      used |= (in.spec->split_axes() | in.spec->partial_axes()) >> axis & 1;
    if (used) {
      for (auto& factors : rule.choices())
        if (all || carried(rule, inputs, axis, factors[0]))
          list.push_back({factors});
      for (size_t n = 0; n < rule.rule().notes().size(); ++n) {
        const PartialNote& note = rule.rule().notes()[n];
        for (int i : note.inputs) {
          auto op =
              inputs[static_cast<size_t>(i)].spec->layout().partial_on(axis);
          if (!op || !note.pass(*op)) continue;
          list.push_back({{}, static_cast<int>(n), *op});
          break;
        }
      }
    }
    per_axis.push_back(std::move(list));
  }
  return per_axis;
}

// Bytes that a plan takes in a cache, with its key and the map's own.
size_t footprint(const Plan& p) {
  return sizeof(Plan) + p.steps.size() * sizeof(Step) + 64;
}

}  // namespace

bool allows(Keep keep, const Plan& p) {
  if (keep == Keep::kMove || !p.communicates()) return true;
  if (keep == Keep::kStay) return false;
  return std::all_of(p.steps.begin(), p.steps.end(), [](const Step& s) {
    return !sends(s.kind) || s.kind == StepKind::kAllGather;
  });
}

const Plan& Planner::plan(const Spec* from, const Spec* to) {
  const Move key{from, to};
  if (const Plan* known = plans_.find(key)) return *known;
  Plan made = dtensor::plan(from, to, cost_);
  const size_t bytes = footprint(made);
  return plans_.insert(key, std::move(made), bytes);
}

const Plan& Planner::plan(std::span<const Move> moves) {
  std::vector<Move> key(moves.begin(), moves.end());
  if (const Plan* known = lists_.find(key)) return *known;
  Plan made = dtensor::plan(moves, cost_);
  const size_t bytes = footprint(made) + moves.size_bytes();
  return lists_.insert(std::move(key), std::move(made), bytes);
}

Choice price(const BoundRule& rule, std::span<const OpInput> inputs,
             std::span<const DType> out_dtypes, const OpWork& work,
             const Assignment& assignment, Planner& planner) {
  const Mesh& mesh = inputs[0].spec->mesh();
  Choice c;
  c.assignment = rule.legal(assignment, mesh);
  double bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Spec* have = inputs[i].spec;
    const Spec* need =
        have->with(rule.input_layout(c.assignment, mesh, static_cast<int>(i)));
    c.in.push_back(need);
    const Plan& p = planner.plan(have, need);
    c.comm_ps += p.time_ps;
    c.steps += static_cast<int>(p.steps.size());
    c.feasible &= allows(inputs[i].keep, p);
    bytes += static_cast<double>(need->largest_part_bytes());
  }
  for (size_t o = 0; o < rule.rule().outputs().size(); ++o) {
    Layout l = rule.output_layout(c.assignment, mesh, static_cast<int>(o));
    const Spec* out = Spec::get(mesh, rule.output_shape(static_cast<int>(o)), l,
                                out_dtypes[o]);
    c.out.push_back(out);
    bytes += static_cast<double>(out->largest_part_bytes());
    // What is put off.
    Layout settled = out->layout();
    settled.partials.clear();
    const Rule::Term& term = rule.rule().outputs()[o];
    for (size_t d = 0; d < term.size(); ++d) {
      AxisMask carried = 0;
      for (int f : term[d])
        for (size_t i = 0; i < inputs.size(); ++i)
          for (size_t k = 0; k < rule.rule().inputs()[i].size(); ++k)
            if (contains(rule.rule().inputs()[i][k], f))
              carried |= inputs[i].spec->dim(static_cast<int>(k)).axes();
      const Split& s = settled.dims[d].split();
      int kept = 0;
      while (kept < s.num_axes() && (carried >> s.axis(kept) & 1)) ++kept;
      if (settled.dims[d].kind() == Dim::Kind::kLeaf && kept < s.num_axes())
        settled.dims[d] = Dim(settled.dims[d].size(), s.prefix(mesh, kept));
    }
    c.reduce_ps += planner.plan(out, out->with(settled)).time_ps;
  }
  c.work_ps = planner.cost().work_ps(work.flops_per_point * rule.points() *
                                         rule.largest_share(c.assignment, mesh),
                                     bytes);
  return c;
}

std::vector<size_t> operand_order(std::span<const OpInput> inputs) {
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const bool stays = inputs[a].keep == Keep::kStay;
    if (stays != (inputs[b].keep == Keep::kStay)) return stays;
    return numel(inputs[a].spec->shape()) > numel(inputs[b].spec->shape());
  });
  return order;
}

Choice choose(const BoundRule& rule, std::span<const OpInput> inputs,
              std::span<const DType> out_dtypes, const OpWork& work,
              Planner& planner, std::string_view op) {
  auto order = operand_order(inputs);
  std::optional<Choice> best;
  const Choice* blocked = nullptr;
  Choice first_blocked;
  combinations(axis_choices(rule, inputs, false), [&](const auto& picked) {
    Assignment a = assemble(rule, picked, [&](int f, AxisMask mask) {
      return dim_for(rule, inputs, order, f, mask);
    });
    Choice c = price(rule, inputs, out_dtypes, work, a, planner);
    if (!c.feasible) {
      if (!blocked) first_blocked = c, blocked = &first_blocked;
      return;
    }
    if (!best || c.total_ps() < best->total_ps() ||
        (c.total_ps() == best->total_ps() && c.steps < best->steps))
      best = std::move(c);
  });
  if (!best) {
    std::string listed;
    for (const OpInput& in : inputs)
      listed += (listed.empty() ? "" : ", ") + in.spec->to_string() +
                (in.keep == Keep::kMove ? "" : " (parameter)");
    fail(op,
         "no way to compute on {} without sending a parameter; redistribute "
         "one of them first",
         listed);
  }
  return std::move(*best);
}

std::vector<Choice> all_choices(const BoundRule& rule,
                                std::span<const OpInput> inputs,
                                std::span<const DType> out_dtypes,
                                const OpWork& work, Planner& planner,
                                int limit) {
  auto order = operand_order(inputs);
  std::vector<Choice> all;
  combinations(axis_choices(rule, inputs, true), [&](const auto& picked) {
    Assignment a = assemble(rule, picked, [&](int f, AxisMask mask) {
      return dim_for(rule, inputs, order, f, mask);
    });
    all.push_back(price(rule, inputs, out_dtypes, work, a, planner));
  });
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) {
                     return std::pair(a.total_ps(), a.steps) <
                            std::pair(b.total_ps(), b.steps);
                   });
  if (limit > 0 && static_cast<int>(all.size()) > limit)
    all.resize(static_cast<size_t>(limit));
  return all;
}

std::vector<Assignment> enumerate(const BoundRule& rule, const Mesh& mesh,
                                  std::span<const ReduceOp> ops) {
  std::vector<std::vector<AxisChoice>> per_axis;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<AxisChoice> list{{}};
    for (auto& factors : rule.choices()) list.push_back({factors});
    for (size_t n = 0; n < rule.rule().notes().size(); ++n)
      for (ReduceOp op : ops)
        if (rule.rule().notes()[n].pass(op))
          list.push_back({{}, static_cast<int>(n), op});
    per_axis.push_back(std::move(list));
  }
  std::vector<Assignment> all;
  combinations(per_axis, [&](const auto& picked) {
    all.push_back(assemble(rule, picked, [&](int f, AxisMask mask) {
      return balanced(rule.size(f), mask).canonical(mesh);
    }));
  });
  return all;
}

}  // namespace dtensor
