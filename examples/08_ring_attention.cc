// SPDX-License-Identifier: Apache-2.0
// Computes attention on one sequence that is split over ranks in zig-zag order,
// once with a ring and once with an all-to-all by heads. Compares the bytes
// that a rank receives with formulas, and prints how even the work is.
//
//   bazel run //examples:08_ring_attention -- --mesh cp=4
#include "dtensor/dtensor.h"

using namespace dtensor;

namespace {

constexpr int64_t kTokens = 960, kHeads = 12, kHeadSize = 16;

void row(std::string_view how, const char* pass, double found, double formula) {
  fmt::print("{:<11}{:<9} {:>13.0f} {:>9.0f}\n", how, pass, found, formula);
}

// Calls fn; returns the bytes that this rank received in its collectives or,
// in a dry run, would have received.
double received(bool dry_run, const std::function<void()>& fn) {
  const CommRecord record;
  fn();
  double bytes = 0;
  for (const CommEvent& e : record.events())
    bytes += double(dry_run ? e.predicted : e.counted);
  return bytes;
}

void example(Runtime& rt) {
  const Mesh mesh = rt.mesh();
  const auto p = static_cast<double>(mesh.num_ranks());
  // The sequence has 2p chunks; rank r has chunks r and 2p - 1 - r.
  const Dim order = zigzag(kTokens, mesh, mesh.axis("cp"));
  const Shape shape{1, kTokens, kHeads, kHeadSize};
  Layout layout = Layout::replicated(shape);
  layout.dims[1] = order;
  const auto draw = [&](uint64_t seed) {
    return randn(shape, mesh, layout, DType::kF32, {8, seed});
  };
  const DistTensor q = draw(1).set_requires_grad(), seed = draw(4),
                   k = draw(2).set_requires_grad(),
                   v = draw(3).set_requires_grad();
  const bool dry = rt.dry_run(), is_rank_0 = rt.rank() == 0 || dry;
  const double one = kTokens * kHeads * kHeadSize * sizeof(float),
               others = (p - 1) / p;
  if (is_rank_0)
    fmt::print("{:<20} {:>13} {:>9}\n", "bytes per rank", "found", "formula");
  for (const auto how : {ContextParallel::kRing, ContextParallel::kAllToAll}) {
    const bool ring = how == ContextParallel::kRing;
    DistTensor y;
    const double forward = received(
        dry, [&] { y = attention(q, k, v, {.causal = true, .context = how}); });
    const double backward = received(dry, [&] {
      grad(y, {q, k, v}, {.cotangent = seed});
    });
    // With the ring, a rank receives p - 1 blocks of keys and values, and in
    // the backward pass also their gradients. With the all-to-all, it receives
    // all but 1/p of its q, k, v and result, or of their gradients.
    const double once = others * (ring ? 2 * one : 4 * one / p);
    if (!is_rank_0) continue;
    row(name(how), "forward", forward, once);
    row(name(how), "backward", backward, ring ? 2 * once : once);
  }
  for (const bool even : {false, true}) {
    std::string scores;
    const Dim dim = even ? order : Dim(kTokens, Split::over({0}));
    for (const IntervalList& queries : parts_of(dim, mesh))
      scores += fmt::format(" {}", score_pairs(queries, {{0, kTokens}}, true));
    if (is_rank_0)
      fmt::print("scores, {}:{}\n", even ? "zig-zag" : "in order", scores);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv, example,
             {.about = "Attention on a sequence that is split over ranks.",
              .mesh = "cp=4",
              .axes = {"cp"}});
}
