// SPDX-License-Identifier: Apache-2.0
// A transformer block on tp ranks, written by hand as in Megatron-LM (Shoeybi
// et al., arXiv 1909.08053), and by layouts alone. Both train with the same
// losses and the same bytes. docs/by_hand.md explains it.
//
//   bazel run //examples:13_by_hand -- --mesh tp=4
#include <cmath>

#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kTokens = 32, kHidden = 24, kHeads = 6, kHead = 4, kWide = 50;
constexpr double kRate = 0.1;
constexpr int kSteps = 5;

using Function = std::function<DistTensor(const DistTensor&)>;
using Weights = std::vector<DistTensor>;

// The weights by their global shapes: the spread of a random value depends on
// the global fan-in, and its value on its global index, not on the rank.
Weights init(const Mesh& mesh) {
  uint64_t stream = 0;
  const auto random = [&](Shape shape, const Placements& layout) {
    return randn(shape, mesh, layout, DType::kF32, {.stream = ++stream}, 0,
                 1 / std::sqrt(static_cast<double>(shape[0])));
  };
  return {
      // q, k and v of each head, by columns. A head stays whole.
      random({kHidden, 3 * kHidden}, "S1(3 h=6 4:h)"),
      random({kHidden, kHidden}, {{"tp", Shard(0, kHead)}}),
      // The two halves of SwiGLU: every rank has the same columns of both.
      random({kHidden, 2 * kWide}, "S1(2 c=50:c)"),
      random({kWide, kHidden}, {{"tp", Shard(0)}}),
      random({kHidden}, {}),
  };
}

// x [tokens, hidden]. `enter` and `leave` surround the parts that ranks share.
DistTensor block(const DistTensor& x, const Weights& w, const Function& enter,
                 const Function& leave) {
  const int64_t width = w[1].size(0);  // by hand: of this rank's heads
  const std::vector<DistTensor> qkv = unbind(
      reshape(matmul(enter(x), w[0]), {1, kTokens, 3, width / kHead, kHead}),
      2);
  const DistTensor heads = attention(qkv[0], qkv[1], qkv[2], {.causal = true});
  const DistTensor y =
      x + leave(matmul(reshape(heads, {kTokens, width}), w[1]));
  const std::vector<DistTensor> halves = chunk(matmul(enter(y), w[2]), 2, 1);
  // The bias is added once, after the sum over ranks.
  return y + leave(matmul(silu(halves[0]) * halves[1], w[3])) + w[4];
}

// Trains for a few steps, and returns the losses. Rank 0 prints its bytes.
std::vector<double> train(const DistTensor& x, Weights w, const Function& enter,
                          const Function& leave, int64_t& bytes) {
  const CommRecord record;
  std::vector<double> losses;
  for (DistTensor& p : w) p.as_parameter();
  for (int step = 0; step < kSteps; ++step) {
    const DistTensor loss = mean(square(block(x, w, enter, leave)));
    const std::vector<DistTensor> g = grad(loss, w);
    losses.push_back(loss.item());
    const NoGrad no_grad;
    for (size_t i = 0; i < w.size(); ++i) nn::assign(w[i], w[i] - g[i] * kRate);
  }
  bytes = 0;
  for (const CommEvent& e : record.events()) bytes += e.predicted;
  return losses;
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const DistTensor x =
      randn({kTokens, kHidden}, mesh, {}, DType::kF32, {.seed = 1});

  // By hand, each rank computes with its own parts. The two conjugate
  // functions: one passes x on and adds the cotangents of all ranks; the other
  // adds the values of all ranks and passes the cotangent on.
  const Function keep = [](const DistTensor& t) { return t; };
  const Function reduce = [mesh](const DistTensor& t) {
    return all_reduce(t, {mesh, "tp"});
  };
  const Function f = custom_function(keep, reduce);
  const Function g = custom_function(reduce, keep);
  Weights parts;
  for (const DistTensor& w : init(mesh)) parts.push_back(to_local(w));
  int64_t bytes_by_hand, bytes_by_layouts;
  const std::vector<double> by_hand =
      train(to_local(x), parts, f, g, bytes_by_hand);

  // By layouts, the tensors say how they are split.
  const std::vector<double> by_layouts = train(
      x, init(mesh), keep,
      [](const DistTensor& t) { return t.redistribute(Placements{}); },
      bytes_by_layouts);

  if (rt.rank() == 0)
    for (int step = 0; step < kSteps; ++step)
      fmt::print("step {}  loss by hand {:.6f}, by layouts {:.6f}\n", step,
                 by_hand[static_cast<size_t>(step)],
                 by_layouts[static_cast<size_t>(step)]);
  if (rt.rank() == 0)
    fmt::print("bytes received by hand {}, by layouts {}\n", bytes_by_hand,
               bytes_by_layouts);
  DT_CHECK(bytes_by_hand == bytes_by_layouts, "13_by_hand",
           "by hand {} bytes are received, by layouts {}", bytes_by_hand,
           bytes_by_layouts);
  for (int step = 0; step < kSteps; ++step) {
    const auto i = static_cast<size_t>(step);
    DT_CHECK(std::abs(by_hand[i] - by_layouts[i]) <= 1e-6 * by_layouts[i],
             "13_by_hand", "the losses of step {} are {} and {}", step,
             by_hand[i], by_layouts[i]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A tensor-parallel block, by hand and by layouts.",
              .mesh = "tp=2",
              .axes = {"tp"}});
}
