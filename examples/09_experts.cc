// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: every token is sent to the ranks of the experts that
// its router chose, and the experts' results are sent back. The example
// compares the bytes that a rank receives with a formula.
//
//   bazel run //examples:09_experts -- --mesh ep=3
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kTokens = 50, kHidden = 32, kFfn = 48, kExperts = 7,
                  kTopK = 2;

// The rank whose part has index i if `all` indices are split evenly over
// `ranks` ranks.
int64_t owner(int64_t i, int64_t all, int64_t ranks) {
  return ((i + 1) * ranks - 1) / all;
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const int64_t ranks = mesh.axis_size(mesh.axis("ep")), me = rt.rank();
  const Placements split = {{"ep", Shard(0)}};
  const auto random = [&](const Shape& shape, uint64_t n, const Placements& p) {
    DistTensor x = randn(shape, mesh, p, DType::kF32, {9, n}, 0, 0.2);
    return x.set_requires_grad();
  };
  const DistTensor x = random({kTokens, kHidden}, 0, split),
                   router = random({kExperts, kHidden}, 1, {}),
                   gate = random({kExperts, kFfn, kHidden}, 2, split),
                   up = random({kExperts, kFfn, kHidden}, 3, split),
                   down = random({kExperts, kHidden, kFfn}, 4, split);

  const TopK chosen = topk(softmax(linear(x, router), -1), kTopK);
  const DistTensor weights = chosen.values / sum(chosen.values, {1}, true);
  const CommRecord record;
  const DistTensor y = experts(x, chosen.indices, weights, gate, up, down);
  grad(sum(square(y)), {x, router, gate, up, down});
  std::vector<CommEvent> sent;
  for (const CommEvent& e : record.events())
    if (data_decide_bytes(e.op)) sent.push_back(e);
  if (rt.dry_run()) return;

  // Each choice of an expert on another rank sends a row of kHidden floats.
  const std::vector<int64_t> ids = chosen.indices.full().to_integers();
  int64_t there = 0, back = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t home = owner(int64_t(i) / kTopK, kTokens, ranks),
                  expert = owner(ids[i], kExperts, ranks);
    there += home != me && expert == me ? kHidden * 4 : 0;
    back += home == me && expert != me ? kHidden * 4 : 0;
  }
  const char* names[] = {"tokens to their experts", "results back",
                         "gradients of the results", "gradients of the tokens"};
  DT_CHECK(sent.size() == (ranks > 1 ? 4 : 0), "09_experts",
           "the number of exchanges is {}; expected {}", sent.size(),
           ranks > 1 ? 4 : 0);
  for (size_t i = 0; i < sent.size(); ++i) {
    const int64_t formula = i % 2 ? back : there;
    DT_CHECK(sent[i].counted == formula, "09_experts",
             "{}: {} bytes were received, but the formula says {}", names[i],
             sent[i].counted, formula);
    if (me == 0)
      fmt::print("{:<26} {:>8} bytes received, formula {:>8}\n", names[i],
                 sent[i].counted, formula);
  }
  if (me == 0) fmt::print("no token was dropped, and none was padded\n");
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "A mixture of experts, and the bytes that it sends.",
              .mesh = "ep=3",
              .axes = {"ep"}});
}
