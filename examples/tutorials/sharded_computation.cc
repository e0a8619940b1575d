// SPDX-License-Identifier: Apache-2.0
// JAX's "Introduction to parallel programming": layouts that follow from those
// of the data, layouts that one asks for, and functions of local parts.
//
//   bazel run //examples/tutorials:sharded_computation -- --mesh x=2,y=3
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

void show(Runtime& rt, const char* what, const DistTensor& x) {
  const std::string text = x.to_string();
  if (rt.rank() == 0) fmt::print("{}: {}\n", what, text);
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const Placements all = {{"x", Shard(0)}, {"y", Shard(0)}};
  const auto same = [&](const char* what, const DistTensor& a,
                        const DistTensor& b) {
    DT_CHECK(rt.dry_run() || allclose(a, b).item<bool>(), "sharded_computation",
             "{} differs", what);
    show(rt, what, a);
  };
  const DistTensor whole = arange(0, 32, 1, mesh).view({4, 8});
  const DistTensor x = whole.redistribute({{"x", Shard(0)}, {"y", Shard(1)}});
  show(rt, "x", x);

  // Layouts follow from the data.
  const DistTensor y = 2 * sin(x) + 1;
  DT_CHECK(y.layout() == x.layout(), "sharded_computation", "{}", y);
  same("2 sin(x) + 1", y, 2 * sin(whole) + 1);
  same("the sum of the rows", sum(x, {0}), sum(whole, {0}));

  // This layout is asked for.
  same("the sum on all ranks", sum(x, {0}).redistribute(all), sum(whole, {0}));

  // Functions of parts.
  const DistTensor v = arange(0, 32, 1, mesh, all);
  same("twice v",
       local_map([](const DistTensor& part) { return part * 2; }, all, all)(v),
       2 * v);
  const auto sum_of_part = [](const DistTensor& p) {
    return sum(p, {0}, true);
  };
  show(rt, "the parts' sums",
       local_map(sum_of_part, all, all, {.check = false})(v));
  const auto sum_of_all = [](const DistTensor& p) {
    return all_reduce(sum(p), "x,y");
  };
  same("the sum of all parts", local_map(sum_of_all, all, {})(v), sum(v));

  // One layer in the three ways.
  const auto random = [&](Shape shape, uint64_t stream) {
    return randn(shape, mesh, {}, DType::kF32, {.stream = stream});
  };
  const DistTensor in = random({1, 32}, 1), w = random({32, 4}, 2),
                   b = random({4}, 3), layer = sigmoid(matmul(in, w) + b);
  const Placements columns = {{"x", Shard(1)}, {"y", Shard(1)}};
  const DistTensor split_in = in.redistribute(columns),
                   split_w = w.redistribute(all);
  same("a layer of split data", sigmoid(matmul(split_in, split_w) + b), layer);
  const auto by_parts = local_map(
      [](const std::vector<DistTensor>& p) {
        const DistTensor y = all_reduce(matmul(p[0], p[1]), "x,y");
        return std::vector{sigmoid(y + p[2])};
      },
      {columns, all, {}}, {Placements{}});
  same("a layer of parts", by_parts({in, w, b})[0], layer);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Layouts that follow, layouts asked for, local parts.",
              .mesh = "x=2,y=2",
              .axes = {"x", "y"}});
}
