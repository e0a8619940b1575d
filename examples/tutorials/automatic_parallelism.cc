// SPDX-License-Identifier: Apache-2.0
// The neural networks of JAX's "Distributed arrays and automatic
// parallelization": the same training with the batch split over all ranks, and
// with the batch split over one axis and two matrices over the other.
//
//   bazel run //examples/tutorials:automatic_parallelism -- --mesh dp=3,tp=2
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kBatch = 60, kSizes[] = {64, 48, 48, 48, 10};

DistTensor predict(const std::vector<DistTensor>& params, DistTensor x) {
  for (size_t i = 0; i < params.size(); i += 2)
    x = matmul(i ? maximum(x, 0) : x, params[i]) + params[i + 1];
  return x;
}

// Returns the loss after 30 steps. Matrix i has the layout layouts[2 * i], and
// its bias layouts[2 * i + 1].
double train(Runtime& rt, const char* what, const Mesh& mesh,
             const Placements& rows, const std::vector<Placements>& layouts) {
  const auto random = [&](Shape shape, uint64_t stream, const Placements& at) {
    return randn(shape, mesh, at, DType::kF32, {.stream = stream});
  };
  std::vector<DistTensor> params;
  for (size_t i = 0; i < 8; ++i) {
    const int64_t in = kSizes[i / 2], out = kSizes[i / 2 + 1];
    params.push_back(i % 2 ? random({out}, i, layouts[i])
                           : random({in, out}, i, layouts[i]) / std::sqrt(in));
    params.back().as_parameter();
  }
  const DistTensor x = random({kBatch, kSizes[0]}, 8, rows);
  const DistTensor y = random({kBatch, kSizes[4]}, 9, rows);
  const auto loss = [&] {
    return mean(sum(square(predict(params, x) - y), {-1}));
  };
  const double before = loss().item();
  for (int step = 0; step < 30; ++step) {
    const std::vector<DistTensor> g = grad(loss(), params);
    const NoGrad no_grad;
    for (size_t i = 0; i < 8; ++i) params[i] -= 1e-3 * g[i];
  }
  const double after = loss().item();
  if (rt.rank() == 0)
    fmt::print("{}: loss {:.4f} -> {:.4f}\n", what, before, after);
  return after;
}

void example(Runtime& rt) {
  const Placements all = {{"dp", Shard(0)}, {"tp", Shard(0)}};
  const Placements columns = {{"tp", Shard(1)}}, rows = {{"tp", Shard(0)}};
  const double one =
      train(rt, "one rank", local_mesh(), {}, std::vector<Placements>(8));
  const double data =
      train(rt, "data parallel", rt.mesh(), all, std::vector<Placements>(8));
  const double both =
      train(rt, "data and tensor parallel", rt.mesh(), {{"dp", Shard(0)}},
            {{}, {}, columns, rows, rows, {}, {}, {}});
  for (const double found : {data, both})
    DT_CHECK(std::abs(found - one) <= 1e-4 * one, "automatic_parallelism",
             "the loss is {}, and {} on one rank", found, one);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "One training in two layouts.",
              .mesh = "dp=2,tp=2",
              .axes = {"dp", "tp"}});
}
