// SPDX-License-Identifier: Apache-2.0
// The second derivative of a running product was 0 where an element is 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "dtensor/ops/contraction.h"
#include "dtensor/ops/create.h"
#include "dtensor/ops/grad.h"
#include "dtensor/ops/pointwise.h"
#include "dtensor/ops/reduce.h"
#include "dtensor/runtime.h"
#include "tests/array.h"

namespace dtensor {
namespace {

using testing::values;
using Row = std::vector<double>;

// The product of x[0], ..., x[j] without x[a] and x[b].
double product(const Row& x, size_t j, size_t a, size_t b) {
  double all = 1;
  for (size_t k = 0; k <= j; ++k)
    if (k != a && k != b) all *= x[k];
  return all;
}

// The gradient of sum(v * g) by x, where g is the gradient of sum(u * y).
Row second(const Row& x, const Row& u, const Row& v) {
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t m = 0; m < x.size(); ++m)
      for (size_t j = std::max(i, m); j < x.size() && i != m; ++j)
        out[i] += v[m] * u[j] * product(x, j, i, m);
  return out;
}
Row first(const Row& x, const Row& u) {
  Row out(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (size_t j = i; j < x.size(); ++j) out[i] += u[j] * product(x, j, i, i);
  return out;
}

TEST(SecondDerivativeOfCumprod, AtAnyNumberOfZeros) {
  const Row u = {1, -2, 3, 0.5, 4}, v = {2, 1, -1, 3, 0.25};
  for (const Row& x : {Row{2, -1, 0.5, 3, -2}, Row{0, 2, 3, -1, 2},
                       Row{2, 0, 3, -1, 0}, Row{0, 0, 3, 4, 5},
                       Row{1, 0, 0, 2, 0}, Row{0, 0, 0, 0, 0}, Row{0}, Row{}})
    for (const char* layout : {"R", "S0"})
      for (const int64_t ranks : {1, 2, 3})
        run(ranks, [&](Runtime& rt) {
          const auto n = static_cast<int64_t>(x.size());
          const auto put = [&](const Row& all) {
            return DistTensor::from_global(Tensor::from({n}, all.data()),
                                           rt.mesh(), layout);
          };
          const DistTensor at = put(x).set_requires_grad();
          const DistTensor slope = grad(sum(mul(cumprod(at, 0), put(u))), {at},
                                        {.create_graph = true})[0];
          const Row got = values(slope), want = first(x, u);
          const Row got2 = values(grad(sum(mul(slope, put(v))), {at})[0]),
                    want2 = second(x, u, v);
          for (size_t i = 0; i < x.size(); ++i) {
            EXPECT_NEAR(got[i], want[i], 1e-12) << layout << " " << i;
            EXPECT_NEAR(got2[i], want2[i], 1e-12) << layout << " " << i;
          }
        });
}

// The sums of the rows of the matrix of second derivatives, by hand.
TEST(SecondDerivativeOfCumprod, ByHand) {
  run(1, [](Runtime& rt) {
    const double x[] = {0, 2, 3};
    const DistTensor at =
        DistTensor::from_global(Tensor::from({3}, x), rt.mesh(), {})
            .set_requires_grad();
    const DistTensor slope =
        grad(sum(cumprod(at, 0)), {at}, {.create_graph = true})[0];
    EXPECT_EQ(values(slope), (Row{9, 0, 0}));
    EXPECT_EQ(values(grad(sum(slope), {at})[0]), (Row{6, 4, 2}));
  });
}

// A third derivative, of x[0] x[1] x[2] by all three.
TEST(SecondDerivativeOfCumprod, AndTheThird) {
  run(1, [](Runtime& rt) {
    const DistTensor at = zeros({3}, rt.mesh(), {}, DType::kF64);
    DistTensor(at).set_requires_grad();
    DistTensor of = cumprod(at, 0);
    for (int64_t i = 0; i < 3; ++i) {
      const double pick[] = {i == 0 ? 0.0 : 1.0 * (i == 1), 1.0 * (i == 2), 0};
      const double last[] = {0, 0, 1};
      of = grad(sum(mul(of, DistTensor::from_global(
                                Tensor::from({3}, i == 0 ? last : pick),
                                rt.mesh(), {}))),
                {at}, {.create_graph = true})[0];
    }
    EXPECT_EQ(values(of), (Row{0, 0, 1}));
  });
}

}  // namespace
}  // namespace dtensor
