// SPDX-License-Identifier: Apache-2.0
#include "dtensor/nn/soap.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "dtensor/nn/owners.h"
#include "dtensor/ops/by_index.h"
#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/linalg.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/view.h"
#include "dtensor/placement/error.h"
#include "dtensor/rank_context.h"

namespace dtensor::nn {
namespace {

struct Side {
  const char *average, *basis;
  int dim;
};
constexpr Side kSides[] = {{"left", "left_basis", 0},
                           {"right", "right_basis", 1}};

// x [.., m, n] times the basis of one side; `back` from that basis.
DistTensor projected(const DistTensor& x, const DistTensor& basis, int side,
                     bool back) {
  const DistTensor turned = transpose(basis, -2, -1);
  return side == 0 ? matmul(back ? basis : turned, x)
                   : matmul(x, back ? turned : basis);
}

}  // namespace

SOAP::SOAP(const ParameterGroups& matrices, const SOAPOptions& o,
           const ParameterGroups& others, const AdamWOptions& adamw)
    : MatrixOptimizer(
          setup(
              "soap", matrices, others, adamw, MatrixWork::kOwned, std::nullopt,
              [&](const Spec* g) {
                const int64_t m = g->shape()[0], n = g->shape()[1];
                int64_t ps = 0;
                for (const int64_t k : g->shape())
                  if (k <= o.max_precond_dim)  // the sum, and 3 changes
                    ps += 4 * product_ps(RankContext::current().planner.cost(),
                                         k, k, m * n / std::max<int64_t>(1, k),
                                         g->dtype());
                return Price{ps, ps};
              }),
          o.weight_decay,
          [&](const DistTensor& p, int64_t owner) {
            const auto here = [&](const DistTensor& x) {
              return owner < 0 ? x
                               : x.redistribute(
                                     owned_layout(x.mesh(), x.shape(), owner));
            };
            std::vector<NamedTensor> s;
            for (const char* name : {"exp_avg", "exp_avg_sq"})
              s.push_back({name, here(zeros_like(p))});
            for (const Side& side : kSides) {
              const int64_t n = p.size(side.dim);
              if (n > o.max_precond_dim) continue;
              for (const char* name : {side.average, side.basis})
                s.push_back(
                    {name, here(zeros({n, n}, p.mesh(), {}, p.dtype()))});
            }
            return s;
          }),
      options_(o) {
  check_option("beta1", o.beta1, 1);
  check_option("beta2", o.beta2, 1);
  check_option("shampoo_beta", o.shampoo_beta, 1);
  check_option("eps", o.eps, 1e300);
  DT_CHECK(o.precondition_frequency > 0, "optimizer",
           "precondition_frequency is {}; it must be at least 1",
           o.precondition_frequency);
}

DistTensor SOAP::matrix(ParameterUpdate& u) { return u.gradient; }

DistTensor SOAP::work(ParameterUpdate& u, const DistTensor& g) {
  const SOAPOptions& o = options_;
  // The states, as this function works on them.
  std::vector<DistTensor> now;
  for (const NamedTensor& s : u.states) now.push_back(stacked(s.tensor, g));
  DistTensor &mean = now[0], &square = now[1];
  const int64_t t = u.step - 1;  // the first step makes no update
  const auto turned_to = [&](DistTensor x, bool back) {
    for (size_t k = 2; k < now.size(); k += 2)
      x = projected(x, now[k + 1], u.states[k].name == "left" ? 0 : 1, back);
    return x;
  };
  DistTensor way = zeros_like(g);
  if (t > 0) {
    const DistTensor turned = turned_to(g, false);
    mean = lerp(mean, g, 1 - o.beta1);
    square = lerp(square, turned * turned, 1 - o.beta2);
    const auto steps = static_cast<double>(t);
    const double size = std::sqrt(1 - std::pow(o.beta2, steps)) /
                        (1 - std::pow(o.beta1, steps));
    way =
        turned_to(turned_to(mean, false) / (sqrt(square) + o.eps), true) * size;
  }
  for (size_t k = 2; k < now.size(); k += 2) {
    DistTensor &average = now[k], &basis = now[k + 1];
    const int dim = u.states[k].name == "left" ? 0 : 1;
    const DistTensor turned = transpose(g, -2, -1);
    average = lerp(average, dim == 0 ? matmul(g, turned) : matmul(turned, g),
                   1 - o.shampoo_beta);
    if (t == 0) {
      basis = flip(eigh(average).vectors, {-1});
    } else if (t % o.precondition_frequency == 0) {
      // The columns are sorted by the eigenvalues, from the largest on.
      const DistTensor next = matmul(average, basis);
      const DistTensor order = argsort(sum(basis * next, {-2}), -1, true);
      basis = qr(take_along_dim(next, unsqueeze(order, -2), -1)).q;
      square =
          take_along_dim(square, unsqueeze(order, dim == 0 ? -1 : -2), dim - 2);
    }
  }
  for (size_t k = 0; k < now.size(); ++k) {
    DistTensor& old = u.states[k].tensor;
    old = unstacked(now[k], old);
  }
  return way;
}

DistTensor SOAP::finish(ParameterUpdate& u, const DistTensor& way) {
  if (u.step == 1) return u.parameter;
  return (u.parameter - way * u.lr) * (1 - u.lr * u.weight_decay);
}

}  // namespace dtensor::nn
