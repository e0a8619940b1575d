// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "dtensor/nn/optimizers.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/scopes.h"

namespace dtensor::nn {
namespace {

// One tensor for each parameter: a vector over all of them.
using Vector = std::vector<DistTensor>;

// The sum over all elements of f(k), whole on every rank.
DistTensor total(size_t n, const std::function<DistTensor(size_t)>& f) {
  DistTensor sum = f(0);
  for (size_t k = 1; k < n; ++k) sum = sum + f(k);
  return sum.redistribute(Placements());
}
DistTensor dot(const Vector& a, const Vector& b) {
  return total(a.size(), [&](size_t k) { return sum(a[k] * b[k]); });
}

Vector combine(
    const Vector& a, const Vector& b,
    const std::function<DistTensor(const DistTensor&, const DistTensor&)>& f) {
  Vector c;
  for (size_t k = 0; k < a.size(); ++k) c.push_back(f(a[k], b[k]));
  return c;
}
// a + factor * b.
Vector plus(const Vector& a, const Vector& b, const DistTensor& factor) {
  return combine(a, b, [&](const DistTensor& x, const DistTensor& y) {
    return x + y * factor;
  });
}

double number(const DistTensor& x) {
  const NoGrad no_grad;
  return cast(x, DType::kF64).item<double>();
}

// The largest size of an element.
double largest(const Vector& all) {
  const NoGrad no_grad;
  double most = 0;
  for (const DistTensor& x : all)
    if (numel(x.shape()) > 0) most = std::max(most, number(amax(abs(x))));
  return most;
}

// ---- The line search ----

// A point along a direction: the loss, and its derivative by t.
struct Point {
  double t, loss, slope;
  Vector gradients = {};
};

// The minimum of the cubic through two points (Nocedal and Wright, equation
// 3.59), moved into [from, to]; the middle if there is none.
double cubic_minimum(const Point& a, const Point& b, double from, double to) {
  const Point &l = a.t <= b.t ? a : b, &r = a.t <= b.t ? b : a;
  const double d1 = l.slope + r.slope - 3 * (l.loss - r.loss) / (l.t - r.t);
  const double square = d1 * d1 - l.slope * r.slope;
  if (!(square >= 0)) return (from + to) / 2;
  const double d2 = std::sqrt(square);
  const double t =
      r.t - (r.t - l.t) * ((r.slope + d2 - d1) / (r.slope - l.slope + 2 * d2));
  return std::min(std::max(t, from), to);
}

// Algorithms 3.5 and 3.6, with the details and constants of torch: at most
// `most` calls of at(t), and an end if no element would move by 1e-9. `now` is
// the first point tried, and `size` the direction's largest element.
Point strong_wolfe(const Point& start, Point now, double size, int64_t most,
                   const std::function<Point(double t)>& at) {
  const auto high_loss = [&](const Point& p) {
    return p.loss > start.loss + 1e-4 * p.t * start.slope;
  };
  const auto flat = [&](const Point& p) {
    return std::abs(p.slope) <= -0.9 * start.slope;
  };
  Point before = start;
  int64_t i = 0;
  for (; i < most; ++i) {
    if (high_loss(now) || (i > 1 && now.loss >= before.loss)) break;
    if (flat(now)) return now;
    if (now.slope >= 0) break;
    const double t = cubic_minimum(
        before, now, now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, at(t));
  }
  Point ends[] = {i < most ? before : start, now};
  size_t low = ends[0].loss <= ends[1].loss ? 0 : 1;
  bool slow = false;
  for (; i < most; ++i) {
    const auto [left, right] = std::minmax({ends[0].t, ends[1].t});
    if ((right - left) * size < 1e-9) break;
    double t = cubic_minimum(ends[0], ends[1], left, right);
    // Two points in a row near an end make too little progress.
    const double margin = 0.1 * (right - left);
    const bool near = std::min(right - t, t - left) < margin;
    const bool moved = near && (slow || t >= right || t <= left);
    if (moved) t = right - t < t - left ? right - margin : left + margin;
    slow = near && !moved;
    now = at(t);
    if (high_loss(now) || now.loss >= ends[low].loss) {
      ends[1 - low] = now;
      low = ends[0].loss <= ends[1].loss ? 0 : 1;
      continue;
    }
    if (flat(now)) return now;
    if (now.slope * (ends[1 - low].t - ends[low].t) >= 0)
      ends[1 - low] = ends[low];
    ends[low] = now;
  }
  return ends[low];
}

}  // namespace

LBFGS::LBFGS(const ParameterGroups& groups, const LBFGSOptions& o)
    : Optimizer(
          groups, 0,
          [&](const DistTensor& p) {
            Shape shape = p.shape();
            shape.insert(0, o.history_size);
            Layout layout = p.layout();
            layout.dims.insert(layout.dims.begin(), Dim(o.history_size));
            std::vector<NamedTensor> s;
            for (const char* name : {"prev_flat_grad", "prev_step"})
              s.push_back({name, zeros_like(p)});
            for (const char* name : {"old_dirs", "old_stps"})
              s.push_back({name, zeros(shape, p.mesh(), layout, p.dtype())});
            s.push_back({"pairs", zeros({}, p.mesh(), {}, DType::kI64)});
            return s;
          }),
      options_(o) {
  check_option("tolerance_grad", o.tolerance_grad, 1e300);
  check_option("tolerance_change", o.tolerance_change, 1e300);
  DT_CHECK(o.max_iter > 0 && o.max_eval >= 0 && o.history_size > 0, "lbfgs",
           "max_iter is {}, max_eval is {} and history_size is {}; write at "
           "least 1, 0 and 1",
           o.max_iter, o.max_eval, o.history_size);
  const DistTensor* first = nullptr;
  for (const ParameterGroup& group : groups.groups()) {
    DT_CHECK(group.weight_decay.value_or(0) == 0, "lbfgs",
             "a group has the weight decay {}, but the loss must include it; "
             "leave it out, and add it to the loss of the closure",
             *group.weight_decay);
    for (const auto& [name, p] : group.parameters) {
      if (!first) first = &p;
      DT_CHECK(p.mesh() == first->mesh(), "lbfgs",
               "parameter {} is on {}, but the first one is on {}; pass "
               "parameters of one mesh",
               name, p.mesh().to_string(), first->mesh().to_string());
    }
  }
}

std::vector<DistTensor> LBFGS::update_all(std::span<ParameterUpdate> all) {
  const auto states = [&](const char* name) {
    Vector v;
    for (ParameterUpdate& u : all) v.push_back(u.state(name));
    return v;
  };
  const size_t n = all.size();
  const int64_t room = options_.history_size;
  const bool first = all[0].step == 1;
  Vector g;
  for (const ParameterUpdate& u : all) g.push_back(u.gradient);
  // How the gradients changed in earlier steps, and these steps.
  Vector y = states("old_dirs"), s = states("old_stps");
  auto pairs = all[0].state("pairs").item<int64_t>();
  DistTensor scale = ones({}, g[0].mesh(), {}, g[0].dtype());
  if (!first) {
    const Vector step = states("prev_step"),
                 change =
                     combine(g, states("prev_flat_grad"),
                             [](const auto&a, const auto&b) { return a - b; });
    if (number(dot(change, step)) > 1e-10) {
      const auto push = [&](DistTensor& stack, const DistTensor& last) {
        stack = pairs < room
                    ? select_scatter(stack, last, 0, pairs)
                    : cat({slice(stack, 0, 1, room), unsqueeze(last, 0)}, 0);
      };
      for (size_t k = 0; k < n; ++k) push(y[k], change[k]), push(s[k], step[k]);
      pairs = std::min(pairs + 1, room);
    }
  }
  const auto row = [&](const Vector& stacks, int64_t i) {
    Vector v;
    for (const DistTensor& x : stacks) v.push_back(select(x, 0, i));
    return v;
  };
  std::vector<DistTensor> rho, alpha(static_cast<size_t>(pairs));
  for (int64_t i = 0; i < pairs; ++i)
    rho.push_back(1 / dot(row(y, i), row(s, i)));
  if (pairs > 0) {
    const Vector last = row(y, pairs - 1);
    scale = 1 / (rho.back() * dot(last, last));
  }
  Vector way;
  for (const DistTensor& x : g) way.push_back(-x);
  for (int64_t i = pairs - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    alpha[at] = dot(row(s, i), way) * rho[at];
    way = plus(way, row(y, i), -alpha[at]);
  }
  for (DistTensor& x : way) x = x * scale;
  for (int64_t i = 0; i < pairs; ++i) {
    const auto at = static_cast<size_t>(i);
    const DistTensor beta = dot(row(y, i), way) * rho[at];
    way = plus(way, row(s, i), alpha[at] - beta);
  }
  double rate = 1;
  if (first)
    rate = std::min(
        1.0, 1 / number(total(n, [&](size_t k) { return sum(abs(g[k])); })));
  level_ = number(dot(g, way)) > -options_.tolerance_change;
  std::vector<DistTensor> values;
  for (size_t k = 0; k < n; ++k) {
    ParameterUpdate& u = all[k];
    const DistTensor step = way[k] * (rate * u.lr);
    u.state("prev_flat_grad") = g[k];
    u.state("prev_step") = step;
    u.state("old_dirs") = y[k];
    u.state("old_stps") = s[k];
    u.state("pairs") = full({}, static_cast<double>(pairs), u.parameter.mesh(),
                            {}, DType::kI64);
    values.push_back(level_ ? u.parameter : u.parameter + step);
  }
  return values;
}

// Searches along the last update, of which the parameters are at t = 1, and
// leaves them at the point that it returns.
LBFGS::Evaluation LBFGS::search(const Closure& closure, const Vector& from,
                                const Evaluation& at_start, int64_t most,
                                int64_t& calls) {
  Vector steps, way;  // the optimizer's own states, and their first values
  for (const OptimizerState& s : state())
    if (s.name.ends_with(".prev_step")) {
      steps.push_back(s.value);
      way.push_back(s.value.clone());
    }
  const auto slope = [&](const Vector& g) { return number(dot(way, g)); };
  const auto go = [&](double t) {
    const NoGrad no_grad;
    for (size_t k = 0; k < way.size(); ++k)
      DistTensor(parameters()[k]).copy_(from[k] + way[k] * t);
  };
  const auto evaluate = [&](double t) {
    ++calls;
    Evaluation e = closure();
    return Point{t, number(e.loss), slope(e.gradients), e.gradients};
  };
  const Point start{0, number(at_start.loss), slope(at_start.gradients),
                    at_start.gradients};
  const double size = largest(way);
  const Point best =
      strong_wolfe(start, evaluate(1), size, most, [&](double t) {
        go(t);
        return evaluate(t);
      });
  go(best.t);
  for (size_t k = 0; k < way.size(); ++k) steps[k].copy_(way[k] * best.t);
  return {full({}, best.loss, at_start.loss.mesh(), {}, DType::kF64),
          best.gradients};
}

double LBFGS::minimize(const Closure& closure, const UpdateOptions& options) {
  const LBFGSOptions& o = options_;
  const bool searches = o.line_search_fn == LineSearch::kStrongWolfe;
  DT_CHECK(
      !searches ||
          (options.grad_scale == 1 && !options.clip.defined() && !options.skip),
      "lbfgs",
      "a line search compares the loss with its gradients, but grad_scale "
      "is {}, clip is{} defined and skip is {}; pass only lr",
      options.grad_scale, options.clip.defined() ? "" : " not", options.skip);
  Evaluation now = closure();
  const double first = number(now.loss);
  double loss = first;
  const int64_t most = o.max_eval ? o.max_eval : o.max_iter * 5 / 4;
  if (largest(now.gradients) <= o.tolerance_grad) return first;
  int64_t calls = 1;
  for (int64_t i = 1;; ++i) {
    Vector from;
    if (searches)
      for (const DistTensor& p : parameters())
        from.push_back(p.detach().clone());
    step(now.gradients, options);
    if (level_) break;
    if (searches) now = search(closure, from, now, most - calls, calls);
    if (i == o.max_iter || calls + (searches ? 0 : 1) >= most) break;
    double change = 0;
    for (const OptimizerState& s : state())
      if (s.name.ends_with(".prev_step"))
        change = std::max(change, largest({s.value}));
    if (!searches) {
      now = closure();
      ++calls;
    }
    const double before = std::exchange(loss, number(now.loss));
    if (largest(now.gradients) <= o.tolerance_grad ||
        change <= o.tolerance_change ||
        std::abs(loss - before) < o.tolerance_change)
      break;
  }
  return first;
}

}  // namespace dtensor::nn
