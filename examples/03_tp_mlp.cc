// SPDX-License-Identifier: Apache-2.0
// Megatron's MLP without parallel layers: the first matrix is split by columns,
// the second by rows, and the output is replicated. These layouts alone cause
// one all-reduce in the forward pass and one in the backward pass.
//
//   bazel run //examples:03_tp_mlp -- --mesh tp=4
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kTokens = 64, kHidden = 32, kWide = 128;

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const CommRecord record;
  const auto init = [&](Shape shape, uint64_t stream, const Placements& at) {
    return randn(shape, mesh, at, DType::kF32, {.seed = 0, .stream = stream}, 0,
                 0.1);
  };
  DistTensor x = init({kTokens, kHidden}, 0, {});
  DistTensor w1 = init({kHidden, kWide}, 1, {{"tp", Shard(1)}});
  DistTensor w2 = init({kWide, kHidden}, 2, {{"tp", Shard(0)}});
  w1.as_parameter(), w2.as_parameter();
  x.set_requires_grad();  // as if x were the output of another layer

  // The product is a partial sum over tp; redistribute() reduces it.
  const DistTensor y =
      matmul(gelu(matmul(x, w1)), w2).redistribute(Placements{});
  const auto g = grad(mean(square(y)), {x, w1, w2});

  // This rank's collectives; every other rank records the same ones.
  const std::span<const CommEvent> events = record.events();
  if (rt.rank() == 0) {
    fmt::print("y: {}\n", y.spec()->to_string());
    for (size_t i = 0; i < g.size(); ++i)
      fmt::print("d{}: {}\n",
                 i == 0   ? "x"
                 : i == 1 ? "w1"
                          : "w2",
                 g[i].spec()->to_string());
    fmt::print("{}", comm_table(events, true));
  }
  const int64_t ranks = mesh.num_ranks();
  if (ranks > 1) {
    DT_CHECK(events.size() == 2 && events[0].phase == "forward" &&
                 events[1].phase == "backward" &&
                 events[0].kind == StepKind::kAllReduce &&
                 events[1].kind == StepKind::kAllReduce,
             "03_tp_mlp",
             "expected an all-reduce in each of the two passes, but got:\n{}",
             comm_table(events, true));
    DT_CHECK(events[0].predicted ==
                 4 * all_reduce_elements(kTokens * kHidden, ranks),
             "03_tp_mlp", "the all-reduce moves {} bytes; expected {}",
             events[0].predicted,
             4 * all_reduce_elements(kTokens * kHidden, ranks));
  }
  if (rt.dry_run()) return;

  // The reference: the same computation with replicated tensors.
  const DistTensor v1 = w1.detach().redistribute(Placements{});
  const DistTensor v2 = w2.detach().redistribute(Placements{});
  const DistTensor z = matmul(gelu(matmul(x.detach(), v1)), v2);
  double most = 0;
  for (int64_t i = 0; i < z.local().numel(); ++i)
    most = std::max(most, std::abs(z.local().at(i) - y.local().at(i)));
  DT_CHECK(most < 1e-5, "03_tp_mlp",
           "y differs from the replicated computation by up to {}", most);
  if (rt.rank() == 0)
    fmt::print("equal to the replicated computation, within {:.1g}\n", most);
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A tensor-parallel MLP, made by layouts alone.",
              .mesh = "tp=2",
              .axes = {"tp"}});
}
