// SPDX-License-Identifier: Apache-2.0
// The neural networks of JAX's "Manual parallelism with shard_map": data
// parallelism, fully sharded, tensor parallelism, and the last two together, by
// collectives inside local_map().
//
//   bazel run //examples/tutorials:manual_parallelism -- --mesh batch=2,feats=3
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kBatch = 30, kSizes[] = {48, 32, 32, 32, 12};

// Gathers each parameter over the axes `gather` for the time of its use, and
// sums and scatters the products over the axes `scatter`; "" for none.
DistTensor predict(const std::vector<DistTensor>& in, const char* gather,
                   const char* scatter) {
  const auto group = [](const char* axes) {
    return *axes ? std::optional(AxisGroup(axes)) : std::nullopt;
  };
  const auto gathers = group(gather), scatters = group(scatter);
  DistTensor x = in[0];
  for (size_t i = 2; i < in.size(); i += 2) {
    const auto layer = [=](const std::vector<DistTensor>& p) {
      const auto whole = [&](const DistTensor& part) {
        return gathers ? all_gather(part, *gathers) : part;
      };
      const DistTensor y = matmul(p[0], whole(p[1]));
      return std::vector{(scatters ? reduce_scatter(y, *scatters, 1) : y) +
                         whole(p[2])};
    };
    // checkpoint() gathers again in the backward pass.
    x = checkpoint(layer, {x, in[i], in[i + 1]})[0];
    if (i + 2 < in.size()) x = relu(x);
  }
  return x;
}

TensorFunction loss(const char* gather, const char* scatter,
                    const char* reduce) {
  return [=](const std::vector<DistTensor>& in) {
    const DistTensor error = predict(in, gather, scatter) - in[1];
    const DistTensor part = sum(square(error)) / kBatch;
    return std::vector{*reduce ? all_reduce(part, reduce) : part};
  };
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  std::vector<DistTensor> in;  // inputs, targets, and the layers' w and b
  const auto random = [&](Shape shape, double std) {
    in.push_back(randn(shape, mesh, {}, DType::kF32,
                       {.stream = static_cast<uint64_t>(in.size())}, 0, std)
                     .set_requires_grad());
  };
  random({kBatch, kSizes[0]}, 1), random({kBatch, kSizes[4]}, 1);
  for (int i = 0; i < 4; ++i) {
    random({kSizes[i], kSizes[i + 1]}, 1 / std::sqrt(kSizes[i]));
    random({kSizes[i + 1]}, 1);
  }
  const DistTensor expected = loss("", "", "")(in)[0];
  const std::vector<DistTensor> expected_grads = grad(expected, in);
  const auto check = [&](const char* what, const TensorFunction& fn,
                         const Placements& data, const Placements& weights) {
    std::vector<Placements> layouts(in.size(), weights);
    layouts[0] = layouts[1] = data;
    const DistTensor found = local_map(fn, layouts, {Placements{}})(in)[0];
    const std::vector<DistTensor> grads = grad(found, in);
    for (size_t i = 0; i < in.size() && !rt.dry_run(); ++i)
      DT_CHECK(allclose(grads[i], expected_grads[i], 1e-3, 1e-5).item<bool>(),
               "manual_parallelism", "{}: gradient {} differs", what, i);
    const double a = found.item(), b = expected.item();
    DT_CHECK(std::abs(a - b) <= 1e-5 * b, "manual_parallelism",
             "{}: the loss is {}, not {}", what, a, b);
    if (rt.rank() == 0) fmt::print("{}: loss {:.4f}\n", what, a);
  };
  const auto both = [](int dim) {
    return Placements{{"batch", Shard(dim)}, {"feats", Shard(dim)}};
  };
  const char* all = "batch,feats";
  check("data parallel", loss("", "", all), both(0), {});
  check("fully sharded", loss(all, "", all), both(0), both(0));
  check("tensor parallel", loss("", all, all), both(1), both(0));
  check("both", loss("batch", "feats", all),
        {{"batch", Shard(0)}, {"feats", Shard(1)}},
        {{"feats", Shard(0)}, {"batch", Shard(0)}});
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Four kinds of parallelism by hand.",
              .mesh = "batch=2,feats=2",
              .axes = {"batch", "feats"}});
}
