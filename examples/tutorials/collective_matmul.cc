// SPDX-License-Identifier: Apache-2.0
// The products of JAX's "Manual parallelism with shard_map": a product that
// gathers its right operand and one that scatters its result, at once, and
// block by block around a ring.
//
//   bazel run //examples/tutorials:collective_matmul -- --mesh i=3
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

using Parts = std::vector<DistTensor>;

// Part i, modulo the number of ranks, of x, cut as Shard() cuts it.
DistTensor piece(const DistTensor& x, int dim, int64_t i, const AxisGroup& g) {
  const int64_t n = x.size(dim), at = (i + g.size()) % g.size();
  return slice(x, dim, at * n / g.size(), (at + 1) * n / g.size());
}

DistTensor shift(const DistTensor& x, const AxisGroup& g, int64_t by) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  for (int64_t i = 0; i < g.size(); ++i)
    pairs.emplace_back(i, (i + by + g.size()) % g.size());
  return ppermute(x, g, pairs);
}

Parts gather(const Parts& x) { return {matmul(x[0], all_gather(x[1], "i"))}; }

Parts gather_around(const Parts& x) {
  const AxisGroup g("i");
  DistTensor right = x[1], y = matmul(piece(x[0], 1, g.rank(), g), right);
  for (int64_t i = 1; i < g.size(); ++i) {
    right = shift(right, g, 1);
    y = y + matmul(piece(x[0], 1, g.rank() - i, g), right);
  }
  return {y};
}

Parts scatter(const Parts& x) {
  return {reduce_scatter(matmul(x[0], x[1]), "i")};
}

Parts scatter_around(const Parts& x) {
  const AxisGroup g("i");
  DistTensor y = matmul(piece(x[0], 0, g.rank() + 1, g), x[1]);
  for (int64_t i = 1; i < g.size(); ++i)
    y = shift(y, g, -1) + matmul(piece(x[0], 0, g.rank() + i + 1, g), x[1]);
  return {y};
}

void example(Runtime& rt) {
  const DistTensor a = randn({40, 36}, rt.mesh()),
                   b = randn({36, 8}, rt.mesh());
  const auto check = [&](const char* what, const TensorFunction& fn,
                         const Placements& left) {
    const DistTensor y = local_map(fn, {left, "S0"}, {"S0"})({a, b})[0];
    DT_CHECK(rt.dry_run() || allclose(y, matmul(a, b), 0, 1e-4).item<bool>(),
             "collective_matmul", "{}: the product differs", what);
    if (rt.rank() == 0) fmt::print("{}: {}\n", what, y.spec()->to_string());
  };
  check("gather", gather, "S0"), check("scatter", scatter, "S1");
  check("gather, around a ring", gather_around, "S0");
  check("scatter, around a ring", scatter_around, "S1");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Split products.", .mesh = "i=4", .axes = {"i"}});
}
