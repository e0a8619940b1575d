// SPDX-License-Identifier: Apache-2.0
#include "dtensor/ops/distance.h"

#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/embedding.h"
#include "dtensor/ops/op.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/ops/vectors.h"
#include "dtensor/placement/error.h"

namespace dtensor {

DistTensor pairwise_distance(const DistTensor& a, const DistTensor& b, double p,
                             double eps, bool keepdim) {
  return vector_norm(add(sub(a, b), eps), p, {-1}, keepdim);
}

DistTensor dist(const DistTensor& a, const DistTensor& b, double p) {
  return vector_norm(sub(a, b), p);
}

DistTensor cdist(const DistTensor& a, const DistTensor& b, double p,
                 std::optional<bool> by_matmul) {
  check_defined("cdist", {a, b});
  DT_CHECK(a.ndim() >= 2 && b.ndim() >= 2 && a.size(-1) == b.size(-1), "cdist",
           "{} and {} are not sets of vectors of one length; pass [..., m, k] "
           "and [..., n, k]",
           a.spec()->to_string(), b.spec()->to_string());
  DT_CHECK(p >= 0, "cdist", "p is {}; write 0 or more", p);
  if (p != 2 || !by_matmul.value_or(a.size(-2) > 25 || b.size(-2) > 25))
    return vector_norm(sub(unsqueeze(a, -2), unsqueeze(b, -3)), p, {-1});
  const auto squares = [](const DistTensor& x, int dim) {
    return unsqueeze(sum(square(x), {-1}), dim);
  };
  const DistTensor products = matmul(a, transpose(b, -1, -2));
  const DistTensor total =
      sub(add(squares(a, -1), squares(b, -2)), mul(products, 2));
  // The slope of the root at 0 is infinite, and counts as 0.
  const DistTensor positive = gt(total, 0);
  return where(positive, sqrt(where(positive, total, 1)), 0);
}

DistTensor pdist(const DistTensor& x, double p) {
  check_defined("pdist", x);
  DT_CHECK(x.ndim() == 2, "pdist", "{} is not a set of vectors; pass [n, k]",
           x.spec()->to_string());
  const int64_t n = x.size(0);
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j) pairs.push_back(i * n + j);
  return index_select(flatten(cdist(x, x, p, false)), 0,
                      vector_of(pairs, x.mesh()));
}

DistTensor renorm(const DistTensor& x, double p, int dim, double maxnorm) {
  check_defined("renorm", x);
  DT_CHECK(x.ndim() >= 2, "renorm",
           "{} has no slices; pass at least two dimensions",
           x.spec()->to_string());
  const int own = normalize_dim(dim, x.ndim(), "renorm");
  DT_CHECK(p > 0 && maxnorm >= 0, "renorm",
           "p is {}, and maxnorm is {}; write p > 0 and maxnorm >= 0", p,
           maxnorm);
  std::vector<int> dims;
  for (int d = 0; d < x.ndim(); ++d)
    if (d != own) dims.push_back(d);
  const DistTensor norm = vector_norm(x, p, dims, true);
  return mul(x, where(gt(norm, maxnorm), div(maxnorm, add(norm, 1e-7)), 1));
}

DistTensor cross(const DistTensor& a, const DistTensor& b,
                 std::optional<int> dim) {
  check_defined("cross", {a, b});
  int d = 0;
  if (dim)
    d = normalize_dim(*dim, a.ndim(), "cross");
  else
    while (d + 1 < a.ndim() && a.size(d) != 3) ++d;
  DT_CHECK(
      a.ndim() == b.ndim() && a.ndim() > 0 && a.size(d) == 3 && b.size(d) == 3,
      "cross",
      "{} and {} have no vectors of 3 elements along dimension {}; pass "
      "tensors of as many dimensions, one of which has size 3 in both",
      a.spec()->to_string(), b.spec()->to_string(), d);
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), "cross");
  const DistTensor x = expand(a, shape), y = expand(b, shape);
  const auto next = [&](const DistTensor& t, int64_t by) {
    return roll(t, {-by}, {d});
  };
  return sub(mul(next(x, 1), next(y, 2)), mul(next(x, 2), next(y, 1)));
}

}  // namespace dtensor
